"""Keys of encrypted disks: what a TPM needs to seal one, and what is lost with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem
from stacks.site.reading.levels import LEVELS, MACHINES
from stacks.site.reading.raw import at, items, mapping, matching

SECURE_BOOT: Path = (*MACHINES, "secure_boot")
_SECTIONS = ("system_volumes", "volumes", "raw_volumes")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Disks that are sealed by the TPM of machines that do not boot signed images.

    Talos binds the seal to the key that signs the image's measurements, and only signed images carry that key
    (siderolabs/talos, internal/pkg/secureboot/tpm2/seal.go, internal/pkg/uki/uki.go).
    """
    if at(values, *SECURE_BOOT) is True:
        return
    for path, keys in _encrypted(values):
        for index, key in enumerate(keys):
            if mapping(key).get("kind") == "tpm":
                yield Problem(
                    path=(*path, str(index), "kind"),
                    what="needs secure_boot: an unsigned image has no key that the TPM could seal for, so the disk is "
                    "never formatted and the machine does not finish its install",
                    got="'tpm'",
                    allowed="tpm with machines.secure_boot: true; kms, static or node_id without",
                    fix="set machines.secure_boot: true, or take another kind of key",
                )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Disks that nothing but one TPM opens."""
    for path, keys in _encrypted(values):
        if keys and all(mapping(key).get("kind") == "tpm" for key in keys):
            yield Problem(
                path=path,
                what="opens by this mainboard's TPM only: with another mainboard, or other Secure Boot keys in its "
                "firmware, the disk's content is lost",
                fix="add a second key in another slot, such as {kind: kms, slot: 1, endpoint: https://HOST:PORT}",
            )


def _encrypted(values: Mapping[str, Any]) -> Iterator[tuple[Path, list[Any]]]:
    """Each list of keys, at its place."""
    machines = at(values, *MACHINES)
    patterns = [f"{level}{section}.<name>.encryption" for level in LEVELS for section in _SECTIONS]
    for pattern in (*patterns, "hgx.storage.disks.<name>.encryption"):
        for path, keys in matching(machines, pattern):
            yield (*MACHINES, *path), list(items(keys))
