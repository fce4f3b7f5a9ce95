"""`factory ...`: schematics and the images that an image factory makes of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from talos.cli import inputs
from talos.cli.failures import InputError
from talos.factory import ImageFactory
from talos.factory_extensions import check_extensions, parse_extensions
from talos.factory_schematic import FactoryError, MetaValue, Schematic, SecureBoot
from talos.factory_site import FactorySite, checked_version

HELP = "schematics and images of an image factory"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's subcommands."""
    subcommands = parser.add_subparsers(dest="factory_command", required=True, metavar="COMMAND")
    for name, (text, action, versioned) in _COMMANDS.items():
        one = subcommands.add_parser(name, help=text, description=text)
        one.add_argument("--schematic", default="-", metavar="FILE", help="the schematic (stdin)")
        one.add_argument("--factory", default=FactorySite().base_url, metavar="URL", help="%(default)s")
        if versioned:
            one.add_argument("--talos-version", required=True, metavar="VERSION", help="like v1.13.9")
        if name == "links":
            one.add_argument("--arch", choices=("amd64", "arm64"), default="amd64")
            one.add_argument("--secure-boot", action="store_true")
            one.add_argument("--registry", metavar="HOST", help="where images are pulled from (the factory's host)")
            one.add_argument("--pxe-url", metavar="URL", help="where PXE scripts are (the factory)")
        if name == "check":
            one.add_argument("--nvswitch", action="store_true", help="HGX: the fabric manager must be part of it")
            one.add_argument("--extensions", metavar="FILE", help="a saved list of the factory's, instead of asking it")
        one.set_defaults(factory_action=action)


def run(arguments: argparse.Namespace) -> int:
    """Run one subcommand; prints one JSON object."""
    action: Callable[[Schematic, argparse.Namespace], dict[str, Any]] = arguments.factory_action
    schematic = schematic_of(inputs.text_of(arguments.schematic, "schematic"))
    try:
        FactorySite(arguments.factory)
        if "talos_version" in arguments:
            checked_version(arguments.talos_version)
    except FactoryError as error:
        raise InputError(error.what, fix=error.fix) from None
    inputs.print_result(action(schematic, arguments))
    return 0


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
    found = document
    for name in path.split(".") if path else ():
        found = (found or {}).get(name)
    if found is not None and not isinstance(found, Mapping):
        raise InputError(f"schematic: {path or 'it'} is no mapping", fix="compare with the example in --help")
    return found or {}


def _id(schematic: Schematic, _arguments: argparse.Namespace) -> dict[str, Any]:
    return {"id": schematic.id}


def _post(schematic: Schematic, arguments: argparse.Namespace) -> dict[str, Any]:
    with ImageFactory(FactorySite(arguments.factory)) as factory:
        return {"id": factory.post_schematic(schematic), "factory": arguments.factory}


def _links(schematic: Schematic, arguments: argparse.Namespace) -> dict[str, Any]:
    site = FactorySite(arguments.factory, pxe_url=arguments.pxe_url, registry=arguments.registry)
    assets = site.assets(schematic.id, arguments.talos_version, arch=arguments.arch, secure_boot=arguments.secure_boot)
    return {"id": schematic.id, **vars(assets)}


def _check(schematic: Schematic, arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.extensions:
        official = parse_extensions(
            inputs.text_of(arguments.extensions, "list of extensions"), source=arguments.extensions
        )
    else:
        with ImageFactory(FactorySite(arguments.factory)) as factory:
            official = factory.official_extensions(arguments.talos_version)
    check_extensions(schematic, official, talos_version=arguments.talos_version, nvswitch=arguments.nvswitch)
    versions = {extension.name: extension.version for extension in official}
    return {"id": schematic.id, "extensions": {name: versions[name] for name in schematic.extensions}}


_COMMANDS: dict[str, tuple[str, Callable[[Schematic, argparse.Namespace], dict[str, Any]], bool]] = {
    "id": ("compute the schematic's id; no network", _id, False),
    "post": ("make the factory know the schematic; may be repeated", _post, False),
    "links": ("name the installer image, ISO, PXE script and other images; no network", _links, True),
    "check": ("check that its extensions exist for a Talos version and fit each other", _check, True),
}
