"""The emulated image factory, by the client that real factories get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from talos.factory.client import ImageFactory
from talos.factory.extensions import check_extensions
from talos.factory.schematic import FactoryError, Schematic
from talos.factory.site import FactorySite
from talos.hgx import HGXProfile


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[ImageFactoryServer]:
    server = ImageFactoryServer(FactoryContent(folder=tmp_path))
    yield server
    server.close()


def factory_site(factory: ImageFactoryServer) -> FactorySite:
    return FactorySite(base_url=factory.url)


def client(factory: ImageFactoryServer) -> ImageFactory:
    return ImageFactory(factory_site(factory), attempts=1)


# Vectors of the real factory.
KNOWN = [
    (b"customization: {}\n", "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
    (b"", "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
    (
        b"customization: {systemExtensions: {officialExtensions: "
        b"[siderolabs/iscsi-tools, siderolabs/util-linux-tools]}}",
        "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245",
    ),
    (
        b"customization: {extraKernelArgs: [noapic, nolapic]}",
        "9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), KNOWN)
def test_ids_are_the_real_factorys(factory: ImageFactoryServer, text: bytes, wanted: str) -> None:
    answer = httpx.post(f"{factory.url}/schematics", content=text)
    assert (answer.status_code, answer.json()["id"]) == (201, wanted)
    assert httpx.get(f"{factory.url}/schematics/{wanted}").status_code == 200


def test_the_order_of_extensions_is_kept(factory: ImageFactoryServer) -> None:
    names = b"[siderolabs/util-linux-tools, siderolabs/iscsi-tools]"
    text = b"customization: {systemExtensions: {officialExtensions: " + names + b"}}"
    assert httpx.post(f"{factory.url}/schematics", content=text).json()["id"] != KNOWN[2][1]


def test_our_client_posts_and_lists(factory: ImageFactoryServer) -> None:
    assert "v1.13.9" in httpx.get(f"{factory.url}/versions").json()
    schematic = Schematic(extensions=HGXProfile().extensions)
    with client(factory) as ours:
        assert ours.post_schematic(schematic) == schematic.id
        check_extensions(schematic, ours.official_extensions("v1.13.9"), talos_version="v1.13.9", nvswitch=True)
        with pytest.raises(FactoryError):
            ours.official_extensions("v1.12.0")


def test_unknown_fields_are_refused(factory: ImageFactoryServer) -> None:
    answer = httpx.post(f"{factory.url}/schematics", content=b"customization: {systemExtension: {}}")
    assert answer.status_code == 400
    assert "systemExtension" in answer.text


def test_an_extension_can_be_made_not_to_fit(tmp_path: Path) -> None:
    name = "siderolabs/nvidia-fabricmanager-production"
    server = ImageFactoryServer(FactoryContent(tags={name: "570.1.1"}))
    with client(server) as ours, pytest.raises(FactoryError, match=r"driver 570\.1\.1"):
        schematic = Schematic(extensions=HGXProfile().extensions)
        check_extensions(schematic, ours.official_extensions("v1.13.9"), talos_version="v1.13.9", nvswitch=True)
    server.close()


def test_installers_are_there_for_known_schematics_and_versions_alone(factory: ImageFactoryServer) -> None:
    known = Schematic(extensions=("siderolabs/iscsi-tools",))
    with client(factory) as ours:
        ours.post_schematic(known)
    answers = {
        tag: httpx.head(f"{factory.url}/v2/metal-installer/{schematic}/manifests/{tag}")
        for schematic, tag in ((known.id, "v1.13.9"), (known.id, "v1.0.0"), ("0" * 64, "v1.13.8"))
    }
    assert {tag: answer.status_code for tag, answer in answers.items()} == {
        "v1.13.9": 200,
        "v1.0.0": 404,
        "v1.13.8": 404,
    }
    digest = answers["v1.13.9"].headers["docker-content-digest"]
    assert httpx.get(f"{factory.url}/v2/metal-installer/{known.id}/manifests/{digest}").status_code == 200


def test_boot_media_are_there_for_known_schematics_and_versions_alone(factory: ImageFactoryServer) -> None:
    known = Schematic(extensions=("siderolabs/iscsi-tools",))
    with client(factory) as ours:
        ours.post_schematic(known)
    assets = factory_site(factory).assets(known.id, "v1.13.9")
    wanted = (assets.iso, assets.kernel, assets.initramfs, assets.command_line)
    assert len({httpx.get(address).text for address in wanted}) == 4
    for other in (factory_site(factory).assets(known.id, "v1.0.0"), factory_site(factory).assets("0" * 64, "v1.13.9")):
        assert httpx.get(other.iso).status_code == 404


def test_schematics_outlive_the_factory(factory: ImageFactoryServer, tmp_path: Path) -> None:
    schematic = Schematic(kernel_args=("a=b",))
    with client(factory) as ours:
        ours.post_schematic(schematic)
    assert schematic.id in FactoryContent(folder=tmp_path).schematics
