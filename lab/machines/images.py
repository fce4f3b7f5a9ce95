"""Pulling installer images: a manifest from a registry over plain HTTP, through the config's mirrors.

Emulated machines only ever ask hosts inside the lab's network or on this machine; every other one is unreachable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_address
from urllib.parse import urlsplit

import httpx

from lab.machines.failing import refusal
from lab.machines.state import Image, System
from talos.api.errors import Code

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
DIGEST_HEADER = "docker-content-digest"
# Annotations of the emulated factory's images: there are no layers that a system could be read from.
VERSION_NOTE, SCHEMATIC_NOTE, EXTENSIONS_NOTE, SIGNED_NOTE = (
    f"lab.emulated/{note}" for note in ("talos-version", "schematic", "extensions", "signed")
)
_REFERENCE = re.compile(r"^(?P<host>[^/]+)/(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?$")


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """What a machine asks in the place of a registry, in this order, and then that itself unless it skips it."""

    urls: tuple[str, ...] = ()
    skip_fallback: bool = False


@dataclass(frozen=True, kw_only=True)
class Puller:
    """`networks` are where registries may be; `hosts` are names of registries and their base URLs."""

    networks: tuple[IPv4Network, ...]
    hosts: Mapping[str, str]
    timeout_s: float = 10.0

    def pull(self, reference: str, mirrors: Mapping[str, Mirrors]) -> Image:
        """The image of a reference. RpcError NOT_FOUND where no registry has it, UNAVAILABLE where none answers."""
        match = _REFERENCE.match(reference)
        if match is None:
            raise refusal(Code.INVALID_ARGUMENT, f"error pulling image: invalid reference {reference!r}")
        host = match["host"]
        wanted = f"/v2/{match['name']}/manifests/{match['digest'] or match['tag'] or 'latest'}"
        reasons: list[str] = []
        asked = mirrors.get(host, mirrors.get("*", Mirrors()))
        own = () if asked.skip_fallback else (self.hosts.get(host, f"http://{host}"),)
        for base in (*asked.urls, *own):
            answer = self._ask(f"{base.rstrip('/').removesuffix('/v2')}{wanted}")
            if isinstance(answer, Image):
                return answer
            reasons.append(answer)
        code = Code.NOT_FOUND if any(reason.endswith("not found") for reason in reasons) else Code.UNAVAILABLE
        raise refusal(code, f"error pulling image: failed to pull image {reference!r}: {'; '.join(reasons)}")

    def _ask(self, url: str) -> Image | str:
        host = urlsplit(url).hostname or ""
        if not self._inside(host):
            return f"failed to resolve {host}: dial tcp: lookup {host}: no such host"
        try:
            answer = httpx.get(url, headers={"accept": MANIFEST_TYPE}, timeout=self.timeout_s, trust_env=False)
        except httpx.TransportError as error:
            return f"dial tcp {host}: {error}"
        if answer.status_code == 404:
            return f"{url}: not found"
        try:
            notes = json.loads(answer.content)["annotations"]
            system = System(
                talos_version=notes[VERSION_NOTE],
                schematic=notes[SCHEMATIC_NOTE],
                extensions=json.loads(notes[EXTENSIONS_NOTE]),
                signed=SIGNED_NOTE in notes,
            )
        except (ValueError, KeyError, TypeError):
            return f"{url}: HTTP {answer.status_code}, no manifest of an installer"
        return Image(digest=answer.headers[DIGEST_HEADER], system=system)

    def _inside(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or any(address in network for network in self.networks)


def pinned(reference: str, digest: str) -> str:
    """The reference by digest, as Talos names what it pulled."""
    if "@" in reference:
        return reference
    host, _, path = reference.rpartition("/")
    return f"{host}/{path.partition(':')[0]}@{digest}"
