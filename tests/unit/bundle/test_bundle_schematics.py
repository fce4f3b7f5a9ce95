"""Image factories get to know the schematics of sites before their installers are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from bundle.errors import BundleError
from bundle.schematics import FactoryImage, make_known
from floor.images import image_reference
from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from talos.factory.client import ImageFactory
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile

pytestmark = pytest.mark.row("opening 14")

PLANE, HGX = Schematic(extensions=("siderolabs/iscsi-tools",)), Schematic(extensions=HGXProfile().extensions)


@pytest.fixture
def factory() -> Iterator[ImageFactoryServer]:
    server = ImageFactoryServer(FactoryContent())
    yield server
    server.close()


def image(factory: str, schematic: Schematic) -> FactoryImage:
    installer = image_reference(f"factory.example/metal-installer/{schematic.id}:v1.13.9")
    return FactoryImage(
        factory=factory, schematic=schematic, talos="v1.13.9", nvswitch=schematic is HGX, installer=installer
    )


def test_a_factory_knows_each_schematic_then_and_the_progress_names_them(factory: ImageFactoryServer) -> None:
    reported = list[str]()
    for _ in range(2):
        make_known([image(factory.url, PLANE), image(factory.url, HGX)], reported.append)
    assert {PLANE.id, HGX.id} <= factory.content.schematics.keys()
    assert reported[:2] == [
        f"  {factory.url}: schematic {schematic.id[:12]}... for Talos v1.13.9" for schematic in (PLANE, HGX)
    ]


def test_of_many_machines_the_first_eight_are_named() -> None:
    names = tuple(f"berlin/hgx-{number}" for number in range(1, 10))
    known = image("https://factory.example", HGX)
    assert replace(known, machines=names[:8]).some_machines == ", ".join(names[:8])
    assert replace(known, machines=names).some_machines == f"{', '.join(names[:8])} and 1 more"


def test_extensions_that_do_not_fit_are_refused_and_not_posted(factory: ImageFactoryServer) -> None:
    unknown, no_manager = Schematic(extensions=("siderolabs/iscsi-tool",)), Schematic(extensions=HGX.extensions[:1])
    with pytest.raises(BundleError, match=r"did you mean siderolabs/iscsi-tools\?"):
        make_known([image(factory.url, unknown)], lambda _: None)
    switched = FactoryImage(**{**vars(image(factory.url, no_manager)), "nvswitch": True})
    with pytest.raises(BundleError, match="the extensions do not fit"):
        make_known([switched], lambda _: None)
    assert not {unknown.id, no_manager.id} & factory.content.schematics.keys()


def test_a_factory_that_is_away_is_an_error_with_the_way_out(factory: ImageFactoryServer) -> None:
    factory.close()
    with pytest.raises(BundleError, match=f"{factory.url}.*: no answer") as error:
        make_known([image(factory.url, PLANE)], lambda _: None, partial(ImageFactory, attempts=1))
    assert "--from HOST[:PORT]" in error.value.problem.fix
