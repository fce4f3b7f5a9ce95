"""Images of this repository's own services, built as OCI layouts without a container engine.

The same sources, lock, base image and version of Go give the same digest, on every machine.
"""

from __future__ import annotations

import ast
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.oci_layout import Layer, LayerFile, OciLayout
from bundle.programs import FetchingProgram
from bundle.service_packages import PYTHON, layer_files, service_wheels
from bundle.supplies import BUILT
from bundle.wheels import LOCK
from floor.images import ImageReference

_SOURCES = "services"
_USER = "65532"
_APP, _PACKAGES = "app", "app/packages"
_INSTALL = "install Go: https://go.dev/dl, or name the program: --go PROGRAM"
_GO_FIX = "correct what it names; modules and the pinned Go come from GOPROXY, so check the connection where these lack"
_BASE_FIX = f"name an image of Python {PYTHON} in images.python of stacks/facts/versions.yaml, and lock it again"
# Files of the portal's pages, beside modules.
_KINDS = (".py", ".j2", ".css", ".js", ".svg")


@dataclass(frozen=True, kw_only=True)
class ServiceImages:
    """Builds them out of a checkout."""

    project: Path
    go: str
    """The program; another version than the pinned one fetches that."""
    go_version: str
    base: ImageReference
    """Of Python, by its digest."""
    crane: Crane
    mirror: str | None
    """What has the base image in the place of its registry."""
    note: Callable[[str], None]

    @property
    def images(self) -> ImageFolder:
        """Where they are afterwards."""
        return ImageFolder(self.project / BUILT)

    def build(self, service: str, image: ImageReference) -> ImageReference:
        """Put the service's image into the folder under this name; it with its digest. Raises BundleError."""
        if not (self.project / _SOURCES / service).is_dir():
            raise BundleError(
                f"{self.project} has no {_SOURCES}/{service}",
                fix="call this in a checkout of the platform, or name it: --project DIR",
            )
        self.note(f"{image}: building")
        write = self._write_gatekeeper if service == "gatekeeper" else lambda draft: self._write_python(service, draft)
        return self.images.write(image, write)

    def _write_gatekeeper(self, draft: Path) -> str:
        place = "/usr/local/bin/gatekeeper"
        with tempfile.TemporaryDirectory(prefix="go-build-") as folder:
            program = Path(folder) / "gatekeeper"
            go = FetchingProgram(
                command=self.go,
                folder=self.project / _SOURCES / "gatekeeper",
                install=_INSTALL,
                # What else an environment or `go env -w` sets could change what is built.
                variables={
                    "CGO_ENABLED": "0",
                    "GOOS": "linux",
                    "GOARCH": "amd64",
                    "GOAMD64": "v1",
                    "GOEXPERIMENT": "",
                    "GOFIPS140": "off",
                    "GOFLAGS": "-mod=readonly",
                    "GO111MODULE": "on",
                    "GOTOOLCHAIN": f"go{self.go_version}",
                    "GOWORK": "off",
                },
            )
            words = ["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "."]
            go.run(words, what="the gatekeeper", failed="go cannot build the gatekeeper", fix=_GO_FIX, limit_s=None)
            layout = OciLayout(draft)
            with program.open("rb") as content:
                layer = layout.add_layer([LayerFile(place, content, 0o755)])
        config = {"architecture": "amd64", "os": "linux", "config": {"User": _USER, "Entrypoint": [place]}}
        return layout.write_image(config, [layer])

    def _write_python(self, service: str, draft: Path) -> str:
        config, layers = self._base
        layout, base = OciLayout(draft), OciLayout(self.images.of(self.base))
        for layer in layers:
            layout.take_layer(base, layer)
        added = [layout.add_layer(self._packages), layout.add_layer(source_files(self.project, service))]
        run = {name: value for name, value in config["config"].items() if name != "Cmd"}
        own = ("PYTHONPATH=/app:/app/packages", "PYTHONDONTWRITEBYTECODE=1")
        history = [{"created_by": f"sitectl bundle services: {what}"} for what in (LOCK, f"services/{service}")]
        return layout.write_image(
            {
                **config,
                "config": {
                    **run,
                    "Env": [*run["Env"], *own],
                    "User": _USER,
                    "Entrypoint": ["python3", "-m", f"services.{service}"],
                },
                "history": [*config.get("history", ()), *history],
            },
            [*layers, *added],
        )

    @cached_property
    def _base(self) -> tuple[dict[str, Any], list[Layer]]:
        """Configuration and layers of the base image, which is in the folder then."""
        self.note(f"base image: {self.base.tagged}")
        self.images.bring(self.base, self.crane, self.mirror)
        try:
            config, layers = OciLayout(self.images.of(self.base)).read_image()
            variables = dict(variable.split("=", 1) for variable in config["config"]["Env"])
        except (ValueError, KeyError, TypeError) as error:
            what = f"{self.base} is no image of one platform with Python"
            raise BundleError(what, got=str(error)[:80], fix=_BASE_FIX) from None
        version = variables.get("PYTHON_VERSION", "")
        if version.split(".")[:2] != PYTHON.split("."):
            raise BundleError(
                f"{self.base} has another Python",
                got=f"PYTHON_VERSION={version}" if version else "no PYTHON_VERSION in its environment",
                allowed=f"{PYTHON}, which the packages are for",
                fix=_BASE_FIX,
            )
        return config, layers

    @cached_property
    def _packages(self) -> list[LayerFile]:
        """Of all services, so that their images share a layer."""
        self.note(f"{LOCK}: downloading the packages of the services")
        with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
            return [*layer_files(service_wheels(self.project, Path(folder)), _PACKAGES)]


def source_files(project: Path, service: str) -> Iterator[LayerFile]:
    """The service with the modules that it imports of others, so that no change of another one changes its image."""
    root = project / _SOURCES
    # What alembic runs of all that have tables, which it finds by its path.
    folders = [service, *(("migrations",) if (root / service / "migrations").is_dir() else ())]
    new = [file for folder in folders for file in (root / folder).rglob("*")]
    new = [file for file in new if file.suffix in _KINDS and not file.name.startswith(".")]
    there = set[Path]()
    while new:
        file = new.pop()
        if file not in there:
            there.add(file)
            new += [] if file.suffix != ".py" else _imported(file, project)
    for file in sorted(there):
        yield LayerFile(f"{_APP}/{file.relative_to(project).as_posix()}", io.BytesIO(file.read_bytes()))


def _imported(file: Path, project: Path) -> Iterator[Path]:
    """Files of modules of `services` that a file imports, and of the packages that they are in."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for name in sorted(names):
        first, *rest = name.split(".")
        if first == _SOURCES:
            packages = [Path(_SOURCES, *rest[:count], "__init__.py") for count in range(len(rest) + 1)]
            for path in (*packages, Path(_SOURCES, *rest).with_suffix(".py")):
                if (project / path).is_file():
                    yield project / path
