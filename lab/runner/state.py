"""What the runner knows about the containers of one pod; the status module turns it into the Pod's status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

# A Kubernetes object as the API server sends it.
Object = dict[str, Any]

Kind = Literal["init", "sidecar", "main"]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Not started, or between two runs."""

    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Running:
    started_at: str


@dataclass(frozen=True, kw_only=True)
class Terminated:
    """One finished run. `exit_code` follows the shell: 128 + signal for a killed process."""

    exit_code: int
    reason: str
    message: str = ""
    started_at: str
    finished_at: str
    container_id: str = ""


@dataclass(kw_only=True)
class ContainerState:
    """One container's side of the Pod's status."""

    name: str
    image: str
    kind: Kind
    current: Waiting | Running | Terminated
    last: Terminated | None = None
    ready: bool = False
    started: bool = False
    restarts: int = 0
    container_id: str = ""
    image_id: str = ""

    @property
    def running(self) -> bool:
        return isinstance(self.current, Running)


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 with seconds, as the API server writes times."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)
