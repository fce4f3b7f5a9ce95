"""A container of vLLM's image: the engine on this machine's CPU, or the platform's own program in its Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from floor import gpu_nodes
from lab.cluster import services
from lab.paths import Lab
from lab.runner import images, launch
from lab.runner.lifecycle import ImageError
from lab.vllm_cpu import environment
from stacks.facts import versions

IMAGE = versions.load().images.vllm
PROGRAM = launch.program_of(IMAGE)
ENGINE = {"name": "engine", "image": IMAGE, "args": ["/models/weights", "--kv-cache-dtype=fp8", "--port=8000"]}
OWN = {"name": "weights", "image": IMAGE, "command": ["python3", "-m", "services.weights", "--quantization=x"]}
POD = {"metadata": {"name": "pod"}, "spec": {}}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """One that has a vLLM."""
    lab = Lab(home=tmp_path / "lab", cache=tmp_path / "cache")
    folder = lab.cache / f"vllm-cpu-{environment.VERSION}"
    folder.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /opt/python/bin\nversion = 3.11.7\n")
    (folder / "complete").touch()
    return lab


def test_an_engine_starts_without_what_needs_a_gpu() -> None:
    assert launch.command_line(ENGINE, PROGRAM, {}) == ["vllm", "serve", "/models/weights", "--port=8000"]
    assert launch.default_env(POD, ENGINE, PROGRAM)["OMP_NUM_THREADS"] == "1"


def test_a_program_of_the_platforms_starts_as_it_is() -> None:
    assert launch.command_line(OWN, PROGRAM, {}) == OWN["command"]
    assert "OMP_NUM_THREADS" not in launch.default_env(POD, OWN, PROGRAM)


def test_an_engine_finds_vllm_and_its_python_at_their_own_paths(lab: Lab) -> None:
    added = launch.added_files(PROGRAM, ENGINE, lab)
    folder = lab.cache / f"vllm-cpu-{environment.VERSION}"
    assert set(added.binds) == {
        (path, str(path)) for path in (folder, Path("/opt/python"), Path("/sys/devices/system"))
    }
    assert set(added.links) == {(f"{folder}/bin/vllm", "/usr/local/bin/vllm")}


def test_an_engine_without_a_vllm_waits_with_what_to_do(tmp_path: Path) -> None:
    lab = Lab(home=tmp_path / "lab", cache=tmp_path / "cache")
    with pytest.raises(ImageError, match=r"there is no vLLM 0\.32\.0 in .*: python -m lab\.vllm_cpu, with a network"):
        launch.added_files(PROGRAM, ENGINE, lab)
    assert launch.added_files(PROGRAM, OWN, lab) == images.HostFiles(binds=())


def test_the_class_that_replicas_run_in_is_there() -> None:
    assert services.runtime_class()["metadata"]["name"] == gpu_nodes.RUNTIME_CLASS
