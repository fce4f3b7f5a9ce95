"""An emulated image factory: schematics, versions, official extensions, and installer images as manifests only.

Paths and answers are those of siderolabs/image-factory v1.5.0. Nothing is built: an installer's manifest names what the
image would hold, and there are no layers behind it. Boot media are notes.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.machines.images import (
    DIGEST_HEADER,
    EXTENSIONS_NOTE,
    MANIFEST_TYPE,
    SCHEMATIC_NOTE,
    SIGNED_NOTE,
    VERSION_NOTE,
)
from talos.factory.schematic import canonical_yaml

VERSIONS = ("v1.13.7", "v1.13.8", "v1.13.9")
_DRIVERS = {"lts": "580.178.04", "production": "595.91.07"}
_TOOLKIT = "v1.19.1"

# The factory's order of fields, which the id depends on. None is a value, a mapping has fields of its own.
_FIELDS: dict[str, Any] = {
    "owner": None,
    "overlay": {"image": None, "name": None, "options": None},
    "customization": {
        "embeddedMachineConfiguration": None,
        "extraKernelArgs": None,
        "meta": None,
        "systemExtensions": {"officialExtensions": None},
        "bootloader": None,
        "secureboot": {"enrollKeys": None, "includeWellKnownCertificates": None},
        "diskImage": {"sectorSize": None},
    },
}
_INSTALLER = re.compile(r"^/v2/(?:metal-)?installer(-secureboot)?/([0-9a-f]{64})/manifests/([^/]+)$")
_MEDIUM = re.compile(
    r"^/image/([0-9a-f]{64})/(v[^/]+)/"
    r"(metal-amd64(?:-secureboot)?(?:\.iso|-uki\.efi)|kernel-amd64|initramfs-amd64\.xz|cmdline-metal-amd64(?:-secureboot)?)$"
)
# Every installer's config. With it, a tool that copies images takes an installer as it takes any other.
_NO_CONFIG = b"{}"


class SchematicError(Exception):
    """A schematic that the factory refuses."""


def official_extensions(version: str) -> dict[str, str]:
    """Names of the official extensions of a Talos version, and the tags of their images."""
    tags = {
        "iscsi-tools": "v0.2.0",
        "util-linux-tools": "2.42.2",
        "nfsrahead": "2.8.3",
        "mellanox-mstflint": "4.34.0-1",
        "nvme-cli": "v2.14",
        "intel-ucode": "20260512",
        "amd-ucode": "20260519",
        "lldpd": "1.0.20",
        "nvidia-gdrdrv-device": f"v2.5.2-{version}",
    }
    for fork, driver in _DRIVERS.items():
        tags |= {
            f"nvidia-open-gpu-kernel-modules-{fork}": f"{driver}-{version}",
            f"nonfree-kmod-nvidia-{fork}": f"{driver}-{version}",
            f"nvidia-container-toolkit-{fork}": f"{driver}-{_TOOLKIT}",
            f"nvidia-fabricmanager-{fork}": driver,
        }
    return {f"siderolabs/{name}": tag for name, tag in sorted(tags.items())}


def canonical(text: bytes) -> tuple[bytes, dict[str, Any]]:
    """A posted schematic in the factory's canonical form; SchematicError for one with an unknown field."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SchematicError(f"yaml: {error}") from None
    ordered = _ordered(document or {}, _FIELDS, "schematic")
    ordered.setdefault("customization", {})
    return canonical_yaml(ordered), ordered


