"""Whether the extensions of a schematic exist for a Talos version and fit each other, by the factory's own list."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from talos.factory.schematic import FactoryError, Schematic

# The three packages of NVIDIA's stack; each comes as several forks (lts, production), and one fork must serve all.
KERNEL_MODULES = ("nvidia-open-gpu-kernel-modules", "nonfree-kmod-nvidia")
TOOLKIT = "nvidia-container-toolkit"
FABRIC_MANAGER = "nvidia-fabricmanager"
_STACK = re.compile(rf"^siderolabs/({'|'.join((*KERNEL_MODULES, TOOLKIT, FABRIC_MANAGER))})(?:-([a-z]+))?$")


class ExtensionError(FactoryError):
    """Extensions that are missing or do not fit each other; `problems` has one line for each."""

    def __init__(self, talos_version: str, problems: tuple[str, ...]) -> None:
        head = f"the extensions do not fit Talos {talos_version}:"
        super().__init__("\n  - ".join((head, *problems)), fix="change the schematic's extensions as each line states")
        self.problems = problems


@dataclass(frozen=True)
class Extension:
    """One official extension: its name in a schematic (`siderolabs/...`), image reference and digest."""

    name: str
    ref: str
    digest: str = ""

    @property
    def version(self) -> str:
        """The image's tag."""
        return self.ref.rpartition(":")[2]

    @property
    def driver_version(self) -> str:
        """NVIDIA's driver version: the tag of a package of its stack begins with it."""
        return self.version.removeprefix("v").partition("-")[0]


@dataclass(frozen=True)
class _Part:
    name: str
    package: str
    fork: str
    driver: str


def parse_extensions(text: str | bytes, *, source: str) -> tuple[Extension, ...]:
    """Read the factory's answer to `/version/VERSION/extensions/official`, fresh or saved in a file.

    `source` names it in errors. Raises FactoryError for anything that is not such a list, or an empty one.
    """
    fix = "save the answer of FACTORY/version/VERSION/extensions/official unchanged"
    try:
        entries = json.loads(text)
        extensions = tuple(Extension(entry["name"], entry["ref"], entry.get("digest", "")) for entry in entries)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FactoryError(f"{source} is no list of official extensions ({type(error).__name__})", fix=fix) from None
    if not extensions:
        raise FactoryError(f"{source} lists no extension", fix="check the Talos version, and that the factory has it")
    return extensions


def check_extensions(
    schematic: Schematic, official: Iterable[Extension], *, talos_version: str, nvswitch: bool = False
) -> None:
    """Raise ExtensionError unless every extension exists for this version and NVIDIA's packages are one stack.

    `nvswitch` is for machines whose GPUs hang on NVSwitches (HGX): there the fabric manager must be part of the stack.
    Needs no network: `official` may come from a saved list.
    """
    known = {extension.name: extension for extension in official}
    stack = _stack_problems(schematic.extensions, known, nvswitch=nvswitch)
    problems = (*_missing(schematic.extensions, known), *stack)
    if problems:
        raise ExtensionError(talos_version, problems)


def _missing(names: Iterable[str], known: dict[str, Extension]) -> Iterator[str]:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            yield f"{name} does not exist for this version" + (f"; did you mean {near[0]}?" if near else "; remove it")


def _stack_problems(names: Iterable[str], known: dict[str, Extension], *, nvswitch: bool) -> Iterator[str]:
    parts = [
        _Part(name, match[1], match[2] or "", known[name].driver_version if name in known else "")
        for name in names
        if (match := _STACK.match(name))
    ]
    if not parts and not nvswitch:
        return
    modules = [part for part in parts if part.package in KERNEL_MODULES]
    others = {part.package: part for part in parts if part.package not in KERNEL_MODULES}
    fork = modules[0].fork if modules else next(iter(others.values())).fork if others else "lts"
    if not modules:
        choices = " or ".join(f"siderolabs/{package}-{fork}" for package in KERNEL_MODULES)
        yield f"no NVIDIA kernel modules; add {choices}"
    if len(modules) > 1:
        yield f"more than one set of NVIDIA kernel modules: {', '.join(part.name for part in modules)}; keep one"
    for package in (TOOLKIT, *((FABRIC_MANAGER,) if nvswitch else ())):
        if package not in others:
            yield f"{package} is missing; add siderolabs/{package}-{fork}"
    for package in (TOOLKIT, FABRIC_MANAGER):
        if sum(part.package == package for part in parts) > 1:
            yield f"more than one {package}; keep siderolabs/{package}-{fork}"
    if not modules:
        return
    for part in parts:
        if part.fork != modules[0].fork:
            yield f"{part.name} is another fork than {modules[0].name}; take siderolabs/{part.package}-{fork}"
        elif part.driver and modules[0].driver and part.driver != modules[0].driver:
            yield (
                f"{part.name} is for driver {part.driver}, {modules[0].name} is driver {modules[0].driver}; "
                "take a Talos version whose list has one driver for both, or the other fork"
            )
