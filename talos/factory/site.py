"""Where an image factory's images are. Pure text, so a preview needs no network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from talos.factory.schematic import FactoryError

Arch = Literal["amd64", "arm64"]
PUBLIC_FACTORY = "https://factory.talos.dev"
PUBLIC_PXE = "https://pxe.talos.dev"
_VERSION = re.compile(r"^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$")


@dataclass(frozen=True)
class Assets:
    """Where the images of one schematic, Talos version and architecture are; nothing here needs the network."""

    installer: str
    """Image reference for `machine.install.image` and for upgrades."""
    iso: str
    pxe: str
    """URL of an iPXE script."""
    disk_image: str
    kernel: str
    initramfs: str
    command_line: str
    uki: str
    """Kernel, initramfs and command line as one file; with Secure Boot, the signed one that a network boot takes."""


@dataclass(frozen=True)
class FactorySite:
    """A factory's addresses. A self-hosted one usually has one host for all, so only `base_url` is needed."""

    base_url: str = PUBLIC_FACTORY
    pxe_url: str | None = None
    registry: str | None = None
    """Host, with port, that images are pulled from; None takes it out of base_url."""

    def __post_init__(self) -> None:
        """Raise FactoryError for an address that is no web address."""
        for url in (self.base_url, self.pxe_url):
            try:
                parts = urlsplit(url or PUBLIC_FACTORY)
            except ValueError:
                # Brackets around what is no IPv6 address.
                parts = urlsplit("")
            if parts.scheme not in {"http", "https"} or not parts.netloc or parts.username or parts.query:
                raise FactoryError(
                    f"image factory address: got {parts.scheme}://{parts.hostname or ''}, allowed http(s)://HOST[:PORT][/PATH]",
                    fix="give the factory's address without a user name or a query",
                )

    def assets(
        self, schematic_id: str, talos_version: str, *, arch: Arch = "amd64", secure_boot: bool = False
    ) -> Assets:
        """The references and links for bare metal; FactoryError for a version that is not like v1.13.9."""
        version = checked_version(talos_version)
        base, suffix = self.base_url.rstrip("/"), "-secureboot" if secure_boot else ""
        default_pxe = PUBLIC_PXE if base == PUBLIC_FACTORY else base
        registry = self.registry or urlsplit(base).netloc
        image = f"{base}/image/{schematic_id}/{version}"
        return Assets(
            installer=f"{registry}/metal-installer{suffix}/{schematic_id}:{version}",
            iso=f"{image}/metal-{arch}{suffix}.iso",
            pxe=f"{(self.pxe_url or default_pxe).rstrip('/')}/pxe/{schematic_id}/{version}/metal-{arch}{suffix}",
            disk_image=f"{image}/metal-{arch}{suffix}.raw.xz",
            kernel=f"{image}/kernel-{arch}",
            initramfs=f"{image}/initramfs-{arch}.xz",
            command_line=f"{image}/cmdline-metal-{arch}{suffix}",
            uki=f"{image}/metal-{arch}{suffix}-uki.efi",
        )


def checked_version(talos_version: str) -> str:
    """The version, if it is written as Talos tags are (v1.13.9); else FactoryError."""
    if not _VERSION.match(talos_version):
        raise FactoryError(
            f"Talos version: got {talos_version!r}, allowed like v1.13.9", fix="write the full version with its v"
        )
    return talos_version
