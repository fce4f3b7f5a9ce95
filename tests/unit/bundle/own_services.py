"""A checkout with small services, a Go that compiles nothing, an index of packages, and a base image, all made up."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bundle.crane import Crane
from bundle.image_folder import ImageFolder
from bundle.oci_layout import LayerFile, OciLayout
from bundle.service_images import ServiceImages
from bundle.supplies import BUILT
from floor.digests import sha256_of
from floor.images import ImageReference, image_reference
from stacks.facts.own_images import UNBUILT

BASE = image_reference("docker.io/library/python:3.11.14-slim-trixie")
BASE_ENV = ("PATH=/usr/local/bin:/usr/bin", "PYTHON_VERSION=3.11.9")
SOURCES = {
    "__init__.py": "",
    "failure.py": "",
    "unused.py": "",
    "migrations/env.py": "",
    "ledger/__init__.py": "",
    "ledger/__main__.py": "from services import failure\nimport services.ledger.rows\n",
    "ledger/rows.py": "",
    "ledger/months.py": "",
    "ledger/migrations/versions/0001_rows.py": "",
    "portal/__init__.py": "",
    "portal/__main__.py": "from services.ledger.months import Month\n",
    "portal/templates/base.html.j2": "<html>",
    "gatekeeper/main.go": "package main\n",
}
# What a checkout may have beside them.
OTHERS = {
    "services/ledger/.env": "PASSWORD=secret",
    "services/ledger/token.key": "secret",
    "services/ledger/__pycache__/rows.cpython-311.pyc": "compiled",
    "tests/test_rows.py": "",
    ".git/config": "",
}
# It writes what it was given; `-o` is the last option but one.
_GO = """#!/bin/sh
env | grep -E '^(CGO_|GO)' | sort > "$0.asked"
while [ "$1" != -o ]; do printf '%s\\n' "$1" >> "$0.asked"; shift; done
cat main.go > "$2"
"""


@dataclass(frozen=True)
class OwnServices:
    """The checkout, and what builds out of it."""

    project: Path
    images: ServiceImages

    @classmethod
    def in_folder(cls, folder: Path) -> OwnServices:
        """With an index beside the checkout, of packages that need each other."""
        project = folder / "checkout"
        for path, text in {**{f"services/{path}": text for path, text in SOURCES.items()}, **OTHERS}.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        go = folder / "go"
        go.write_text(_GO)
        go.chmod(0o755)
        (project / "pyproject.toml").write_text('[project.optional-dependencies]\nservices = ["server[fast]~=1.0"]\n')
        wheels = [
            wheel(
                folder,
                "server",
                {"server/__init__.py": "", "server-1.0.data/scripts/server": "#!/home/me/python\n"},
                'loops; extra == "fast"',
                'slow; extra == "slow"',
                'windows; sys_platform == "win32"',
                'backport; python_version < "3.12"',
            ),
            wheel(folder, "loops", {"loops-1.0.data/platlib/loops.py": ""}, "server"),
            wheel(folder, "backport", {"backport.py": ""}),
            wheel(folder, "unneeded", {"unneeded.py": ""}),
        ]
        locked = [f"{file.name.partition('-')[0]}==1.0 \\\n    --hash=sha256:{sha256_of(file)}\n" for file in wheels]
        (project / "requirements.lock").write_text("".join(locked))
        images = ServiceImages(
            project=project,
            go=str(go),
            go_version="1.26.8",
            base=put_base(project, BASE_ENV),
            crane=Crane("/no/such/crane"),
            mirror=None,
            note=lambda _: None,
        )
        return cls(project, images)

    def build(self, service: str) -> str:
        """Its image's digest."""
        return self.images.build(service, own_image(service)).digest

    def layout(self, service: str) -> OciLayout:
        return OciLayout(self.images.images.of(own_image(service)))

    def files(self, service: str) -> list[dict[str, int]]:
        """Mode of each file by its path, of each layer."""
        return [files_of(self.layout(service), index) for index in range(len(self.layout(service).read_image()[1]))]


def own_image(service: str) -> ImageReference:
    return image_reference(f"{UNBUILT}{service}:0.1.0")


def put_base(project: Path, variables: tuple[str, ...] | None) -> ImageReference:
    """An image with these variables in the checkout's folder, as if it had been pulled."""

    def write(draft: Path) -> str:
        layout = OciLayout(draft)
        layer = layout.add_layer([LayerFile("etc/base", io.BytesIO(b"base"))], gzip_level=1)
        run = {"Cmd": ["python3"]} | ({} if variables is None else {"Env": [*variables]})
        return layout.write_image({"architecture": "amd64", "os": "linux", "config": run}, [layer])

    return ImageFolder(project / BUILT).write(BASE, write)


def wheel(folder: Path, name: str, files: Mapping[str, str], *required: str) -> Path:
    """A package of version 1.0, whose files are as new as they are."""
    file, info = folder / "index" / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    file.parent.mkdir(exist_ok=True)
    needs = "".join(f"Requires-Dist: {text}\n" for text in required)
    extras = "Provides-Extra: fast\nProvides-Extra: slow\n"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{extras}{needs}"
        archive.writestr(zipfile.ZipInfo(f"{info}/METADATA"), metadata)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(zipfile.ZipInfo(f"{info}/WHEEL"), tag)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "")
    return file


def files_of(layout: OciLayout, index: int) -> dict[str, int]:
    """Mode of each file of a layer by its path; checks that no entry has a time or an owner."""
    layer = layout.read_image()[1][index]
    with tarfile.open(layout.blob(layer.descriptor["digest"])) as archive:
        entries = [*archive]
    assert {(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries} == {(0, 0, 0, "")}
    return {entry.name: entry.mode for entry in entries if not entry.isdir()}


def starts(service: str) -> list[list[str]]:
    """Arguments of Python by which each program of a service shows its options, and finds its migrations."""
    programs = [["serve"], ["ship"]] if service == "ledger" else [[]]
    shown = [["-m", f"services.{service}", *words, "--help"] for words in programs]
    migrations = (
        "from alembic.script import ScriptDirectory; from services import database; "
        f"from services.{service}.tables import KEPT; assert (database._SCRIPTS / 'env.py').is_file(); "
        "print(ScriptDirectory(str(database._SCRIPTS), version_locations=[str(KEPT.migrations)]).get_heads())"
    )
    return [*shown, *([["-c", migrations]] if service in ("directory", "ledger") else [])]
