"""`factory ...`: schematics and the images that an image factory makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import click
import yaml

from talos.cli import inputs
from talos.cli.failures import InputError
from talos.cli.options import TalosGroup
from talos.factory.client import ImageFactory
from talos.factory.extensions import check_extensions, parse_extensions
from talos.factory.schematic import FactoryError, MetaValue, Schematic, SecureBoot
from talos.factory.site import FactorySite, checked_version

DESCRIPTION = """\
What an image factory builds into a Talos image is a schematic: a YAML file, given by --schematic or stdin.

  customization:
    extraKernelArgs: [iommu=pt]
    systemExtensions:
      officialExtensions: [siderolabs/iscsi-tools, siderolabs/util-linux-tools]

Its id is computed here, without the factory; extensions are sorted first, since their order means nothing. A schematic
is public to all who know its id: it holds no secrets."""

_KEYS = {
    "": {"owner", "customization"},
    "customization": {
        "extraKernelArgs",
        "meta",
        "systemExtensions",
        "bootloader",
        "secureboot",
        "diskImage",
        "embeddedMachineConfiguration",
    },
    "customization.systemExtensions": {"officialExtensions"},
    "customization.secureboot": {"enrollKeys", "includeWellKnownCertificates"},
    "customization.diskImage": {"sectorSize"},
}


@click.group(cls=TalosGroup, help=DESCRIPTION)
def command() -> None:
    pass


def _of_schematic(action: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Gives a subcommand a schematic and a factory; prints its result, one JSON object."""

    @click.option("--schematic", default="-", metavar="FILE", help="the schematic (stdin)")
    @click.option("--factory", default=FactorySite().base_url, metavar="URL", help=FactorySite().base_url)
    @functools.wraps(action)
    def answer(schematic: str, factory: str, **options: Any) -> int:
        read = schematic_of(inputs.text_of(schematic, "schematic"))
        try:
            FactorySite(factory)
            if "talos_version" in options:
                checked_version(options["talos_version"])
        except FactoryError as error:
            raise InputError(error.problem.what, fix=error.problem.fix) from None
        inputs.print_result(action(read, factory, **options))
        return 0

    return answer


_VERSION = click.option("--talos-version", required=True, metavar="VERSION", help="like v1.13.9")


def schematic_of(text: str) -> Schematic:
    """A schematic from its YAML; InputError for anything that is not one, or has keys that are unknown here."""
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError:
        raise InputError("schematic: no readable YAML", fix="see `python -m talos factory --help`") from None
    for path, known in _KEYS.items():
        if unknown := set(_part(document, path)) - known:
            where = f"{path}." if path else ""
            raise InputError(
                f"schematic: got {where}{min(map(str, unknown))}, allowed {', '.join(sorted(known))}",
                fix="remove it, or correct its spelling",
            )
    custom, secure_boot = _part(document, "customization"), _part(document, "customization.secureboot")
    try:
        return Schematic(
            owner=document.get("owner", ""),
            extensions=tuple(_part(document, "customization.systemExtensions").get("officialExtensions", ())),
            kernel_args=tuple(custom.get("extraKernelArgs", ())),
            meta=tuple(MetaValue(entry["key"], entry["value"]) for entry in custom.get("meta", ())),
            bootloader=custom.get("bootloader", "auto"),
            secure_boot=SecureBoot(
                secure_boot.get("enrollKeys"), secure_boot.get("includeWellKnownCertificates", False)
            ),
            disk_sector_bytes=_part(document, "customization.diskImage").get("sectorSize", 0),
            embedded_config=custom.get("embeddedMachineConfiguration", ""),
        )
    except (TypeError, KeyError) as error:
        raise InputError(
            f"schematic: a value of another kind ({error})", fix="compare with the example in --help"
        ) from None


def _part(document: Any, path: str) -> Mapping[str, Any]:
    part = document
    for name in path.split(".") if path else ():
        part = (part or {}).get(name)
    if part is not None and not isinstance(part, Mapping):
        raise InputError(f"schematic: {path or 'it'} is no mapping", fix="compare with the example in --help")
    return part or {}


@command.command("id")
@_of_schematic
def _id(schematic: Schematic, _factory: str) -> dict[str, Any]:
    """Compute the schematic's id; no network."""
    return {"id": schematic.id}


@command.command("post")
@_of_schematic
def _post(schematic: Schematic, factory: str) -> dict[str, Any]:
    """Make the factory know the schematic; may be repeated."""
    with ImageFactory(FactorySite(factory)) as client:
        return {"id": client.post_schematic(schematic), "factory": factory}


@command.command("links")
@_of_schematic
@_VERSION
@click.option("--arch", type=click.Choice(["amd64", "arm64"]), default="amd64")
@click.option("--secure-boot", is_flag=True)
@click.option("--registry", metavar="HOST", help="where images are pulled from (the factory's host)")
@click.option("--pxe-url", metavar="URL", help="where PXE scripts are (the factory)")
def _links(
    schematic: Schematic,
    factory: str,
    *,
    talos_version: str,
    arch: Literal["amd64", "arm64"],
    secure_boot: bool,
    registry: str | None,
    pxe_url: str | None,
) -> dict[str, Any]:
    """Name the installer image, ISO, PXE script and other images; no network."""
    site = FactorySite(factory, pxe_url=pxe_url, registry=registry)
    return {"id": schematic.id, **vars(site.assets(schematic.id, talos_version, arch=arch, secure_boot=secure_boot))}


@command.command("check")
@_of_schematic
@_VERSION
@click.option("--nvswitch", is_flag=True, help="HGX: the fabric manager must be part of it")
@click.option("--extensions", metavar="FILE", help="a saved list of the factory's, instead of asking it")
def _check(
    schematic: Schematic, factory: str, *, talos_version: str, nvswitch: bool, extensions: str | None
) -> dict[str, Any]:
    """Check that its extensions exist for a Talos version and fit each other."""
    if extensions:
        official = parse_extensions(inputs.text_of(extensions, "list of extensions"), source=extensions)
    else:
        with ImageFactory(FactorySite(factory)) as client:
            official = client.official_extensions(talos_version)
    check_extensions(schematic, official, talos_version=talos_version, nvswitch=nvswitch)
    versions = {extension.name: extension.version for extension in official}
    return {"id": schematic.id, "extensions": {name: versions[name] for name in schematic.extensions}}
