"""Checks of a site that is valid by itself: its answers with its times, its versions with its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from floor.counts import listed
from floor.problems import Problem
from floor.spec import MOST_SECONDS
from stacks.facts.hardware import GPUS
from stacks.facts.versions import Versions
from stacks.plan import conflicts
from stacks.plan.calibration import named
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.plan.settings.gateway import token_s
from stacks.proof.fixes import steadier
from stacks.proof.proof import Proof
from stacks.site.machine import MachineKeys
from stacks.site.model import SiteConfig
from stacks.site.reading.origins import Origin

_LONGEST_START_S = 86_400


def cut_answers(plan: RevisionPlan) -> Iterator[Problem]:
    """Answers of the declared load that their request's time ends, even on the fastest engine of the band."""
    if (cut := _cut(plan)) and cut.span[0] > plan.spec.request_timeout_s:
        yield _ends_answers(plan, cut, "ends answers that the declared load has")


def endless_starts(plan: RevisionPlan, site: SiteConfig) -> Iterator[Problem]:
    """A replica that takes more than a day to start, though it starts alone: a rate in another unit."""
    start_s = plan.proof.start_s()
    if start_s > _LONGEST_START_S and plan.spec.server.engine == "vllm":
        on_nodes = site.storage.weights.place == "nodes"
        key = "weights.node_read_bytes_per_s" if on_nodes else "read_bytes_per_s"
        rate = site.storage.replica_reads_bytes_per_s
        yield Problem(
            path=("storage", *key.split(".")),
            what=f"lets a replica of {plan.id.name} start in {start_s / 86_400:,.1f} days",
            got=f"{rate:g} bytes per second",
            allowed="what lets it start within a day",
            fix=f"write {rate * math.ceil(start_s / _LONGEST_START_S):g} or more, in bytes, as is measured",
        )


def across_processors(site: SiteConfig, proofs: Mapping[str, Proof]) -> Iterator[Problem]:
    """Replicas on GPUs of both processors of a node, where its kubelet admits no pod that needs both."""
    machines = site.cluster.machines
    if machines is None or site.cluster.gpu not in GPUS:
        return
    half = GPUS[site.cluster.gpu].gpus_per_node // 2
    large = [name for name, proof in proofs.items() if proof.order.gpu in GPUS and proof.case.layout.gpus > half]
    if not large:
        return
    levels: list[tuple[tuple[str, ...], MachineKeys]] = [((), machines)]
    levels += [(("roles", role), keys) for role, keys in machines.roles.items() if role == "hgx"]
    levels += [(("nodes", name), node) for name, node in machines.nodes.items() if node.role == "hgx"]
    for where, keys in levels:
        if keys.kubelet_config.get("topologyManagerPolicy") == "single-numa-node":
            yield Problem(
                path=("cluster", "machines", *where, "kubelet_config", "topologyManagerPolicy"),
                what=f"admits no pod on GPUs of both processors of a node (TopologyAffinityError), and {listed(large)} "
                f"takes more than {half} GPUs",
                got="'single-numa-node'",
                allowed="none, best-effort, restricted",
                fix="write restricted",
            )


def may_cut_answers(plan: RevisionPlan) -> Iterator[Problem]:
    """The same, where an engine within the band would end them."""
    if (cut := _cut(plan)) and cut.span[0] <= plan.spec.request_timeout_s < cut.span[1]:
        yield _ends_answers(plan, cut, "may end answers that the declared load has")


@dataclass(frozen=True)
class _Cut:
    """An answer of the declared load by itself, on a replica that has nothing else to do."""

    tokens: float
    least_s: float
    span: tuple[float, float]
    """Seconds at the fast and at the slow end of the band."""


def _cut(plan: RevisionPlan) -> _Cut | None:
    load, case = plan.proof.order.load, plan.proof.case
    if load is None or plan.proof.order.model.task != "generate":
        return None
    tokens, band = load.answer_tokens.p95, plan.proof.ends.band
    least_s = tokens * case.token_s(1)
    return _Cut(tokens, least_s, (least_s * band.low, least_s * band.high))


def _ends_answers(plan: RevisionPlan, cut: _Cut, what: str) -> Problem:
    enough = math.ceil(max(cut.tokens * token_s(plan.proof.case), cut.span[1]))
    raised = f"write {enough} or more, or " if enough <= MOST_SECONDS else ""
    fast, slow = cut.span
    return Problem(
        path=("models", plan.model, "request_timeout_s"),
        what=f"{what}: {cut.tokens:,.0f} tokens take {cut.least_s:,.0f} s or more, {fast:,.0f} to {slow:,.0f} over the "
        "band",
        got=str(plan.spec.request_timeout_s),
        fix=f"{raised}lower load.answer_tokens.p95",
    )


_MEASURE = "measure the model before clients rely on it"


def uncertain(plan: RevisionPlan, has_room: Callable[[Proof], bool]) -> Iterator[Problem]:
    """A model whose targets hang on where in the band its engine is. has_room: whether the nodes have it for a fix."""
    proof = plan.proof
    if proof.verdict != "uncertain":
        return
    end = "holds by the computed figures, but not at the slow end of their band"
    if not proof.holds:
        end = "does not hold by the computed figures, but does at the fast end of their band"
    ways = [fix.text for fix in steadier(proof) if has_room(fix.proof)]
    # Targets are the model's.
    key = "slo" if proof.order.slo.targets and not plan.id.group else "load"
    sure = f"to hold over the whole band, {', or '.join(ways)}; else {_MEASURE}" if ways else _MEASURE
    yield Problem(
        path=(*plan.id.path, *([] if plan.id.digest else [key])),
        what=f"{end}: {', and '.join(doubt.text for doubt in proof.ends.doubts)}",
        fix=sure,
    )


def incompatible(site: SiteConfig, pins: Versions, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Rows of the compatibility table that speak about the pinned versions and this site."""
    for conflict in conflicts.conflicts(pins, site):
        named = [(fact, value, key) for fact, (value, key) in conflict.named.items()]
        combination = " with ".join(f"{fact} {value} ({origins.get(key, key)})" for fact, value, key in named)
        own = next((key for _, _, key in named if not key.startswith(("versions.", "catalogue."))), "")
        theirs = origins.get(named[0][2])
        yield Problem(
            path=tuple(own.split(".")) if own else tuple(named[0][2].split(".")[1:]),
            what=f"{conflict.row.verdict}: {combination}: {conflict.row.text}",
            fix=f"{conflict.row.fix} (stacks/facts/compatibility.yaml: {conflict.row.id}; "
            f"source: {conflict.row.source})",
            file="" if own or not theirs else theirs.file,
            line=None if own or not theirs else theirs.line,
        )


def outdated_calibrations(models: Iterable[ModelPlan]) -> Iterator[Problem]:
    """Calibrations that do not count."""
    for model in models:
        own, order, digest = model.stable.spec.calibration, model.stable.proof.order, model.stable.spec.digest
        if own and order.measured is None:
            engine = named(order.engine) if order.engine else None
            yield Problem(
                path=("models", model.name, "calibration"),
                what="does not count, as it was measured on other GPUs, another engine or with other settings: the "
                "proof takes published figures",
                got=f"{_of_engine(own.gpu, own.engine, own.settings)}; now {_of_engine(order.gpu, engine, digest)}",
                fix="run sitectl calibrate once the replicas have run so for two hours, or take the key out",
            )


def _of_engine(gpu: str, version: str | None, settings: str) -> str:
    return f"{gpu}, vLLM {version or 'of no known version'}, settings {settings}"
