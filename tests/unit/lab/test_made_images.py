"""Images that the lab makes of its programs, as files; tests/lab/test_mirror.py has them in a registry."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab.registry import made_images
from lab.registry.made_images import DESCRIPTION, MADE, NOTE, PYTHON_NOTE, write_layout
from lab.runner.images import TABLE, Program


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A program that is no program."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "kubectl").write_bytes(os.urandom(100_000))
    return folder


def blob(layout: Path, digest: str) -> bytes:
    data = (layout / "blobs" / digest.replace(":", "/")).read_bytes()
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == digest
    return data


def parts(layout: Path) -> tuple[Any, Any, Path]:
    """Manifest, config, and the file of the only layer."""
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(layout, entry["digest"]))
    (layer,) = manifest["layers"]
    assert len(blob(layout, layer["digest"])) == layer["size"]
    return (
        manifest,
        json.loads(blob(layout, manifest["config"]["digest"])),
        layout / "blobs" / layer["digest"].replace(":", "/"),
    )


def test_an_image_has_the_program_at_its_path_and_says_who_made_it(tools: Path, tmp_path: Path) -> None:
    program = TABLE["registry.k8s.io/kubectl"]
    digest = write_layout(tmp_path / "one", program, tools)
    _, config, layer = parts(tmp_path / "one")
    with tarfile.open(layer) as files:
        (entry,) = [member for member in files if member.isfile()]
        assert (entry.name, entry.mode) == ("bin/kubectl", 0o755)
        content = files.extractfile(entry)
        assert content is not None
        assert content.read() == (tools / "kubectl").read_bytes()
    assert config["config"]["Labels"] == {DESCRIPTION: MADE}
    assert config["config"]["Entrypoint"] == ["/bin/kubectl"]
    # The same again has the same digest, whenever it is made.
    assert write_layout(tmp_path / "two", program, tools) == digest


@pytest.mark.parametrize(
    ("program", "note"), [(TABLE["docker.io/vllm/vllm-openai"], PYTHON_NOTE), (None, NOTE)], ids=["python", "nothing"]
)
def test_an_image_of_no_program_of_the_lab_is_a_note(
    tools: Path, tmp_path: Path, program: Program | None, note: str
) -> None:
    write_layout(tmp_path / "one", program, tools)
    _, config, layer = parts(tmp_path / "one")
    with tarfile.open(layer) as files:
        assert [member.name for member in files if member.isfile()] == [made_images.NOTE_PATH.lstrip("/")]
    assert config["config"]["Labels"] == {DESCRIPTION: note}
