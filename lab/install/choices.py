"""Which Pulumi engine and which provider plugins the lab uses: official ones if they are installed, else ours."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.errors import LabError
from lab.install.building import tool_store
from lab.paths import CHECKOUT, Lab

STAND_INS = CHECKOUT / "lab" / "plugins" / "bin"
_LANGUAGE_HOST = "pulumi-language-python"
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class PulumiChoice:
    """The engine that the lab's sessions run; `official` when it is the machine's own and nothing is built."""

    program: Path
    official: bool
    reason: str


@dataclass(frozen=True)
class PluginChoice:
    """The executable that serves a provider; `path` need not exist yet for a stand-in."""

    name: str
    kind: Literal["official", "stand-in"]
    path: Path
    reason: str


def pulumi_choice(lab: Lab, environment: Mapping[str, str] = os.environ) -> PulumiChoice:
    """An official `pulumi` on PATH with its own language host, no older than our SDK; else the one in `lab.bin`."""
    wanted = _numbers(_sdk_version("pulumi"))
    passed_over = []
    for folder in _foreign_folders(lab, environment):
        program, host = folder / "pulumi", folder / _LANGUAGE_HOST
        if not _executable(program):
            continue
        version = _engine_version(program, environment)
        shown = ".".join(map(str, version)) if version else "no version"
        if version is None or version[0] != wanted[0] or version[1] < wanted[1]:
            minimum = f"{wanted[0]}.{wanted[1]}"
            passed_over.append(f"{program} says {shown}, the SDK needs {minimum} or a later {wanted[0]}.x")
        elif not _executable(host):
            passed_over.append(f"{program} {shown} has no {_LANGUAGE_HOST} beside it")
        else:
            return PulumiChoice(program, official=True, reason=f"official {program} {shown}")
    reason = f"built from its Go module: {'; '.join(passed_over) or 'no official pulumi on PATH'}"
    return PulumiChoice(lab.bin / "pulumi", official=False, reason=reason)


def plugin_choice(name: str, environment: Mapping[str, str] = os.environ) -> PluginChoice:
    """The provider plugin for `kubernetes` or `command`: the installed official one of our SDK's version, or ours."""
    version = _sdk_version(f"pulumi-{name}")
    executable = f"pulumi-resource-{name}"
    home = Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi")
    official = home / "plugins" / f"resource-{name}-v{version}" / executable
    if _executable(official):
        return PluginChoice(name, "official", official, f"official plugin v{version} is installed")
    reason = (
        f"stand-in: no official plugin v{version} in {home / 'plugins'} "
        f"(where it can be downloaded: pulumi plugin install resource {name} v{version})"
    )
    return PluginChoice(name, "stand-in", STAND_INS / executable, reason)


def _sdk_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as missing:
        raise LabError(
            f"the Python package {package} is not installed here, so the version to go with it is unknown",
            fix="install the project's packages into this Python: pip install -r requirements.lock",
        ) from missing


def _foreign_folders(lab: Lab, environment: Mapping[str, str]) -> Iterator[Path]:
    """The folders of PATH, less those whose `pulumi` is one that we built."""
    ours = tool_store(lab).root.resolve()
    for entry in environment.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        if entry and folder.resolve() != lab.bin.resolve() and not (folder / "pulumi").resolve().is_relative_to(ours):
            yield folder


def _executable(path: Path) -> bool:
    # In this order: what is in a folder that this user cannot enter is no file that can be asked for.
    return os.access(path, os.X_OK) and path.is_file()


def _numbers(text: str) -> tuple[int, int, int]:
    match = _VERSION.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no version")
    return int(match.group(1)), int(match.group(2)), int(match.group(3))


def _engine_version(program: Path, environment: Mapping[str, str]) -> tuple[int, int, int] | None:
    try:
        answer = subprocess.run(
            [program, "version"],
            env={**environment, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return _numbers(answer.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
