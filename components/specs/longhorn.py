"""What a site may set for Longhorn."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec

# Longhorn's own defaults, set because the proof of the disks counts with them.
OVER_PROVISIONING_PERCENT = 100
MINIMAL_AVAILABLE_PERCENT = 25
DataEngine = Literal["v1", "v2"]
DATABASE_COPIES = {"v1": 1, "v2": 2}
"""Of a volume for databases, by Longhorn's data engine: v1 keeps the one copy where its pod runs, which v2 cannot."""
_SCRATCH_COPIES = 2

# As Longhorn reads them; credentials belong into the Secret (longhorn.io/docs, snapshots and backups).
_TARGET = re.compile(r"(s3|azblob)://[^\s@:/]+@[^\s@:]+|(nfs|cifs)://[^\s@]+|gcs://[^\s@]+")


def database_class(name: str) -> str:
    """The class for databases beside the one of this name for weights: volumes of one node at a time."""
    return f"{name}-databases"


def scratch_class(name: str) -> str:
    """The class for what may be lost."""
    return f"{name}-scratch"


def scratch_copies(weight_replicas: int) -> int:
    """Copies of a volume for what may be lost: a site that keeps one copy of its weights may have a single node."""
    return min(_SCRATCH_COPIES, weight_replicas)


class LonghornSpec(Spec):
    """How Longhorn stores."""

    weight_replicas: int = Field(default=2, ge=1, le=20)
    """Copies of each volume of weights, each on a disk of another node. With 1, a node whose copy is in use elsewhere
    cannot be drained."""
    backup_target: str | None = None
    """Where backups of volumes go, such as `s3://BUCKET@REGION/PATH` or `nfs://HOST:/PATH`. Weights are never backed
    up: they can be downloaded again."""
    backup_credential_secret: str | None = None
    """Secret in `longhorn-system` with the target's credentials, which you make."""

    @model_validator(mode="after")
    def _target_is_one(self) -> LonghornSpec:
        if self.backup_target is not None and not _TARGET.fullmatch(self.backup_target):
            raise WrongValueError(
                "backup_target is no address that Longhorn reads",
                allowed="s3://BUCKET@REGION/PATH, azblob://CONTAINER@SUFFIX/, nfs://HOST:/PATH, cifs://HOST/SHARE",
                fix="write it in one of these forms, and credentials into the Secret backup_credential_secret",
            )
        if self.backup_credential_secret is not None and self.backup_target is None:
            raise WrongValueError(
                "backup_credential_secret is set without a backup_target", fix="name the target, or take it out"
            )
        return self
