"""The nearest fix for an order that does not work. A fix is an order that was proven, and what it changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from floor import gpu_nodes
from floor.counts import counted
from floor.revision_ids import RevisionId
from stacks.facts.hardware import GpuSlice, other_kinds
from stacks.facts.mig import layout_of
from stacks.proof.adapter_turns import turns
from stacks.proof.cache import BLOCK_TOKENS
from stacks.proof.case import Case
from stacks.proof.demand import METRICS, NO_TARGETS, Slo
from stacks.proof.ends import CALM
from stacks.proof.layouts import candidates, over
from stacks.proof.online_quantisation import as_stored
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.search import best
from stacks.proof.serving import Steady

# Targets and loads that a fix names keep this distance to what was computed.
_MARGIN = 0.05
# Times that targets are raised and proven again.
_ROUNDS = 6
# No fix goes below this where the site has as many.
FEWEST_REPLICAS = 2


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One way out."""

    text: str
    """What to change, in terms of the site's keys."""
    order: Order
    proof: Proof

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.proof.case.gpus


def nearest(proof: Proof, most: int = 3) -> list[Fix]:
    """Up to `most` fixes, nearest first: what needs no more GPUs, then few more, then what gives something up.

    Empty where the proof holds. Every fix was proven to hold.
    """
    if proof.holds:
        return []
    offered: list[Fix] = []
    for steps in (_settings, _sizes, _concessions):
        fixes = [
            Fix(text=text, order=order, proof=proven)
            for text, order in steps(proof.case)
            if (proven := prove(order)).holds
        ]
        for fix in sorted(fixes, key=lambda fix: fix.gpus):
            if len(offered) < most and all(_outcome(fix) != _outcome(other) for other in offered):
                offered.append(fix)
        # What gives something up is offered only where nothing else works.
        if offered and steps is _sizes:
            break
    return offered


def steadier(proof: Proof) -> list[Fix]:
    """What makes an uncertain order hold over its whole band: more replicas, raised targets. Each was proven to."""
    order = proof.order
    fixes = []
    if order.replicas and (wanted := proof.ends.slow.replicas):
        wider, kept = _same_layout(replace(order, replicas=wanted), proof)
        if wider.verdict == "holds":
            more = counted(wider.case.gpus - proof.case.gpus, "GPU")
            text = f"raise server.replicas from {order.replicas} to {wanted} ({more} more){kept}"
            fixes.append(Fix(text=text, order=wider.order, proof=wider))
    raised, kept = proof, ""
    # A raised target of gaps allows larger batches, which move the others.
    for _ in range(_ROUNDS):
        slow, kinds = raised.ends.slow.steady, {doubt.kind for doubt in raised.ends.doubts}
        if not slow.stable:
            # A batch that a target keeps small carries too little there.
            free, _ = _same_layout(replace(order, slo=NO_TARGETS), proof)
            slow, kinds = free.ends.slow.steady, set(METRICS)
        if raised.verdict == "holds" or not slow.stable:
            break
        raised, kept = _same_layout(replace(order, slo=_raised(raised.order.slo, slow, kinds)), proof)
    if raised.verdict == "holds":
        fixes.append(Fix(text=f"{_targets(order, raised.order)}{kept}", order=raised.order, proof=raised))
    return fixes


def carrying(proof: Proof, requests_per_s: float) -> Fix | None:
    """The fewest further replicas that carry so many requests at the slow end of the band; None where none do."""
    order, count = proof.order, proof.case.replicas
    if not (carried := proof.ends.slow.capacity_requests_per_s / count):
        return None
    # Each replica carries as much as another, but for what the search leaves open.
    first = max(count + 1, math.ceil(requests_per_s / carried))
    for wanted in range(first, first + 1 + math.ceil(first * _MARGIN)):
        wider, kept = _same_layout(replace(order, replicas=wanted), proof)
        if wider.ends.slow.capacity_requests_per_s >= requests_per_s:
            more = counted(wider.case.gpus - proof.case.gpus, "GPU")
            key = ".".join((*RevisionId.of(order.name).path, "server", order.replicas_key))
            text = f"raise {key} from {count} to {wanted} ({more} more){kept}"
            return Fix(text=text, order=wider.order, proof=wider)
    return None


