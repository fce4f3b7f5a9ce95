"""Boot media of a bundle: what the factory has for each schematic, fetched once, and again where it is spoiled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bundle.boot_media import Kind, bring_boot_media
from bundle.errors import BundleError
from bundle.schematics import FactoryImage
from floor.digests import sha256_of
from floor.images import image_reference
from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from talos.factory.schematic import Schematic

pytestmark = pytest.mark.row("opening 14")

SCHEMATICS = (Schematic(extensions=("siderolabs/iscsi-tools",)), Schematic(kernel_args=("iommu=pt",)))


@pytest.fixture
def factory() -> Iterator[ImageFactoryServer]:
    server = ImageFactoryServer(FactoryContent())
    yield server
    server.close()


def images(factory: ImageFactoryServer) -> list[FactoryImage]:
    return [
        FactoryImage(
            factory=factory.url,
            schematic=schematic,
            talos="v1.13.9",
            nvswitch=False,
            installer=image_reference(f"factory.example/metal-installer/{schematic.id}:v1.13.9"),
        )
        for schematic in SCHEMATICS
    ]


def bring(factory: ImageFactoryServer, kind: Kind, folder: Path) -> tuple[dict[str, str], list[str]]:
    """What is there then, and the addresses that were fetched."""
    reported = list[str]()
    digests = bring_boot_media(images(factory), kind, folder, reported.append)
    return digests, [line for line in reported if "/image/" in line]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("iso", ["metal-amd64.iso"]),
        ("pxe", ["kernel-amd64", "initramfs-amd64.xz", "cmdline-metal-amd64"]),
        ("none", []),
    ],
)
def test_each_schematic_has_its_files_with_a_sum_beside_each(
    factory: ImageFactoryServer, tmp_path: Path, kind: Kind, names: list[str]
) -> None:
    digests, _ = bring(factory, kind, tmp_path)
    paths = [f"{schematic.id}/v1.13.9/{name}" for schematic in SCHEMATICS for name in names]
    assert digests == {path: sha256_of(tmp_path / path) for path in paths}
    for path in paths:
        place = tmp_path / path
        assert place.read_text().startswith(f"{place.name} of schematic {place.parent.parent.name}")
        subprocess.run(["sha256sum", "--check", f"{place.name}.sha256"], cwd=place.parent, check=True)


@pytest.mark.parametrize(
    ("kind", "name"), [("iso", "metal-amd64-secureboot.iso"), ("pxe", "metal-amd64-secureboot-uki.efi")]
)
def test_media_of_machines_with_secure_boot_are_signed_ones(
    factory: ImageFactoryServer, tmp_path: Path, kind: Kind, name: str
) -> None:
    signed = [replace(image, secure_boot=True) for image in images(factory)]
    digests = bring_boot_media(signed, kind, tmp_path, lambda _: None)
    assert digests.keys() == {f"{schematic.id}/v1.13.9/{name}" for schematic in SCHEMATICS}


def test_what_is_whole_is_not_fetched_again_and_what_is_not_is(factory: ImageFactoryServer, tmp_path: Path) -> None:
    before, fetched = bring(factory, "iso", tmp_path)
    assert len(fetched) == 2
    first, second = (tmp_path / path for path in before)
    first.write_text("spoiled")
    second.with_name(f"{second.name}.sha256").unlink()
    (tmp_path / first.parent / ".pulled-x").mkdir()
    again, fetched = bring(factory, "iso", tmp_path)
    assert (again, len(fetched)) == (before, 2)
    factory.close()
    assert bring(factory, "iso", tmp_path) == (before, [])


def test_media_of_an_earlier_call_are_removed_and_no_other_file(factory: ImageFactoryServer, tmp_path: Path) -> None:
    """So that a bundle packed again has nothing that its inventory does not list."""
    own = {"rescue.iso", "rescue.iso.sha256"}
    for name in own:
        (tmp_path / name).write_text("an operator's")
    bring(factory, "iso", tmp_path)
    digests, _ = bring(factory, "pxe", tmp_path)
    there = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert there == own | {name for path in digests for name in (path, f"{path}.sha256")}
    assert bring(factory, "none", tmp_path) == ({}, [])
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == own


def test_what_the_factory_cannot_build_is_an_error_and_no_file(
    factory: ImageFactoryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FactoryContent, "medium", lambda *_: None)
    with pytest.raises(BundleError, match=r"metal-amd64\.iso cannot be fetched") as error:
        bring(factory, "iso", tmp_path)
    assert error.value.problem.got == "HTTP 404"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_extensions_that_the_factory_lacks_are_an_error_that_offers_no_registry(
    factory: ImageFactoryServer, tmp_path: Path
) -> None:
    """No registry has boot media."""
    unknown = replace(images(factory)[0], schematic=Schematic(extensions=("siderolabs/iscsi-tool",)))
    with pytest.raises(BundleError, match="the extensions do not fit") as error:
        bring_boot_media([unknown], "iso", tmp_path, lambda _: None)
    assert error.value.problem.fix.endswith("; or leave boot media out: --boot-media none")