def _ordered(section: Any, fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(section, Mapping):
        raise SchematicError(f"{where} is not a mapping")
    if unknown := set(map(str, section)) - set(fields):
        raise SchematicError(f"field {min(unknown)} not found in {where}")
    ordered: dict[str, Any] = {}
    for name, inner in fields.items():
        value = section.get(name)
        if value and inner is not None:
            value = _ordered(value, inner, name)
        if value or (name == "customization" and name in section):
            ordered[name] = value or {}
    return ordered


@dataclass(kw_only=True)
class FactoryContent:
    """What the factory knows. `tags` replaces tags of extensions in all versions, to make some that do not fit."""

    versions: tuple[str, ...] = VERSIONS
    tags: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    """Where schematics are kept, so that they outlive the factory; None keeps them in memory."""
    schematics: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Read what was kept."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.schematics |= {path.stem: path.read_bytes() for path in self.folder.glob("*.yaml")}

    def add(self, text: bytes) -> tuple[str, bytes]:
        """Keep a schematic; its id and canonical form."""
        form, _ = canonical(text)
        schematic = hashlib.sha256(form).hexdigest()
        with self._lock:
            self.schematics[schematic] = form
            if self.folder is not None:
                draft = self.folder / f"{schematic}.draft"
                draft.write_bytes(form)
                draft.replace(self.folder / f"{schematic}.yaml")
        return schematic, form

    def extensions(self, version: str) -> dict[str, str] | None:
        """Names and tags; None for a version that the factory does not have."""
        return official_extensions(version) | self.tags if version in self.versions else None

    def manifest(self, schematic: str, version: str, *, signed: bool = False) -> bytes | None:
        """An installer image's manifest; None where it cannot be built. signed: the one for Secure Boot."""
        form, official = self.schematics.get(schematic), self.extensions(version)
        if form is None or official is None:
            return None
        chosen = yaml.safe_load(form)["customization"].get("systemExtensions", {}).get("officialExtensions", [])
        if not set(chosen) <= set(official):
            return None
        empty = {
            "mediaType": "application/vnd.oci.empty.v1+json",
            "digest": _digest(_NO_CONFIG),
            "size": len(_NO_CONFIG),
        }
        content = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": empty,
            "layers": [],
            "annotations": {
                VERSION_NOTE: version,
                SCHEMATIC_NOTE: schematic,
                EXTENSIONS_NOTE: json.dumps({name: official[name] for name in chosen}),
                **({SIGNED_NOTE: "true"} if signed else {}),
            },
        }
        return json.dumps(content).encode()

    def medium(self, schematic: str, version: str, name: str) -> bytes | None:
        """A note in the place of a file that machines boot from; None where it cannot be built."""
        known = self.manifest(schematic, version) is not None
        return f"{name} of schematic {schematic} at Talos {version}\n".encode() if known else None


class ImageFactoryServer:
    """The factory on an address, in a thread of its own. Every schematic with nothing in it is known from the start."""

    def __init__(self, content: FactoryContent, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port` 0 takes a free one; LabError where it cannot listen."""
        self.content = content
        content.add(b"customization: {}\n")
        handler = type("Handler", (_Handler,), {"content": content})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as error:
            raise LabError(
                f"the image factory cannot listen on {host}:{port}: {error.strerror}", fix="choose another address"
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def registry(self) -> str:
        """Host and port, as image references begin with."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.registry}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    content: FactoryContent
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/schematics":
            self._say(404, b"not found", "text/plain")
            return
        try:
            schematic, form = self.content.add(body)
        except SchematicError as error:
            self._say(400, str(error).encode(), "text/plain")
            return
        self._json({"id": schematic, "schematic": form.decode()}, status=201)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/versions":
            self._json(list(self.content.versions))
        elif match := re.fullmatch(r"/schematics/([0-9a-f]{64})", path):
            form = self.content.schematics.get(match[1])
            self._say(404 if form is None else 200, form or b"schematic not found", "application/yaml")
        elif match := re.fullmatch(r"/version/([^/]+)/extensions/official", path):
            self._extensions(match[1])
        elif match := re.fullmatch(r"/version/([^/]+)/overlays/official", path):
            self._json([])
        elif path in {"/v2", "/v2/"}:
            self._json({})
        elif match := _INSTALLER.match(path):
            self._manifest(match[2], match[3], signed=bool(match[1]))
        elif match := _MEDIUM.match(path):
            medium = self.content.medium(match[1], match[2], match[3])
            self._say(404 if medium is None else 200, medium or b"not found", "application/octet-stream")
        elif path.startswith("/v2/") and path.endswith(f"/blobs/{_digest(_NO_CONFIG)}"):
            self._say(200, _NO_CONFIG, "application/octet-stream")
        else:
            self._say(404, b"not found", "text/plain")

    def _extensions(self, version: str) -> None:
        tags = self.content.extensions(version if version.startswith("v") else f"v{version}")
        if tags is None:
            self._say(404, f"version {version} is not available".encode(), "text/plain")
            return
        self._json(
            [
                {
                    "name": name,
                    "ref": f"ghcr.io/{name}:{tag}",
                    "digest": _digest(f"{name}:{tag}".encode()),
                    "author": "emulated",
                    "description": "of an emulated image factory",
                }
                for name, tag in tags.items()
            ]
        )

    def _manifest(self, schematic: str, wanted: str, *, signed: bool) -> None:
        versions = self.content.versions if wanted.startswith("sha256:") else (wanted,)
        for version in versions:
            manifest = self.content.manifest(schematic, version, signed=signed)
            if manifest is not None and wanted in {version, _digest(manifest)}:
                self._say(200, manifest, MANIFEST_TYPE, {DIGEST_HEADER: _digest(manifest)})
                return
        self._json({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}, status=404)

    def _json(self, content: Any, *, status: int = 200) -> None:
        self._say(status, json.dumps(content).encode(), "application/json")

    def _say(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the client sees the answer."""


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