def _same_layout(order: Order, before: Proof) -> tuple[Proof, str]:
    """The order on the layout that it has today, and what the site must set for it: a weaker target, or more replicas,
    may let the proof choose a smaller one."""
    layout, proof = before.case.layout, prove(order)
    if proof.case.layout == layout:
        return proof, ""
    gone = " instead of server.gpus" if order.gpus else ""
    return prove(replace(order, layout=layout, gpus=None)), f" and set server.layout to {layout.words}{gone}"


def _outcome(fix: Fix) -> tuple[object, ...]:
    """What is different after a fix; two fixes with one outcome are one."""
    case, order = fix.proof.case, fix.order
    beside = order.speculation is not None, order.adapters
    return case.layout, case.replicas, order.gpu, order.kv_dtype, order.context_tokens, order.load, order.slo, *beside


def _alone(order: Order) -> Iterator[tuple[str, Order]]:
    """Without what the site has beside the model itself."""
    if order.speculation:
        yield "take server.speculative out", replace(order, speculation=None)
    if order.adapters:
        for times in (2, 4, 8) if turns(order.adapters) else ():
            places = min(order.adapters.slots * times, len(order.adapters.loaded))
            wider = replace(order.adapters, places=places)
            yield f"raise server.resident_adapters to {places}", replace(order, adapters=wider)
        yield "take adapters out", replace(order, adapters=None)


def _settings(case: Case) -> Iterator[tuple[str, Order]]:
    """What needs no further GPU."""
    order = case.order
    kinds = {problem.kind for problem in case.problems}
    if "precision" in kinds:
        yield "keep the cache in bf16", replace(order, kv_dtype="bf16")
    if order.stored and kinds & {"precision", "illegal", "weights"}:
        yield "take server.quantization out", replace(order, model=as_stored(order.model, order.stored), stored=None)
    yield from _alone(order)
    if "setting" in kinds:
        most = min(case.held, order.max_num_batched_tokens or case.held)
        yield f"lower max_num_seqs to {most}, or leave it to the proof", replace(order, max_num_seqs=None)
    elif order.max_num_seqs:
        yield "leave max_num_seqs to the proof", replace(order, max_num_seqs=None)
    if order.prompt_step_tokens:
        yield "take server.long_prefill_token_threshold out", replace(order, prompt_step_tokens=None)
    if order.max_num_batched_tokens:
        yield "leave max_num_batched_tokens to the proof", replace(order, max_num_batched_tokens=None)
    if order.max_num_seqs and order.max_num_batched_tokens:
        yield (
            "leave max_num_seqs and max_num_batched_tokens to the proof",
            replace(order, max_num_seqs=None, max_num_batched_tokens=None),
        )
    if order.kv_dtype == "bf16" and "fp8" in order.hardware.flops:
        yield "keep the cache in fp8", replace(order, kv_dtype="fp8")
    if order.layout:
        other = best(replace(order, layout=None, gpus=order.layout.gpus))
        if other.layout != order.layout:
            text = f"lay a replica out as {other.layout} (layout: {other.layout.words})"
            yield text, replace(order, layout=other.layout)


