"""What a site may set for the custom resource definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from floor.spec import Spec


class CrdBundleSpec(Spec):
    """Who installs the custom resource definitions, and where the bundle lies."""

    owner: Literal["program", "external"] = "program"
    """`program`: this program installs and upgrades them, and never deletes one; `external`: the cluster has them
    already, shared with others."""
    folder: Path = Field(default=Path(".bundle/crds"))
    """Folder with one JSON file per source, as `sitectl bundle` writes it; relative to the project."""
