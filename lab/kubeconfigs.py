"""Kubeconfigs for the Kubernetes client, with their certificates and keys in memory.

The client library writes what a kubeconfig holds inline into files under /tmp and removes them when its process ends by
itself. Provider plugins are killed, and so each of them would leave a private key behind.
"""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_INLINE = {
    "certificate-authority-data": "certificate-authority",
    "client-certificate-data": "client-certificate",
    "client-key-data": "client-key",
}


def in_memory(kubeconfig: Mapping[str, Any]) -> dict[str, Any]:
    """The same kubeconfig, its inline certificates and keys replaced by files that exist in this process alone."""
    return {
        **kubeconfig,
        "clusters": [_with_files(entry, "cluster") for entry in kubeconfig.get("clusters") or ()],
        "users": [_with_files(entry, "user") for entry in kubeconfig.get("users") or ()],
    }


def read(path: Path) -> dict[str, Any]:
    """The kubeconfig of that file, as `in_memory`. Raises OSError and yaml.YAMLError."""
    return in_memory(yaml.safe_load(path.read_text()))


def _with_files(entry: Mapping[str, Any], kind: str) -> dict[str, Any]:
    values = dict(entry.get(kind) or {})
    for inline, file in _INLINE.items():
        if values.get(inline):
            values[file] = _file(base64.standard_b64decode(values.pop(inline)))
    return {**entry, kind: values}


@functools.cache
def _file(content: bytes) -> str:
    """Path that gives this process the content, as often as it is opened, until the process ends."""
    memory = os.memfd_create("kubeconfig")
    os.write(memory, content)
    return f"/proc/self/fd/{memory}"
