"""Whether a machine boots what its config installs: its firmware's Secure Boot, signed images, encrypted volumes."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from talos.api.results import BootState
from talos.cli.reaching import Contact
from talos.cli.volumes import encryption_refusal

_SIGNED = "-secureboot/"
_MEDIUM = "python -m sitectl docs secure-boot"


def is_signed(image: str) -> bool:
    """Whether an installer's reference is that of a signed system."""
    return _SIGNED in image


def refusal(contact: Contact, config: bytes) -> tuple[str, str] | None:
    """Why the machine would not come back with the config's system, and the fix; None where it would."""
    if (state := contact.client.boot_state()) is not None:
        signed = is_signed(_installer(config))
        refused = _in_maintenance(state, signed=signed) if contact.state == "maintenance" else _on(state, signed=signed)
        if refused:
            return refused
    if contact.state == "maintenance":
        return None
    return encryption_refusal(contact.client.volumes(), config)


def _in_maintenance(state: BootState, *, signed: bool) -> tuple[str, str] | None:
    if signed and not (state.secure_boot and state.is_signed):
        return (
            "the site boots signed images, and this machine runs "
            + ("a boot medium that is not signed" if not state.is_signed else "without Secure Boot in its firmware")
            + ": a TPM seals no disk for it, or for a state that changes once Secure Boot is on",
            "boot the signed medium, choose `Enroll Secure Boot keys` in its boot menu, and turn Secure Boot on in the "
            f"firmware: {_MEDIUM}",
        )
    return _unsigned(state, signed=signed)


def _on(state: BootState, *, signed: bool) -> tuple[str, str] | None:
    if signed and not state.is_uki:
        return (
            "it boots by GRUB, and Talos upgrades no such machine to a signed image",
            f"replace it, and boot the signed medium then: {_MEDIUM}",
        )
    return _unsigned(state, signed=signed)


def _unsigned(state: BootState, *, signed: bool) -> tuple[str, str] | None:
    if state.secure_boot and not signed:
        return (
            "Secure Boot is on in its firmware, and the site's image is not signed: it would not boot",
            "set cluster.machines.secure_boot: true, or turn Secure Boot off in the firmware",
        )
    return None


def _installer(config: bytes) -> str:
    for document in yaml.safe_load_all(config):
        if isinstance(document, Mapping) and "kind" not in document:
            return str((((document.get("machine") or {}).get("install")) or {}).get("image", ""))
    return ""
