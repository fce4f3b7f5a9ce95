"""Checks of a site that is valid by itself: do its models fit, do its settings and versions go together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from floor.problems import Path, Problem, from_text, shown
from floor.spec import MOST_SECONDS
from stacks.facts import versions
from stacks.plan import conflicts, machine_keys
from stacks.plan.cluster import problems_of
from stacks.plan.knobs import token_s
from stacks.plan.placing import crowds
from stacks.plan.sizing import BrokenOverridesError, DoesNotFitError, prove_model
from stacks.proof.layouts import allowed, refusals
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.machine import MachineKeys
from stacks.site.machines import MachinesSpec
from stacks.site.model import SiteConfig
from stacks.site.reading.origins import Origin

# Keys that every proof starts from.
_OF_ALL_PROOFS: tuple[Path, ...] = (("cluster", "gpu"), ("storage", "read_bytes_per_s"))
# For documentation (RFC 5737), so no machine has an address of them.
_STAND_IN_NETWORKS: Mapping[str, Any] = {
    "nodes": ("0.0.0.0/0",),
    "pods": "192.0.2.0/24",
    "services": "198.51.100.0/24",
}
_Keys = TypeVar("_Keys", bound=MachineKeys)
_OF_THE_NODES = {("nodes",), ("roles",), ("taints",)}


@dataclass(frozen=True, kw_only=True)
class RightPart:
    """A site without the models that are wrong by themselves; `whole` if none is, and its nodes are right too."""

    site: SiteConfig
    whole: bool


def right_part(site: SiteConfig, wrong: Sequence[Path]) -> RightPart:
    """What can be proven of `site` while these paths of it are wrong."""
    names = {path[1] for path in wrong if path[0:1] == ("models",) and len(path) > 1}
    blind = any(path[: len(key)] == key[: len(path)] for path in wrong if path for key in _OF_ALL_PROOFS)
    models = {} if blind else {name: spec for name, spec in site.models.items() if name not in names}
    nodes = any(path[:2] == ("cluster", "machines") and path[2:3] in _OF_THE_NODES for path in wrong)
    whole = not (names or blind or nodes or any(path in {(), ("models",), ("cluster", "machines")} for path in wrong))
    machines = site.cluster.machines
    cluster = site.cluster.model_copy(update={"machines": _right_machines(machines, wrong) if machines else None})
    return RightPart(site=site.model_copy(update={"models": models, "cluster": cluster}), whole=whole)


def _right_machines(machines: MachinesSpec, wrong: Sequence[Path]) -> MachinesSpec:
    """Without wrong patches, machines with a wrong address; with placeholders for wrong parts of the address plan."""
    below = [path[2:] for path in wrong if path[:2] == ("cluster", "machines")]
    nodes = {
        name: _right_patches(node, below, ("nodes", name))
        for name, node in machines.nodes.items()
        if ("nodes", name, "address") not in below
    }
    roles = {role: _right_patches(keys, below, ("roles", role)) for role, keys in machines.roles.items()}
    machines = _right_patches(machines, below, ())
    parts = {path[1] for path in below if path[:1] == ("networks",) and len(path) > 1}
    networks = {key: value for key, value in _STAND_IN_NETWORKS.items() if key in parts}
    if {"vip", "vip_link"} & parts:
        networks |= {"vip": None, "vip_link": None}
    update = {"nodes": nodes, "roles": roles, "networks": machines.networks.model_copy(update=networks)}
    return machines.model_copy(update=update)


def _right_patches(keys: _Keys, wrong: Sequence[Path], level: Path) -> _Keys:
    """The keys without the patches that are reported already."""
    at = (*level, "patches")
    names = {path[len(at)] for path in wrong if path[: len(at)] == at and len(path) > len(at)}
    patches = {name: patch for name, patch in keys.patches.items() if name not in names}
    return keys.model_copy(update={"patches": patches}) if names else keys


def misfits(right: RightPart) -> Iterator[Problem]:
    """Models that cannot work on the GPUs that they are given, or find none."""
    site = right.site
    proofs: dict[str, Proof] = {}
    for name, spec in sorted(site.models.items()):
        try:
            proofs[name] = prove_model(site, spec, name)
        except BrokenOverridesError as error:
            for each in error.broken:
                path = ("models", name, "overrides", each.key)
                yield Problem(path=path, what=each.what, got=each.got, allowed=each.allowed, fix=each.fix)
        except DoesNotFitError as error:
            yield from _misfit(name, spec, error)
    for name, proof in proofs.items():
        yield from _cut(name, right.site.models[name].request_timeout_s, proof)
    # If one model does not fit by itself, the room that it needs on the nodes is unknown.
    if right.whole and len(proofs) == len(site.models):
        for crowd in crowds(site, proofs):
            yield Problem(path=("models", crowd.model, "server", "replicas"), what=crowd.what, fix=crowd.fix)


def _cut(name: str, timeout_s: int, proof: Proof) -> Iterator[Problem]:
    """Answers of the declared load that their request's time ends, even where a replica has nothing else to do."""
    load, case = proof.order.load, proof.case
    if load is None or proof.order.model.task != "generate":
        return
    tokens = load.answer_tokens.p95
    least_s = tokens * case.decode_s(1)
    if least_s > timeout_s:
        enough = math.ceil(tokens * token_s(case))
        raised = f"write {enough} or more, or " if enough <= MOST_SECONDS else ""
        yield Problem(
            path=("models", name, "request_timeout_s"),
            what=f"ends answers that the declared load has: {tokens:,.0f} tokens take {least_s:,.0f} s or more",
            got=str(timeout_s),
            fix=f"{raised}lower load.answer_tokens.p95",
        )


