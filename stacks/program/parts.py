"""Parts of a site: each states which others it needs, and is declared after them with what they left, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TypeVar

import pulumi

from components.addons.charts import Chart
from components.addons.crd_bundle import CrdFile
from components.network_policies import Peer
from stacks.plan.site_plan import SitePlan
from stacks.program.cluster_access import ClusterAccess

Handle = TypeVar("Handle")


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What every part may read."""

    plan: SitePlan
    charts: Mapping[str, Chart]
    """Those that the program installs here, by their names in versions.yaml."""
    bundle: Sequence[CrdFile] | None
    """Definitions; None where the site has them already."""
    cluster: ClusterAccess
    models_namespace: str
    scrapers: Sequence[Peer]
    opts: pulumi.ResourceOptions


@dataclass(frozen=True, kw_only=True)
class PartDone:
    """What a part leaves to those that need it; a part that a site does not have leaves nothing."""

    ready: Sequence[pulumi.Resource] = ()
    """The part works once these are there."""
    handle: object = None


@dataclass(frozen=True)
class PartStep:
    """The declaration of one part: what every part may read, and what those left that it names as its needs."""

    on: Wiring
    needed: Mapping[str, PartDone]

    def ready(self, *names: str) -> list[pulumi.Resource]:
        """Of these parts, in this order; without a name of all that are needed."""
        return [resource for name in names or self.needed for resource in self.needed[name].ready]

    def handle(self, name: str, kind: type[Handle]) -> Handle:
        """The handle of a part that every site has."""
        handle = self.needed[name].handle
        if not isinstance(handle, kind):
            raise TypeError(f"{name} leaves {type(handle).__name__}, not {kind.__name__}")
        return handle


@dataclass(frozen=True)
class SitePart:
    """One step of a site's declaration."""

    name: str
    declare: Callable[[PartStep], PartDone]
    needs: tuple[str, ...] = ()


def group(name: str, members: Iterable[str]) -> SitePart:
    """Parts that others wait for together."""
    return SitePart(name, lambda step: PartDone(ready=step.ready()), tuple(members))


def declare_parts(parts: Sequence[SitePart], wiring: Wiring) -> PartStep:
    """Declare each after what it needs; what all of them left. Raises CycleError for needs in a circle."""
    by_name = {part.name: part for part in parts}
    done: dict[str, PartDone] = {}
    for name in TopologicalSorter({part.name: part.needs for part in parts}).static_order():
        part = by_name[name]
        done[name] = part.declare(PartStep(wiring, {need: done[need] for need in part.needs}))
    return PartStep(wiring, done)
