"""What a machine finds around it: the rack's other machines, the cluster, registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from lab.machines.checker import Checker
from lab.machines.cluster_hooks import ClusterHooks
from lab.machines.config_view import Config
from lab.machines.images import Puller
from lab.machines.spec import Speed

if TYPE_CHECKING:
    from lab.machines.machine import Machine


class Site(Protocol):
    """What a machine finds around it."""

    checker: Checker
    cluster: ClusterHooks
    puller: Puller
    speed: Speed

    def machine_at(self, address: str) -> Machine | None:
        """The machine with this address."""

    def trustd(self, config: Config) -> Machine | None:
        """A control plane that runs and lets machines with this config's CA and token in."""

    def etcd_members(self, cluster_id: str) -> list[Machine]:
        """Every machine that has a member of this cluster's etcd, running or not."""

    def has_quorum(self, cluster_id: str) -> bool:
        """Whether more than half of these members run."""