def _misfit(name: str, spec: OrderedModelSpec, error: DoesNotFitError) -> Iterator[Problem]:
    """One problem for the model, or one for each size of a layout that cannot be."""
    path: Path = ("models", name, "server", "layout" if spec.server.layout else "gpus")
    whole = from_text(path, str(error))
    case = error.proof.case
    model, hardware, layout = case.order.model, case.order.hardware, case.layout
    refused = list(refusals(model, layout)) if spec.server.layout else []
    first = {each.key: each for each in reversed(refused)}
    for refusal in reversed(first.values()):
        yield Problem(
            path=(*path, refusal.key),
            what=f"{model.repository}: {refusal.why}",
            got=shown(getattr(layout, refusal.key)),
            allowed=", ".join(allowed(model, hardware, layout, refusal.key)),
            fix=whole.fix,
        )
    if not refused:
        yield whole


def refused_machines(site: SiteConfig, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Machines whose configs Talos would refuse, or whose image no factory builds, at the keys that `values` hold."""
    if site.cluster.machines is not None:
        refused = problems_of(site.name, site.cluster.machines, versions.load())
        yield from machine_keys.problems(refused, values)


def incompatible(site: SiteConfig, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Rows of the compatibility table that speak about the pinned versions and this site."""
    for conflict in conflicts.conflicts(versions.load(), site):
        named = [(fact, value, key) for fact, (value, key) in conflict.found.items()]
        said = " with ".join(f"{fact} {value} ({origins.get(key, key)})" for fact, value, key in named)
        own = next((key for _, _, key in named if not key.startswith(("versions.", "catalogue."))), "")
        theirs = origins.get(named[0][2])
        yield Problem(
            path=tuple(own.split(".")) if own else tuple(named[0][2].split(".")[1:]),
            what=f"{conflict.row.verdict}: {said}: {conflict.row.text}",
            fix=f"{conflict.row.fix} (stacks/facts/compatibility.yaml: {conflict.row.id}; "
            f"source: {conflict.row.source})",
            file="" if own or not theirs else theirs.file,
            line=None if own or not theirs else theirs.line,
        )
