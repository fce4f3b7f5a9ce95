"""What an image factory builds for the machines of sites: checked against its list, and made known to it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bundle.errors import BundleError
from floor.images import ImageReference
from talos.factory.client import ImageFactory
from talos.factory.extensions import check_extensions
from talos.factory.schematic import FactoryError, Schematic
from talos.factory.site import FactorySite

_INSTALLERS = "name a registry that has the installers already: --from HOST[:PORT]"
# Of a schematic, as text; --json has all.
_MOST_MACHINES = 8


@dataclass(frozen=True, kw_only=True)
class FactoryImage:
    """One schematic at the sites' version of Talos."""

    factory: str
    """Its address."""
    schematic: Schematic
    talos: str
    """Version, as `v1.13.9`."""
    nvswitch: bool
    """Whether machines of it have NVSwitches, which need the fabric manager."""
    secure_boot: bool = False
    """Whether its machines boot signed images."""
    installer: ImageReference
    """With the locked digest, if there is one."""
    machines: tuple[str, ...] = ()
    """That have it, sorted, as `berlin/hgx-1`."""

    @property
    def some_machines(self) -> str:
        """The first of them: a site may have hundreds."""
        more = len(self.machines) - _MOST_MACHINES
        return ", ".join(self.machines[:_MOST_MACHINES]) + (f" and {more} more" if more > 0 else "")


def make_known(
    images: Iterable[FactoryImage],
    note: Callable[[str], None],
    connect: Callable[[FactorySite], ImageFactory] = ImageFactory,
    *,
    instead: str = _INSTALLERS,
) -> None:
    """Have each factory know its schematics, so that it has their installers. It may know them already.

    instead: the way around the factory, for the fix of an error. Raises BundleError, also for extensions that the
    factory has not for this version, or that do not fit each other.
    """
    for image in images:
        note(f"  {image.factory}: schematic {image.schematic.id[:12]}... for Talos {image.talos}")
        try:
            with connect(FactorySite(image.factory)) as factory:
                official = factory.official_extensions(image.talos)
                check_extensions(image.schematic, official, talos_version=image.talos, nvswitch=image.nvswitch)
                factory.post_schematic(image.schematic)
        except FactoryError as error:
            raise BundleError(error.problem.what, fix=f"{error.problem.fix}; or {instead}") from None


def post_command(image: FactoryImage) -> str:
    """The line of a shell that makes the factory know the schematic."""
    # The command reads YAML, which JSON is too, on one line.
    schematic = json.dumps(image.schematic.document())
    return f"echo {shlex.quote(schematic)} | python -m talos factory post --factory {shlex.quote(image.factory)}"
