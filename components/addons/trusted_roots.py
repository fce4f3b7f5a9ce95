"""Certificates that a site's machines trust, as a folder that a program of others reads beside those of its image."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any


def trusted_roots(name: str, namespace: str, roots: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with them, which `SSL_CERT_DIR` makes Go read. Other ones are another object, and so another pod.

    roots: PEM by name.
    """
    text = "\n".join(certificates.strip() for _, certificates in sorted(roots.items())) + "\n"
    meta = {"name": f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"roots.pem": text}}