def _sizes(case: Case) -> Iterator[tuple[str, Order]]:
    """More GPUs: more replicas, larger replicas, or both, as few as do."""
    order = case.order
    if order.replicas and order.load:
        wider = best(replace(order, replicas=None))
        if not wider.problems and wider.replicas > order.replicas:
            more = counted(wider.gpus - case.gpus, "GPU")
            size = f" of {wider.layout}" if wider.layout != case.layout else ""
            yield (
                f"raise replicas from {order.replicas} to {wider.replicas}{size} ({more} more)",
                replace(order, replicas=wider.replicas, layout=wider.layout, gpus=None),
            )
    if order.nodes > 1:
        yield from _more_nodes(case)
        return
    free = replace(order, layout=None, gpus=None)
    for wanted in (free, replace(free, replicas=None)):
        larger = best(wanted)
        if order.replicas and larger.replicas < min(order.replicas, FEWEST_REPLICAS):
            # A single replica would leave a gap at every rollout.
            larger = Case(replace(wanted, replicas=FEWEST_REPLICAS), larger.layout, FEWEST_REPLICAS)
        if larger.problems or (larger.layout.gpus == case.layout.gpus and larger.replicas <= case.replicas):
            continue
        size = f"give a replica {counted(larger.layout.gpus, 'GPU')} ({larger.layout})"
        if order.layout:
            size = f"lay a replica out as {larger.layout} (layout: {larger.layout.words})"
        if order.replicas and larger.replicas != order.replicas:
            size += f" and set replicas to {larger.replicas}"
        yield (
            f"{size}; {counted(larger.gpus, 'GPU')} in all",
            replace(order, layout=larger.layout, gpus=None, replicas=larger.replicas if order.load else order.replicas),
        )


def _more_nodes(case: Case) -> Iterator[tuple[str, Order]]:
    """The fewest further nodes of a replica with which the order works."""
    order = case.order
    for nodes in range(order.nodes + 1, gpu_nodes.MOST_OF_A_REPLICA + 1):
        wider = replace(order, nodes=nodes, layout=over(order.hardware, nodes))
        if not best(wider).problems:
            yield f"set server.nodes to {nodes}", wider
            return


