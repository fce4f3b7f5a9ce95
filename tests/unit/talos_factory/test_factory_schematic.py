"""A schematic's canonical form and id, against vectors of the image factory's own tests."""

from __future__ import annotations

import pytest

from talos.factory.schematic import FactoryError, MetaValue, Overlay, Schematic, SecureBoot

EMPTY = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

# siderolabs/image-factory v1.5.0, pkg/schematic/schematic_test.go; the extensions' one is of its documentation.
VECTORS = {
    EMPTY: Schematic(),
    "9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c": Schematic(kernel_args=("noapic", "nolapic")),
    "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245": Schematic(
        extensions=("siderolabs/util-linux-tools", "siderolabs/iscsi-tools")
    ),
    "d308a2a5ee2277bed5fbaa104fcbc8d59122abfa737df987a95b4ca763459a7f": Schematic(meta=(MetaValue(0x0A, "foo"),)),
    "fa8e05f142a851d3ee568eb0a8e5841eaf6b0ebc8df9a63df16ac5ed2c04f3e6": Schematic(
        secure_boot=SecureBoot(include_well_known_certificates=True)
    ),
    "92833e9ddd9bb9e11b2464fa5525429f01866306d52ebd882ee08d7918f6d1ea": Schematic(disk_sector_bytes=4096),
    "ee21ef4a5ef808a9b7484cc0dda0f25075021691c8c09a276591eedb638ea1f9": Schematic(
        overlay=Overlay(image="siderolabs/sbc-raspberrypi", name="rpi_generic")
    ),
}


@pytest.mark.parametrize(("expected", "schematic"), VECTORS.items(), ids=lambda value: str(value)[:8])
def test_the_id_is_the_factory_s(expected: str, schematic: Schematic) -> None:
    assert schematic.id == expected


def test_the_order_of_extensions_does_not_change_the_image() -> None:
    doubled = Schematic(extensions=("siderolabs/b", "siderolabs/a", "siderolabs/b"))
    assert doubled.id == Schematic(extensions=("siderolabs/a", "siderolabs/b")).id
    assert doubled.document()["customization"] == {
        "systemExtensions": {"officialExtensions": ["siderolabs/a", "siderolabs/b"]}
    }


def test_the_order_of_kernel_arguments_does() -> None:
    assert Schematic(kernel_args=("a=1", "a=2")).id != Schematic(kernel_args=("a=2", "a=1")).id


def test_all_fields_in_the_factory_s_order_and_indentation() -> None:
    schematic = Schematic(
        extensions=("siderolabs/iscsi-tools",),
        kernel_args=("iommu=pt", "console=ttyS0,115200n8", "yes", "# odd", "0x1f"),
        meta=(MetaValue(12, "a: b"), MetaValue(0, "one\ntwo\n")),
        bootloader="sd-boot",
        secure_boot=SecureBoot(enroll_keys="force", include_well_known_certificates=True),
        disk_sector_bytes=4096,
        embedded_config="machine:\n  type: worker\n",
        overlay=Overlay(image="i", name="n", options={"z": "1", "a": [True, 2]}),
        owner="ops",
    )
    # Written by Go's YAML library v4 from the same values.
    assert schematic.canonical().decode() == (
        "owner: ops\n"
        "overlay:\n"
        "    image: i\n"
        '    name: "n"\n'
        "    options:\n"
        "        a:\n"
        "            - true\n"
        "            - 2\n"
        '        z: "1"\n'
        "customization:\n"
        "    embeddedMachineConfiguration: |\n"
        "        machine:\n"
        "          type: worker\n"
        "    extraKernelArgs:\n"
        "        - iommu=pt\n"
        "        - console=ttyS0,115200n8\n"
        '        - "yes"\n'
        "        - '# odd'\n"
        '        - "0x1f"\n'
        "    meta:\n"
        "        - key: 12\n"
        "          value: 'a: b'\n"
        "        - key: 0\n"
        "          value: |\n"
        "            one\n"
        "            two\n"
        "    systemExtensions:\n"
        "        officialExtensions:\n"
        "            - siderolabs/iscsi-tools\n"
        "    bootloader: sd-boot\n"
        "    secureboot:\n"
        "        enrollKeys: force\n"
        "        includeWellKnownCertificates: true\n"
        "    diskImage:\n"
        "        sectorSize: 4096\n"
    )


def test_a_long_argument_stays_on_one_line() -> None:
    argument = "word " * 60 + "end"
    assert f"        - {argument}\n" in Schematic(kernel_args=(argument,)).canonical().decode()


def test_a_meta_key_is_a_byte() -> None:
    with pytest.raises(FactoryError, match="got 256, allowed 0 to 255"):
        MetaValue(256, "x")
