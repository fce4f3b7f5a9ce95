"""A lock lists what an engine reads, in a form that people compare and `sha256sum` checks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from services.weights.failure import WeightsError
from services.weights.manifest import chosen, file_name, parse
from tests.unit.services.weights_rig import LARGE, REPOSITORY, REVISION, rig

pytestmark = pytest.mark.row("000.07")


def test_a_lock_is_read_as_it_was_written_and_sha256sum_checks_it(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        locked = site.lock()
        site.program().run()
        text = locked.text()
        assert parse(text, "lock") == locked
        assert text.splitlines()[0] == f"# {REPOSITORY} at {REVISION}"
        lock = tmp_path / file_name(REPOSITORY, REVISION)
        lock.write_text(text)
        check = ["sha256sum", "--check", "--strict", "--quiet", str(lock)]
        assert subprocess.run(check, cwd=site.folder, check=False).returncode == 0
        (site.folder / LARGE).write_bytes(b"")
        assert subprocess.run(check, cwd=site.folder, check=False, capture_output=True).returncode == 1


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (("# made-up/model at", "# made-up at"), 1),
        (("# 107 bytes", "107 bytes"), 4),
        (("  config.json", " config.json"), 5),
        (("  config.json", "  ../config.json"), 5),
        (("  config.json", "  /config.json"), 5),
        (("  config.json", "  .weights.json"), 5),
        (("  config.json", "  README.md"), 5),
    ],
)
def test_a_lock_that_was_edited_wrongly_names_the_line(tmp_path: Path, edit: tuple[str, str], line: int) -> None:
    with rig(tmp_path) as site:
        text = site.lock().text()
    assert edit[0] in text
    with pytest.raises(WeightsError, match=f"the-lock:{line}: not a line of a lock"):
        parse(text.replace(*edit), "the-lock")


@pytest.mark.parametrize(
    ("files", "read"),
    [
        (["a.safetensors", "b.bin", "config.json"], ["a.safetensors", "config.json"]),
        (
            ["pytorch_model.bin", "onnx/model.onnx", "1_Pooling/config.json"],
            ["1_Pooling/config.json", "pytorch_model.bin"],
        ),
        (["model-1.safetensors", "consolidated.safetensors"], ["model-1.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["consolidated.safetensors", "params.json"]),
        (["m.safetensors", "original/m.safetensors", "metal/model.bin", "m.gguf"], ["m.safetensors"]),
        (["2_Dense/model.safetensors", "model.safetensors"], ["2_Dense/model.safetensors", "model.safetensors"]),
        (["config.json", "modeling.py"], ["config.json", "modeling.py"]),
    ],
)
def test_of_weights_in_several_forms_the_one_that_the_engine_reads_is_chosen(files: list[str], read: list[str]) -> None:
    assert chosen(files) == read
