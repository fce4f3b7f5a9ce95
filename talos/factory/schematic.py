"""A schematic: what an image factory builds into a Talos image, and the id that the factory will give it.

The id is the SHA-256 of the schematic's canonical YAML, so it is known without asking the factory. Canonical form and
field order: siderolabs/image-factory v1.5.0, pkg/schematic/schematic.go; its own test vectors are ours too.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import yaml

from floor.problems import ProblemError

Bootloader = Literal["auto", "dual-boot", "grub", "sd-boot"]
EnrollKeys = Literal["off", "manual", "if-safe", "force"]
Plain = str | int | float | bool | None | list["Plain"] | Mapping[str, "Plain"]


class FactoryError(ProblemError):
    """Something about an image that the user can fix."""


@dataclass(frozen=True)
class MetaValue:
    """One value of the image's META partition: key 0 to 255, value as text."""

    key: int
    value: str

    def __post_init__(self) -> None:
        """Raise FactoryError for a key that is no byte."""
        if not 0 <= self.key <= 255:
            raise FactoryError(
                f"META key: got {self.key}, allowed 0 to 255", fix="take a key from Talos's list of META keys"
            )


@dataclass(frozen=True)
class Overlay:
    """An overlay for a single-board computer; not used on HGX."""

    image: str
    name: str
    options: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True)
class SecureBoot:
    """How systemd-boot enrols the Secure Boot keys; None leaves it to the factory (if-safe)."""

    enroll_keys: EnrollKeys | None = None
    include_well_known_certificates: bool = False


@dataclass(frozen=True, kw_only=True)
class Schematic:
    """What is built into an image, independent of the Talos version. Public: all who know the id can read it.

    The order of kernel arguments and META values is kept, because it means something. The order of extensions means
    nothing but would change the id, so they are sorted and freed of duplicates.
    """

    extensions: tuple[str, ...] = ()
    kernel_args: tuple[str, ...] = ()
    meta: tuple[MetaValue, ...] = ()
    bootloader: Bootloader = "auto"
    secure_boot: SecureBoot = SecureBoot()
    disk_sector_bytes: int = 0
    embedded_config: str = ""
    overlay: Overlay | None = None
    owner: str = ""

    def __post_init__(self) -> None:
        """Bring the extensions into their one order."""
        object.__setattr__(self, "extensions", tuple(sorted(set(self.extensions))))

    def document(self) -> dict[str, Plain]:
        """The schematic as the factory's document, keys in the factory's order, empty fields left out."""
        overlay: dict[str, Plain] = {}
        if self.overlay:
            options = _sorted_keys(self.overlay.options)
            overlay = {
                "image": self.overlay.image,
                "name": self.overlay.name,
                **({"options": options} if options else {}),
            }
        meta: list[Plain] = [{"key": entry.key, "value": entry.value} for entry in self.meta]
        customization: dict[str, Plain] = {
            "embeddedMachineConfiguration": self.embedded_config,
            "extraKernelArgs": list(self.kernel_args),
            "meta": meta,
            "systemExtensions": _filled({"officialExtensions": list(self.extensions)}),
            "bootloader": "" if self.bootloader == "auto" else self.bootloader,
            "secureboot": _filled(
                {
                    "enrollKeys": self.secure_boot.enroll_keys or "",
                    "includeWellKnownCertificates": self.secure_boot.include_well_known_certificates,
                }
            ),
            "diskImage": _filled({"sectorSize": self.disk_sector_bytes}),
        }
        return {**_filled({"owner": self.owner, "overlay": overlay}), "customization": _filled(customization)}

    def canonical(self) -> bytes:
        """The text whose digest is the id, byte for byte as the factory writes it."""
        return canonical_yaml(self.document())

    @cached_property
    def id(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(self.canonical()).hexdigest()


def _filled(fields: Mapping[str, Plain]) -> dict[str, Plain]:
    return {name: value for name, value in fields.items() if value}


def _sorted_keys(value: Mapping[str, Plain]) -> dict[str, Plain]:
    return {key: _sorted_keys(inner) if isinstance(inner, Mapping) else inner for key, inner in sorted(value.items())}


class _Emitter(yaml.emitter.Emitter):
    """PyYAML's emitter with the indentation of Go's: multiples of 4, but a list item's content is right of "- "."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - PyYAML calls it so
        self.indents.append(self.indent)
        if self.indent is None:
            self.indent = self.best_indent if flow else 0
        elif self.states and self.states[-1] == self.expect_block_sequence_item:
            self.indent += 2
        else:
            self.indent = self.best_indent * (self.indent // self.best_indent + 1)


# Text and numbers that Go's YAML would read back as something else than text, so it quotes them.
_NOT_TEXT = re.compile(
    r"""(?xi) ^(?: y|n|yes|no|on|off|true|false|null|~|<<|
    [-+]?0b[01_]+ | [-+]?0o[0-7_]+ | [-+]?0x[0-9a-f_]+ | [-+]?[0-9][0-9_]* |
    [-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:e[-+]?[0-9]+)? | [-+]?\.inf | \.nan |
    [-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)? |
    [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\ ].*)?)?$"""
)


def canonical_yaml(document: Plain) -> bytes:
    """Write a document as the factory's YAML library does: block style, 4 spaces, no line folding, closing newline."""
    text = io.StringIO()
    emitter = _Emitter(text, indent=4, width=sys.maxsize, allow_unicode=True)
    for event in (
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(document),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ):
        emitter.emit(event)
    return text.getvalue().encode()


def _events(value: Plain) -> Iterator[yaml.Event]:
    if isinstance(value, Mapping):
        yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=False)
        for key, inner in value.items():
            yield from _events(key)
            yield from _events(inner)
        yield yaml.MappingEndEvent()
    elif isinstance(value, list):
        yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=False)
        for inner in value:
            yield from _events(inner)
        yield yaml.SequenceEndEvent()
    elif isinstance(value, str):
        style = "|" if "\n" in value else '"' if _NOT_TEXT.match(value) else None
        yield yaml.ScalarEvent(None, None, (True, True), value, style=style)
    else:
        word = "null" if value is None else str(value).lower()
        yield yaml.ScalarEvent(None, None, (True, False), word)