def _concessions(case: Case) -> Iterator[tuple[str, Order]]:
    """Less context, a weaker target, less load, or another kind of GPU."""
    order = case.order
    shorter = min(case.longest, order.model.max_context_tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    if order.context_tokens and 0 < shorter < order.context_tokens:
        yield f"shorten the context to {shorter:,} tokens", replace(order, context_tokens=shorter)
    raised: list[tuple[str, Order]] = []
    if order.load and not case.fit_problems:
        yield from _weaker(case)
        raised = list(_raised_targets(order))
        yield from raised
    if order.load and case.fit_problems and any(problem.kind == "context" for problem in case.problems):
        most = min(case.longest, order.model.max_context_tokens)
        prompt, answer = order.load.prompt_tokens, order.load.answer_tokens
        scale = most / (order.needed_context + 1) * (1 - _MARGIN)
        smaller = replace(
            order.load,
            prompt_tokens=replace(prompt, p50=prompt.p50 * scale, p95=prompt.p95 * scale),
            answer_tokens=replace(answer, p50=answer.p50 * scale, p95=answer.p95 * scale),
        )
        if 0 < scale < 1:
            yield f"limit requests to {most:,} tokens", replace(order, load=smaller, context_tokens=None)
    yield from _other_gpus(order, with_raised_targets=not raised)


def _other_gpus(order: Order, *, with_raised_targets: bool) -> Iterator[tuple[str, Order]]:
    """The kind of GPU that needs fewest of its kind, within the targets or, if need be, with raised ones."""
    others = [order.on(gpu) for gpu in other_kinds(order.gpu)]
    working = [("", case) for case in map(best, others) if not case.problems]
    if not working and order.load and with_raised_targets:
        raised = [(other, _within_reach(other)) for other in others]
        working = [(f", and {_targets(other, case.order)}", case) for other, case in raised if case]
    if working:
        more, fewest = min(working, key=lambda way: (way[1].gpus, way[1].order.hardware.memory_bytes))
        yield f"{_move(order, fewest)} ({fewest.layout}){more}", fewest.order


def _move(order: Order, case: Case) -> str:
    """What the site writes to have the model on the case's kind of GPU."""
    kind = case.order.hardware
    if isinstance(kind, GpuSlice):
        return f"write gpu_slice: {kind.profile}, on machines with mig: {layout_of(kind.profile)}"
    many = counted(case.gpus, "GPU")
    if isinstance(order.hardware, GpuSlice):
        return f"take gpu_slice out, for machines with whole GPUs: {many}"
    return f"use {case.order.gpu}: {many}"


def _weaker(case: Case) -> Iterator[tuple[str, Order]]:
    """The load that these replicas carry within the targets."""
    load = case.order.load
    carried = Proof(case).capacity_requests_per_s * (1 - _MARGIN)
    if load and carried > 0.01:
        order = replace(case.order, load=replace(load, requests_per_s=carried))
        yield f"lower the load to {carried:.3g} requests/s", order


def _raised_targets(order: Order) -> Iterator[tuple[str, Order]]:
    """Targets that this load can have, with the replicas that the site names or else with as many as it takes."""
    for replicas in dict.fromkeys((order.replicas, None)):
        case = _within_reach(replace(order, replicas=replicas))
        if case is None:
            continue
        text = _targets(order, case.order)
        if order.replicas and case.replicas != order.replicas:
            text += f" and set replicas to {case.replicas}; {counted(case.gpus, 'GPU')} in all"
        yield text, replace(case.order, layout=case.layout, gpus=None, replicas=case.replicas)
        return


def _within_reach(order: Order) -> Case | None:
    """The order with each missed target raised to what is computed; None where the load is too much without any."""
    free = best(replace(order, slo=NO_TARGETS))
    if free.problems:
        return None
    raised = order
    # A raised ITL target allows larger chunks, which moves the TTFT, and the other way round.
    for _ in range(_ROUNDS):
        case = best(raised)
        kinds = {problem.kind for problem in case.problems}
        if not kinds:
            return case
        slo = _raised(raised.slo, case.steady, kinds) if kinds <= set(METRICS) else _raised(raised.slo, free.steady)
        if slo == raised.slo:
            return None
        raised = replace(raised, slo=slo)
    return None


def _raised(slo: Slo, steady: Steady, kinds: Collection[str] = METRICS) -> Slo:
    """The targets, those of `kinds` at least at what is computed."""
    return Slo(
        tuple(
            replace(target, ms=max(target.ms, float(math.ceil(steady.figure_s(target) * 1e3 * (1 + _MARGIN)))))
            if target.metric in kinds
            else target
            for target in slo.targets
        )
    )


def _targets(before: Order, after: Order) -> str:
    old = before.slo.by_key
    changed = [f"{target.key} to {target.ms:.0f} ms" for target in after.slo.targets if target.ms != old[target.key]]
    return "raise " + " and ".join(changed)


def out_of_reach(proof: Proof) -> str:
    """What no layout of this GPU can do, as text; empty if it can meet the targets.

    Measured on a replica that has one request to itself, which is as fast as it gets.
    """
    order = proof.order
    load, slo, most = order.load, order.slo, order.hardware.gpus_per_node
    if load is None:
        return ""
    calm = replace(order, load=replace(load, requests_per_s=CALM), slo=NO_TARGETS, layout=None, gpus=None)
    cases = [Case(calm, layout, 1) for layout in candidates(order.model, order.hardware, gpus=None, most=most)]
    usable = [case for case in cases if not case.problems]
    missed = []
    for target in slo.targets:
        lowest = min((case.steady.figure_s(target) for case in usable), default=math.inf)
        if target.ms < lowest * 1e3 < math.inf:
            missed.append(f"{target.title} {lowest * 1e3:,.3g} ms")
    return f"the lowest that a node of {order.gpu} reaches: {', '.join(missed)}" if missed else ""


def tried(proof: Proof) -> str:
    """What `nearest` tried where it found nothing."""
    kinds = ", ".join(other_kinds(proof.order.gpu))
    load = "raised targets, " if proof.order.load else ""
    return (
        f"declare less load or a shorter context, or order a smaller model: python -m sitectl catalogue list; "
        f"tried without success: other layouts, more replicas, {load}{kinds}"
    )
