"""Secrets of Helm's releases for tests."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

SECRET_VALUE = "a-seed-that-no-output-has"


def helm_secret(name: str, namespace: str, chart: str, version: str, number: int, status: str) -> dict[str, Any]:
    """As Helm keeps a revision; its values have what must not be shown."""
    record = {
        "name": name,
        "namespace": namespace,
        "version": number,
        "info": {"status": status},
        "config": {"seed": SECRET_VALUE},
        "chart": {"metadata": {"name": chart, "version": version, "appVersion": version}},
    }
    release = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(record).encode()))).decode()
    meta = {"name": f"sh.helm.release.v1.{name}.v{number}", "namespace": namespace}
    return {"type": "helm.sh/release.v1", "metadata": meta, "data": {"release": release}}
