"""The custom resource definitions that the platform's objects need, installed first and only from pinned sources."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from components.component import Component


class CrdBundleError(pulumi.RunError):
    """The bundle on disk is missing or is not the pinned one."""


def read_bundle(folder: Path, digests: Mapping[str, str], fix: str) -> list[dict[str, Any]]:
    """All definitions of the bundle, sorted by name.

    digests: file name -> sha256 in hex of each file that the platform was tested with, from `Versions.crds_with`, which
    leaves out what the site's parts do not need. A file that is missing or differs is an error, because a CRD of
    another version changes what the gateways accept. fix: what brings the pinned files, for that error.
    """
    definitions: list[dict[str, Any]] = []
    problems: list[str] = []
    for file, digest in sorted(digests.items()):
        path = folder / file
        if not path.is_file():
            problems.append(f"{path}: missing")
            continue
        content = path.read_bytes()
        got = hashlib.sha256(content).hexdigest()
        if got != digest:
            problems.append(f"{path}: sha256 is {got}, pinned is {digest}")
            continue
        definitions += json.loads(content)["items"]
    if problems:
        raise CrdBundleError("the CRD bundle is not the pinned one:\n  " + "\n  ".join(problems) + f"\n  fix: {fix}")
    return sorted(definitions, key=lambda definition: str(definition["metadata"]["name"]))


@dataclass(frozen=True, kw_only=True)
class CrdBundleHandle:
    """Wait for every one of `ready` before declaring an object of these kinds."""

    ready: list[pulumi.Resource]


class CrdBundle(Component):
    """One resource per definition, so preview names the one that changes."""

    def __init__(
        self, name: str, *, definitions: list[dict[str, Any]], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        made: list[pulumi.Resource] = [
            self.child(str(definition["metadata"]["name"]), definition) for definition in definitions
        ]
        self.handle = CrdBundleHandle(ready=made)
        self.finish(definitions=len(made))
