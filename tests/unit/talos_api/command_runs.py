"""Commands run on scripted machines: with which credentials, and what they ended with."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from tests.unit.talos_api.machine_certificates import cluster

CANARY = "canary-41f7aa"


def talosconfig(name: str = "lab") -> str:
    identity = cluster(name).client()
    encoded = {"ca": identity.ca, "crt": identity.certificate, "key": identity.key}
    context = {"endpoints": [], **{key: base64.b64encode(value).decode() for key, value in encoded.items()}}
    return yaml.safe_dump({"context": name, "contexts": {name: context}})


@dataclass
class Done:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


Command = Callable[..., Done]
