"""What a site may set for the PostgreSQL that keeps the directory's keys and the ledger's rows."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from components.specs.weights import BucketSpec
from floor.problems import WrongValueError
from floor.spec import Spec, refuse_unread
from floor.stateful import Keeping

DATABASES = {"callers": "directory", "usage": "ledger"}
"""Section of a site with a `database_secret` -> the database that it reads, which its role is called too."""
# What is lost with all nodes at once: PostgreSQL closes a segment of its log at the latest after so long.
ARCHIVE_MINUTES = 5
LEAST_GIB = 5
LOG_GIB = 10
"""Of a volume, for PostgreSQL's own log."""
ROW_BYTES = 512
"""Of a row of usage with its part of the indexes; an estimate."""
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def own_secret(database: str) -> str:
    """Secret in the gateway's namespace with the address of a database that the program runs."""
    return f"{database}-database"


def _moment(text: str) -> str:
    try:
        zone = datetime.fromisoformat(text).tzinfo
    except ValueError:
        zone = None
    # Of what Python reads, PostgreSQL's reader takes this form alone.
    if zone is None or not _RFC_3339.fullmatch(text):
        raise WrongValueError(
            "is no moment with a time zone",
            got=f"'{text}'",
            allowed="date and time of RFC 3339",
            fix='write it as "2026-12-01T06:30:00Z"',
        )
    return text


class DatabaseBackupsSpec(BucketSpec):
    """Base backups by schedule, and PostgreSQL's log as it is written: any moment between can be restored."""

    address: str
    """`https://HOST[:PORT]/BUCKET[/PREFIX]`; each generation has a folder of its own below it."""
    keys_secret: str = Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
    """Secret in the namespace inference-database with `access_key_id` and `secret_access_key`. They must be allowed to
    list, read, put and delete objects."""
    has_ca: bool = False
    """Whether `keys_secret` has `ca.crt` too: the CA of the site's own that the server's certificate is of."""
    every_h: Literal[1, 2, 3, 4, 6, 8, 12, 24] = 24
    """Hours from one base backup to the next. An alert fires after two that are missing."""
    keep_days: int = Field(default=30, ge=1, le=3650)
    """Days back that can be restored to. What is older of the running generation is deleted; folders of earlier
    generations are yours to delete."""


class DatabaseRecoverySpec(Spec):
    """Where a new generation takes its data from: the backups of an earlier one."""

    generation: int = Field(ge=1)
    """The one that wrote them."""
    until: Annotated[str, AfterValidator(_moment)] | None = None
    """The moment to restore to: "2026-12-01T06:30:00Z". Without it, the last one that the bucket has."""


class DatabaseSpec(Spec):
    """Who runs PostgreSQL for the directory of keys and the ledger."""

    run_by: Literal["external", "cloudnative_pg"] = "external"
    """`external`: a database of yours, whose address `callers.database_secret` and `usage.database_secret` name.
    `cloudnative_pg`: this program installs CloudNativePG, and a gatekeeper's directory and the ledger of a site with
    the section `usage` each have a database of it; neither `database_secret` is set then."""
    instances: int = Field(default=3, ge=3, le=9)
    """PostgreSQL servers, each on a node of its own: one writes, and one other has each row before it is confirmed.
    With fewer than three, a node that restarts would stop all writes."""
    storage_class: str | None = None
    """Class of their volumes. Without it, Longhorn's for databases with `storage.system: longhorn`, else
    `storage.storage_class`."""
    size_gib: int = Field(default=50, ge=LEAST_GIB, le=16384)
    """GiB of each one's volume. 50: 10 for PostgreSQL's log, and 40 for 85 million rows of half a KiB with their
    indexes, or 6.5 million requests a month for 13 months. The half KiB is an estimate."""
    volumes: Keeping = "protected"
    """protected: the engine refuses to delete or replace the servers; disposable: they go with their data."""
    generation: int = Field(default=1, ge=1)
    """Increase it to start new servers, empty or out of `recovery`. Those of the generation before are deleted."""
    backups: DatabaseBackupsSpec | None = None
    """Backups to an S3 bucket; none if not given. Needs cert-manager, `certificates.system` other than `none`."""
    recovery: DatabaseRecoverySpec | None = None
    """What a new generation begins with; read when its servers are first made. Leave it until the next generation."""

    @model_validator(mode="after")
    def _is_read(self) -> DatabaseSpec:
        if self.run_by == "external":
            refuse_unread(self, instead="cloudnative_pg")
        return self

    @model_validator(mode="after")
    def _recovers_from_before(self) -> DatabaseSpec:
        if self.recovery is None:
            return self
        if self.recovery.generation >= self.generation:
            raise WrongValueError(
                "recovery.generation is not an earlier one",
                got=f"{self.recovery.generation}, with generation {self.generation}",
                allowed=f"at most {self.generation - 1}",
                fix=f"set generation to {self.recovery.generation + 1}: restored data needs servers of its own",
            )
        if self.backups is None:
            raise WrongValueError("recovery is set without backups", fix="name the bucket in backups")
        return self
