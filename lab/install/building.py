"""Builds one Go tool family into the store, and finds the cause of a failure in Go's output."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.errors import LabError
from lab.install.go_mods import required_version
from lab.install.parts import GoFamily, ModuleFolder
from lab.install.patching import patched_go_mod
from lab.install.running import last_lines, run_logged
from lab.install.store import StoreEntry, ToolStore, content_key, locked
from lab.install.toolchain import GoToolchain, go_environment
from lab.paths import Lab

_SHOWN_LINES = 12
# What go compiles is on the disk twice until its command ends: in the build cache, and in a temporary folder. So
# libraries are compiled in batches, those first that others import.
_BATCH = 400
_LIBRARIES = '{{if not (or .Standard (eq .Name "main"))}}{{.ImportPath}}{{end}}'
_MODULE_AT_VERSION = re.compile(r"([a-zA-Z0-9][\w.\-]*\.[a-z]+(?:/[\w.\-~]+)+)@(v[\w.\-+]+)")
# The Go proxy's own addresses name a module as HOST/PATH/@v/VERSION.zip.
_PROXY_ADDRESS = re.compile(r"https?://[^/\s\"]+/([^\s\"@]+)/@v/(v[^\s\"]+?)\.(?:zip|mod|info)")
_UNREACHABLE = re.compile(
    r"dial tcp|no such host|i/o timeout|connection refused|connection reset|network is unreachable|proxyconnect"
    r"|TLS handshake timeout|x509:|no route to host|module lookup disabled"
)
_REFUSED = re.compile(r"not available|404 Not Found|410 Gone|403 Forbidden|unknown revision|invalid version")
_SUMS = re.compile(r"missing go\.sum entry|SECURITY ERROR|checksum mismatch")
_FULL_DISK = re.compile(r"no space left on device|disk quota exceeded")


@dataclass(frozen=True)
class GoBuilder:
    """Builds with one toolchain and this lab's private Go caches."""

    lab: Lab
    toolchain: GoToolchain

    @property
    def store(self) -> ToolStore:
        return tool_store(self.lab)

    def key(self, family: GoFamily) -> str:
        """Everything that decides the family's bytes: pinned modules, own code, patches, flags, toolchain."""
        return content_key(
            [
                (family.folder / "go.mod").read_bytes(),
                (family.folder / "go.sum").read_bytes(),
                family.linker_flags,
                "CGO_ENABLED=0 -trimpath",
                *(f"{program.package}={program.name}" for program in family.programs),
                *family.scripts,
                *family.tags,
                *(source.read_bytes() for source in (*family.sources, *family.patches)),
                self.toolchain.stamp,
            ]
        )

    def obtain(self, family: GoFamily, *, verify: bool = False) -> StoreEntry:
        """The family's folder, with `bin/` in it; built when missing. Raises LabError with the log's last lines."""
        return self.store.obtain(
            family.name, self.key(family), lambda folder, lock: self._build(family, folder, lock), verify=verify
        )

    def _build(self, family: GoFamily, folder: Path, lock: int) -> None:
        self.toolchain.prepare(self.lab)
        binaries = folder / "bin"
        binaries.mkdir()
        log = self.lab.cache / "logs" / f"{family.name}.log"
        options = ["-trimpath", "-ldflags", family.linker_flags]
        if family.tags:
            options += ["-tags", ",".join(family.tags)]
        go = str(self.toolchain.program)
        run = partial(run_logged, log=log, inherit=lock, cwd=family.folder, environment=go_environment(self.lab))
        with (
            locked(go_cache_lock(self.lab), "the Go caches", shared=True),
            tempfile.TemporaryDirectory(prefix=f"{family.name}-") as work,
        ):
            if family.patches:
                source = self._module(family)
                changed = patched_go_mod(family.folder / "go.mod", family.module, source, family.patches, Path(work))
                options += ["-modfile", str(changed)]
            programs = [program.package for program in family.programs]
            status = run([go, "list", "-deps", "-f", _LIBRARIES, *options, *programs], label=f"{family.name}, list")
            # Lines with a space report downloads.
            libraries = [line for line in log.read_text().split("\n") if line and " " not in line]
            steps = [*_batches(libraries), ["-o", f"{binaries}/", *programs]]
            for number, step in enumerate(steps if status == 0 else (), 1):
                label = f"{family.name}, {number} of {len(steps)}"
                if (status := run([go, "build", "-v", *options, *step], label=label)) != 0:
                    break
        if status != 0:
            raise build_error(family.name, family.name, log)
        for program in family.programs:
            if program.produced != program.name:
                (binaries / program.produced).rename(binaries / program.name)
        if family.scripts:
            source = self._module(family)
            for script in family.scripts:
                target = binaries / Path(script).name
                shutil.copyfile(source / script, target)
                target.chmod(0o755)

    def _module(self, family: GoFamily) -> Path:
        wanted = ModuleFolder(family=family.name, module=family.module, path=".", tools=family.tools)
        return module_folder(self, wanted, family.name)


