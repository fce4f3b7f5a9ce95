"""Keys of encrypted disks: what a TPM needs to seal one, and what is lost with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem
from stacks.site.reading.levels import LEVELS, MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, items, mapping, matching

SECURE_BOOT: Path = (*MACHINES, "secure_boot")
# A key that only one kind has -> that kind, and what to write where the kind needs it; empty where it does not.
_OF_KINDS = {
    "endpoint": ("kms", "write the key server's address, https://HOST:PORT"),
    "passphrase_secret": ("static", "name the configuration key that holds the passphrase"),
    "pcrs": ("tpm", ""),
}
_KINDS = frozenset({"node_id", "tpm", "kms", "static"})
_STATE = ("system_volumes", "STATE")
_DISKS: Path = (*MACHINES, "hgx", "storage", "disks")
_SECTIONS = ("system_volumes", "volumes", "raw_volumes")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys without what they are made of or with what they are not, and those that a TPM cannot seal.

    Talos binds the seal to the key that signs the image's measurements, and only signed images carry that key
    (siderolabs/talos, internal/pkg/secureboot/tpm2/seal.go, internal/pkg/uki/uki.go).
    """
    for path, keys in _encrypted(values):
        for index, key in enumerate(keys):
            here, kind = (*path, str(index)), mapping(key).get("kind")
            yield from _of_kind(here, mapping(key), kind)
            if kind == "tpm" and at(values, *SECURE_BOOT) is not True:
                yield Problem(
                    path=(*here, "kind"),
                    what="needs secure_boot: an unsigned image has no key that the TPM could seal for, so the disk is "
                    "never formatted and the machine does not finish its install",
                    got="'tpm'",
                    allowed="tpm with machines.secure_boot: true; kms, static or node_id without",
                    fix="set machines.secure_boot: true, or take another kind of key",
                )


def _of_kind(path: Path, key: Mapping[str, Any], kind: Any) -> Iterator[Problem]:
    for name, (owner, meaning) in _OF_KINDS.items():
        if kind == owner and meaning and not key.get(name):
            yield Problem(path=(*path, name), what=f"missing, and a key of kind {kind} is made of it", fix=meaning)
        elif kind in _KINDS and kind != owner and key.get(name) is not None:
            yield Problem(
                path=(*path, name),
                what=f"is not read for a key of kind {kind}, so it protects nothing",
                fix=f"take it out, or write kind: {owner}",
            )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Disks that nothing but one TPM opens, and those whose key is not where it is needed, or where anyone finds it."""
    for path, keys in _encrypted(values):
        if keys and all(mapping(key).get("kind") == "tpm" for key in keys):
            yield Problem(
                path=path,
                what="opens by this mainboard's TPM only: with another mainboard, or other Secure Boot keys in its "
                "firmware, the disk's content is lost",
                fix="add a second key in another slot, such as {kind: kms, slot: 1, endpoint: https://HOST:PORT}",
            )
    reported: set[Problem] = set()
    for machine in machines_of(at(values, *MACHINES)):
        for problem in (*_before_the_config(machine), *_in_plain_text(machine, values)):
            if problem not in reported:
                reported.add(problem)
                yield problem


def _before_the_config(machine: SiteMachine) -> Iterator[Problem]:
    """STATE holds the config, so what opens it knows nothing of that (Talos's page on disk encryption, 1.13)."""
    links = list(machine.links())
    static = links and not any(link.get("dhcp") is True for *_, link in links)
    arguments = [str(argument) for argument in items(machine.keys.get("kernel_args"))]
    if _kinds(machine, *_STATE) == {"kms"} and static and not any(text.startswith("ip=") for text in arguments):
        yield Problem(
            path=machine.path(*_STATE, "encryption"),
            what="asks the key server at each start, before the machine has read its config: without DHCP it has no "
            "address then, and it trusts no certificate of trusted_roots",
            fix="add a key that needs no network, such as {kind: tpm, slot: 1}; or see that DHCP, or `ip=` in "
            "kernel_args, gives an address on a single link",
        )


def _in_plain_text(machine: SiteMachine, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Passphrases that lie on the same machine's disk: META has that of STATE, and STATE has all others."""
    if "static" in _kinds(machine, *_STATE):
        yield Problem(
            path=machine.path(*_STATE, "encryption"),
            what="has a passphrase, which Talos keeps in plain text on the same disk, in META",
            fix="take another kind of key: tpm with secure_boot, kms, or node_id against discarded disks",
        )
        return
    if _kinds(machine, *_STATE):
        return
    places = [machine.path(section, str(name)) for section in _SECTIONS for name in mapping(machine.keys.get(section))]
    if machine.role == "hgx":
        places += [(*_DISKS, str(name)) for name in mapping(at(values, *_DISKS))]
    for place in places:
        if "static" in {mapping(key).get("kind") for key in items(at(values, *place, "encryption"))}:
            yield Problem(
                path=(*place, "encryption"),
                what="has a passphrase, which is in the machine's config on STATE, and that is not encrypted",
                fix="encrypt system_volumes.STATE too, or take another kind of key",
            )


def _kinds(machine: SiteMachine, *volume: str) -> set[Any]:
    return {mapping(key).get("kind") for key in items(at(machine.keys, *volume, "encryption"))}


def _encrypted(values: Mapping[str, Any]) -> Iterator[tuple[Path, list[Any]]]:
    """Each list of keys, at its place."""
    machines = at(values, *MACHINES)
    patterns = [f"{level}{section}.<name>.encryption" for level in LEVELS for section in _SECTIONS]
    for pattern in (*patterns, "hgx.storage.disks.<name>.encryption"):
        for path, keys in matching(machines, pattern):
            yield (*MACHINES, *path), list(items(keys))
