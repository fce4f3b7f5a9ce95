"""What one configured provider carries from request to request."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final, Protocol

from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.config import ProviderConfig
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.kinds import built_in_scope
from lab.plugins.kubernetes.objects import TIMEOUT_SECONDS, GroupVersionKind, annotation
from lab.plugins.kubernetes.properties import Tree, hide

_DEFAULT_TIMEOUT_S: Final = 600.0


class Log(Protocol):
    """Lines to the engine, shown at the resource named by the URN."""

    def status(self, urn: str, message: str) -> None: ...
    def info(self, urn: str, message: str) -> None: ...
    def warning(self, urn: str, message: str) -> None: ...


@dataclass
class ProviderSession:
    """A configured provider: its settings, its cluster if that can be reached, and where its log lines go."""

    config: ProviderConfig
    log: Log
    cancelled: threading.Event
    default_namespace: str = "default"
    reachable: Cluster | None = None
    unreachable_reason: str = ""
    # Scope of custom kinds whose CRD this run declares, so that their objects are placed right before it exists.
    declared_scopes: dict[tuple[str, str], bool] = field(default_factory=dict)

    @property
    def cluster(self) -> Cluster:
        """The cluster. Raises ProviderError if it could not be reached when the provider was configured."""
        if self.reachable is None:
            raise ProviderError(self.unreachable_text)
        return self.reachable

    @property
    def unreachable_text(self) -> str:
        return f"the cluster is unreachable: {self.unreachable_reason}"

    def scope(self, gvk: GroupVersionKind) -> bool | None:
        """Whether a kind is namespaced: built-in knowledge, then this run's CRDs, then the cluster; None if unknown."""
        known = built_in_scope(gvk)
        if known is None:
            known = self.declared_scopes.get((gvk.group, gvk.kind))
        if known is None and self.reachable is not None:
            known = self.reachable.namespaced(gvk)
        return known

    def declare(self, crd: Tree) -> None:
        """Remember the scope that a CRD of this run gives its kind."""
        spec = crd.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if isinstance(spec, dict) and isinstance(names, dict) and isinstance(names.get("kind"), str):
            self.declared_scopes[str(spec.get("group")), names["kind"]] = spec.get("scope") == "Namespaced"


@dataclass(frozen=True)
class Operation:
    """One request for one resource."""

    session: ProviderSession
    urn: str
    preview: bool = False
    timeout_s: float = 0.0
    hidden: frozenset[str] = frozenset()

    def status(self, message: str) -> None:
        """Show a temporary line next to the resource; secret texts are masked here and in warnings."""
        self.session.log.status(self.urn, hide(message, self.hidden))

    def warn(self, message: str) -> None:
        self.session.log.warning(self.urn, hide(message, self.hidden))

    def time_limit_s(self, inputs: Tree) -> float:
        """Seconds to wait: the resource's customTimeouts, else its annotation, else ten minutes."""
        if self.timeout_s:
            return self.timeout_s
        text = annotation(inputs, TIMEOUT_SECONDS)
        return float(text) if text.isdigit() else _DEFAULT_TIMEOUT_S