def _batches(libraries: list[str]) -> list[list[str]]:
    """Nothing where the programs' own command compiles few enough of them."""
    starts = range(0, len(libraries), _BATCH) if len(libraries) > _BATCH else ()
    return [libraries[start : start + _BATCH] for start in starts]


def tool_store(lab: Lab) -> ToolStore:
    return ToolStore(lab.cache / "tools")


def go_cache_lock(lab: Lab) -> Path:
    """Shared by builds, held alone by the process that drops the caches."""
    return lab.cache / ".lock-go"


def module_folder(builder: GoBuilder, wanted: ModuleFolder, part: str) -> Path:
    """A pinned module's folder in the module cache, downloaded and checked against go.sum when it is not there.

    `part` is named in errors, as the one that asks for it.
    """
    builder.toolchain.prepare(builder.lab)
    answer = subprocess.run(
        [builder.toolchain.program, "mod", "download", "-json", wanted.module],
        cwd=wanted.tools / wanted.family,
        env=go_environment(builder.lab),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        log = builder.lab.cache / "logs" / f"{wanted.family}-download.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(answer.stdout + answer.stderr)
        version = required_version(wanted.tools / wanted.family / "go.mod", wanted.module)
        raise build_error(part, wanted.family, log, default=(wanted.module, version))
    return Path(json.loads(answer.stdout)["Dir"]) / wanted.path


def build_error(part: str, family: str, log: Path, default: tuple[str, str] | None = None) -> LabError:
    """What a failed go command means for the user, out of its log; `default` is the module when the log names none."""
    tail = last_lines(log, _SHOWN_LINES)
    text = "\n".join(tail)
    shown = "".join(f"\n    | {line[:300]}" for line in tail)
    named = _MODULE_AT_VERSION.search(text) or _PROXY_ADDRESS.search(text)
    module = " ".join(named.groups() if named else default or ("a module of", f"tools/{family}"))
    if _FULL_DISK.search(text):
        what = "the disk is full"
        fix = "free about 8 GB for a first build (--drop-go-cache removes most of it afterwards)"
    elif _REFUSED.search(text):
        what = f"the module proxy refuses {module}"
        fix = f"set GOPROXY to a proxy that serves it, or pin a version that is served in tools/{family}/go.mod"
    elif _UNREACHABLE.search(text):
        what = f"{module} could not be fetched, the module proxy cannot be reached"
        fix = "connect to the network or set GOPROXY (and HTTPS_PROXY) and install again: it goes on where it stopped"
    elif _SUMS.search(text):
        what = f"{module} does not match tools/{family}/go.sum"
        fix = f"restore tools/{family}/go.sum, or after a wanted change run `go mod tidy` in tools/{family}"
    else:
        what = "go failed"
        fix = "correct what go's last lines show"
    return LabError(f"part {part}: {what}{shown}", fix=f"{fix}; the whole output is in {log}")
