"""What a site may set for the logs of its pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec

LogSystem = Literal["none", "external", "victoria_logs"]

READ_BY: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "external": ("address", "form", "token_secret"),
    "victoria_logs": ("keep_days", "volume_gib", "storage_class"),
}
"""Which of the keys each system reads."""

LEAST_GIB = 5
FULL_PERCENT = 85
"""Of its volume, at which VictoriaLogs deletes its oldest day, before it is full and takes nothing."""

TOKEN_KEY = "token"  # noqa: S105 - the name of a key
"""Of the Secret that `token_secret` names."""


class LogsSpec(Spec):
    """Where the logs of all pods are kept, those of the gateway's requests among them."""

    system: LogSystem = "none"
    """`none`: a node has the last lines of each container, which go with the pod. `external`: this program installs a
    collector on each node, which sends them to a store of yours. `victoria_logs`: it installs VictoriaLogs too, which
    keeps them on a volume."""
    address: str | None = None
    """https address of your store, for `external`. Its CA, where private, is in `cluster.machines.trusted_roots`."""
    form: Literal["native", "jsonline"] = "native"
    """How lines are sent to it: `native` to VictoriaLogs, for which `address` needs no path; `jsonline` to what takes a
    POST of one JSON object a line, at the path of `address`."""
    token_secret: str | None = None
    """Secret in `inference-logs` with the bearer token for `address` as `token`, where it asks for one. Until it is
    there, and after a change, lines wait on the nodes."""
    keep_days: int = Field(default=30, ge=1, le=3650)
    """Days that VictoriaLogs keeps a line, as far as its volume has room: at 85 % of it, the oldest day goes first."""
    volume_gib: int = Field(default=50, ge=LEAST_GIB, le=16384)
    """Size of its volume in GiB. It can grow, and Kubernetes refuses a smaller one. An estimate: what a site logs is
    not known before it runs, and `LogStoreFills` is its alert."""
    storage_class: str | None = None
    """Class of the volume; ReadWriteOnce is enough. Without it, Longhorn's for scratch volumes with `storage.system:
    longhorn`. Lines are lost with the volume."""

    @property
    def collected(self) -> bool:
        """Whether a collector runs on each node."""
        return self.system != "none"

    @model_validator(mode="after")
    def _is_read(self) -> LogsSpec:
        read = READ_BY[self.system]
        if others := sorted(self.model_fields_set - {"system", *read}):
            readers = [name for name, keys in READ_BY.items() if others[0] in keys]
            raise WrongValueError(
                f"{', '.join(others)} set, and system {self.system} reads nothing of it",
                fix=f"set system to {readers[0]}, or take it out",
            )
        return self

    @model_validator(mode="after")
    def _has_a_store(self) -> LogsSpec:
        if self.system == "external" and self.address is None:
            raise WrongValueError(
                "lacks address: a collector on each node has no store to send to",
                got="system external",
                fix="set address to the https address of your store, or system to victoria_logs",
            )
        return self
