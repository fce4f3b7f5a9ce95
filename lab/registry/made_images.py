"""Images of the lab's own programs, in the place of those that their projects publish: an OCI layout of one layer.

The same program gives the same image, and so the same digest.
"""

from __future__ import annotations

import io
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bundle.oci_layout import LayerFile, OciLayout
from floor.images import image_reference
from lab.errors import LabError
from lab.install.toolchain import go_platform
from lab.runner.images import Program, find

DESCRIPTION = "org.opencontainers.image.description"
MADE = "made by the lab: its own build of the program, without anything else of the published image"
PYTHON_NOTE = "made by the lab: a note alone; the lab runs its own Python in the place of what is published"
NOTE = "made by the lab: a note alone; the lab runs nothing of what is published"
NOTE_PATH = "/usr/share/lab/README"
# Go's programs shrink to a third at any level; this one is the fastest.
_LEVEL = 1


def push_all(images: Iterable[str], registry: str, *, tools: Path) -> None:
    """Make each image and push it under its own path: docker.io/a/b:v goes to HOST:PORT/a/b:v.

    Raises LabError with what crane answers.
    """
    for image in images:
        with tempfile.TemporaryDirectory(prefix="made-image-") as folder:
            write_layout(Path(folder), find(image), tools)
            _push(Path(folder), image_reference(image).held_by(registry).tagged, tools)


def write_layout(folder: Path, program: Program | None, tools: Path) -> str:
    """An OCI layout with the program's image, or with a note where the lab has no such program; its digest."""
    layout = OciLayout(folder)
    run: dict[str, Any] = {}
    if program is not None:
        run = {"User": str(program.user), "Entrypoint": list(program.entrypoint), "Cmd": list(program.arguments)}
    if program is not None and program.tool:
        described = MADE
        with (tools / program.tool).open("rb") as content:
            layer = layout.add_layer([LayerFile(program.path, content, 0o755)], gzip_level=_LEVEL)
    else:
        described = PYTHON_NOTE if program else NOTE
        note = LayerFile(NOTE_PATH, io.BytesIO(f"{described}\n".encode()))
        layer = layout.add_layer([note], gzip_level=_LEVEL)
    system, architecture = go_platform().split("/")
    config = {"architecture": architecture, "os": system, "config": {**run, "Labels": {DESCRIPTION: described}}}
    return layout.write_image(config, [layer])


def _push(layout: Path, target: str, tools: Path) -> None:
    command = [str(tools / "crane"), "push", str(layout), target, "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"crane cannot push {target}: {done.stderr.strip()}", fix="start the registry, and push again")
