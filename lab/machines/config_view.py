"""A machine config as an emulated machine reads it: the few settings that change what it does.

The checker has validated the config before; nothing here validates again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Network
from typing import Any

import yaml

from lab.machines.images import Mirrors
from talos.secrets.pki import KeyPair

Wire = Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """One machine config, by its bytes."""

    source: bytes = field(repr=False)

    @cached_property
    def documents(self) -> tuple[Wire, ...]:
        return tuple(document for document in yaml.safe_load_all(self.source) if isinstance(document, Mapping))

    @cached_property
    def _base(self) -> Wire:
        return next((document for document in self.documents if "kind" not in document), {})

    def of_kind(self, kind: str) -> tuple[Wire, ...]:
        """Every document of a kind, in order."""
        return tuple(document for document in self.documents if document.get("kind") == kind)

    def machine(self, path: str, default: Any = None) -> Any:
        """A value below `machine`, by a path with dots; `default` also where the config has null."""
        return _at(self._base.get("machine"), path, default)

    def cluster(self, path: str, default: Any = None) -> Any:
        """A value below `cluster`."""
        return _at(self._base.get("cluster"), path, default)

    @property
    def complete(self) -> bool:
        """Whether the machine can boot from it."""
        return bool(self.machine("type"))

    @property
    def is_control_plane(self) -> bool:
        return self.machine("type") in {"controlplane", "init"}

    @property
    def hostname(self) -> str | None:
        """The name that the config gives, if it does."""
        names = [document.get("hostname") for document in self.of_kind("HostnameConfig")]
        return next((str(name) for name in names if name), None)

    @property
    def machine_ca(self) -> KeyPair:
        """CA of the Talos API; its key is empty on workers."""
        return KeyPair(_decoded(self.machine("ca.crt", "")), _decoded(self.machine("ca.key", "")))

    @property
    def kubernetes_ca(self) -> KeyPair:
        """CA of the Kubernetes API; its key is empty on workers."""
        return KeyPair(_decoded(self.cluster("ca.crt", "")), _decoded(self.cluster("ca.key", "")))

    @property
    def trusted_cas(self) -> tuple[str, ...]:
        """PEM of every CA whose clients are let in."""
        accepted = [_decoded(certificate.get("crt", "")) for certificate in self.machine("acceptedCAs", ())]
        return (self.machine_ca.certificate, *accepted)

    @property
    def cluster_id(self) -> str:
        return str(self.cluster("id", ""))

    @property
    def kubelet_version(self) -> str:
        """The tag of the kubelet's image."""
        return str(self.machine("kubelet.image", "")).partition("@")[0].rpartition(":")[2]

    @property
    def api_server_version(self) -> str:
        """The tag of the API server's image; the kubelet's where the config names none."""
        image = str(self.cluster("apiServer.image", ""))
        return image.partition("@")[0].rpartition(":")[2] or self.kubelet_version

    @property
    def pod_subnets(self) -> tuple[IPv4Network, ...]:
        return tuple(IPv4Network(subnet) for subnet in self.cluster("network.podSubnets", ()))

    @property
    def mirrors(self) -> dict[str, Mirrors]:
        """By the upstream host, or `*` for all others: what is asked in its place."""
        return {
            str(mirror["name"]): Mirrors(
                urls=tuple(str(endpoint["url"]) for endpoint in mirror.get("endpoints") or ()),
                skip_fallback=bool(mirror.get("skipFallback")),
            )
            for mirror in self.of_kind("RegistryMirrorConfig")
        }


def _at(value: Any, path: str, default: Any) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return default if value is None else value


def _decoded(text: str) -> str:
    return base64.b64decode(text or "").decode()
