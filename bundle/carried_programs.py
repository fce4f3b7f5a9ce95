"""Programs of the machine behind the wall: those that run on this one, with the plugins of the locked packages."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bundle.errors import BundleError
from bundle.fetching import DRAFT
from bundle.inventory import PackedProgram
from bundle.plugins import Plugin
from bundle.programs import FetchingProgram
from floor.digests import sha256_of
from floor.problems import shown

_ASKED = {"pulumi": ("version",), "helm": ("version", "--template", "{{.Version}}"), "crane": ("version",)}
"""How each program states its version."""
_HOST = "pulumi-language-python"
_BESIDE_HOST = ("pulumi-language-python-exec", "pulumi-analyzer-policy-python", "pulumi-resource-pulumi-python")
"""What the host of Python programs calls, where its release has them as files."""
_ANSWER_S = 60.0
_FIX = "put them on PATH, or leave all out, where the machine behind the wall has them: --without-programs"


@dataclass(frozen=True, kw_only=True)
class OwnPrograms:
    """Programs on this machine: commands on PATH, or their paths."""

    pulumi: str
    helm: str
    crane: str
    plugins: Path
    """Pulumi's folder of plugins."""

    def bring(self, plugins: Sequence[Plugin], folder: Path, note: Callable[[str], None]) -> dict[str, PackedProgram]:
        """Copy them into the folder, which then has nothing else. Raises BundleError with all that are not here."""
        files_of = {name: self._files(name) for name in _ASKED} | {
            plugin.key: self._plugin(plugin) for plugin in plugins
        }
        lacking = [f"no {name}" for name in _ASKED if not files_of[name]]
        if files_of["pulumi"] and f"bin/{_HOST}" not in files_of["pulumi"]:
            lacking.append(f"no {_HOST} beside pulumi")
        absent = [plugin for plugin in plugins if not files_of[plugin.key]]
        lacking += [f"no {plugin.key} {plugin.version} in {self.plugins}" for plugin in absent]
        if lacking:
            installs = [f"pulumi plugin install resource {plugin.name} v{plugin.version}" for plugin in absent]
            fix = "; ".join([*installs, _FIX])
            raise BundleError(f"programs of the bundle are not on this machine: {', '.join(lacking)}", fix=fix)
        versions = {name: self._version(name) for name in _ASKED} | {
            plugin.key: f"v{plugin.version}" for plugin in plugins
        }
        programs = {}
        folder.parent.mkdir(parents=True, exist_ok=True)
        # What is copied may be what an earlier call brought.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=DRAFT) as drafts:
            draft = Path(drafts) / folder.name
            for name, files in files_of.items():
                note(f"{folder.name}: {name} {versions[name]}")
                digests = {path: _copied(file, draft / path) for path, file in files.items()}
                programs[name] = _program(name, versions[name], digests)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
        return programs

    def _files(self, name: str) -> dict[str, Path]:
        """Where each goes, and where it is; empty for a program that is not here."""
        command = shutil.which(getattr(self, name))
        if command is None:
            return {}
        files = {f"bin/{name}": Path(command)}
        for beside in (_HOST, *_BESIDE_HOST) if name == "pulumi" else ():
            # Beside the command, or beside what it is a link to.
            folders = [str(Path(command).parent), str(Path(command).resolve().parent)]
            if there := next(filter(None, (shutil.which(beside, path=folder) for folder in folders)), None):
                files[f"bin/{beside}"] = Path(there)
        return files

    def _plugin(self, plugin: Plugin) -> dict[str, Path]:
        folder = self.plugins / plugin.folder
        if shutil.which(plugin.program, path=str(folder)) is None:
            return {}
        return {f"plugins/{plugin.folder}/{path}": folder / path for path in _paths(folder)}

    def _version(self, name: str) -> str:
        program = FetchingProgram(command=getattr(self, name), folder=Path.cwd(), install=_FIX)
        failed = f"{name} states no version"
        printed = program.run(_ASKED[name], what=name, failed=failed, fix=_FIX, limit_s=_ANSWER_S).split()
        if not printed:
            raise BundleError(failed, fix=_FIX)
        return printed[0]


def _program(name: str, version: str, digests: dict[str, str]) -> PackedProgram:
    try:
        return PackedProgram(version=version, files=digests)
    except ValidationError as error:
        wrong = shown(error.errors()[0]["input"])
        raise BundleError(f"{name}: a version or file name that is none", got=wrong, fix=_FIX) from None


def _paths(folder: Path) -> Iterator[str]:
    """Files below the folder, sorted, but for hidden ones."""
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in path.parts):
            yield str(path)


def _copied(file: Path, target: Path) -> str:
    """sha256 in hex of the copy, which has the mode of the file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)
    return sha256_of(target)
