"""The nearest way out of an order that does not work. A fix is an order that was proven, and what it changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stacks.hardware import GPUS
from stacks.proof.case import Case
from stacks.proof.memory import BLOCK_TOKENS
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.search import best

# Targets and loads that a fix names keep this distance to what was computed.
_MARGIN = 0.05
# No fix goes below this where the site has as many.
FEWEST_REPLICAS = 2


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One way out."""

    text: str
    """What to change, in the site's words."""
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
    found: list[Fix] = []
    for steps in (_settings, _sizes, _concessions):
        fixes = [
            Fix(text=text, order=order, proof=proven)
            for text, order in steps(proof.case)
            if (proven := prove(order)).holds
        ]
        for fix in sorted(fixes, key=lambda each: each.gpus):
            if len(found) < most and all(_outcome(fix) != _outcome(other) for other in found):
                found.append(fix)
        # What gives something up is offered only where nothing else works.
        if found and steps is _sizes:
            break
    return found


def _outcome(fix: Fix) -> tuple[object, ...]:
    """What is different after a fix; two fixes with one outcome are one."""
    case, order = fix.proof.case, fix.order
    return case.layout, case.replicas, order.gpu, order.kv_dtype, order.context_tokens, order.load, order.slo


def _settings(case: Case) -> Iterator[tuple[str, Order]]:
    """What needs no further GPU."""
    order = case.order
    kinds = {problem.kind for problem in case.problems}
    if "precision" in kinds:
        yield "keep the cache in bf16", replace(order, kv_dtype="bf16")
    if "knob" in kinds:
        yield f"lower max_num_seqs to {case.held}, or leave it to the proof", replace(order, max_num_seqs=None)
    if order.max_num_batched_tokens:
        yield "leave max_num_batched_tokens to the proof", replace(order, max_num_batched_tokens=None)
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
            yield (
                f"raise replicas from {order.replicas} to {wider.replicas} ({wider.gpus - case.gpus:+d} GPUs)",
                replace(order, replicas=wider.replicas, layout=wider.layout, gpus=None),
            )
    free = replace(order, layout=None, gpus=None)
    for wanted in (free, replace(free, replicas=None)):
        larger = best(wanted)
        if order.replicas and larger.replicas < min(order.replicas, FEWEST_REPLICAS):
            # A single replica would leave a gap at every rollout.
            larger = Case(replace(wanted, replicas=FEWEST_REPLICAS), larger.layout, FEWEST_REPLICAS)
        if larger.problems or (larger.layout.gpus == case.layout.gpus and larger.replicas <= case.replicas):
            continue
        size = f"give a replica {larger.layout.gpus} GPUs ({larger.layout})"
        if order.layout:
            size = f"lay a replica out as {larger.layout} (layout: {larger.layout.words})"
        if order.replicas and larger.replicas != order.replicas:
            size += f" and set replicas to {larger.replicas}"
        yield (
            f"{size}; {larger.gpus} GPUs in all",
            replace(order, layout=larger.layout, gpus=None, replicas=larger.replicas if order.load else order.replicas),
        )


def _concessions(case: Case) -> Iterator[tuple[str, Order]]:
    """Less context, a weaker target, less load, or another kind of GPU."""
    order = case.order
    shorter = min(case.longest, order.model.max_context_tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    if order.context_tokens and 0 < shorter < order.context_tokens:
        yield f"shorten the context to {shorter:,} tokens", replace(order, context_tokens=shorter)
    if order.load and not case.fit_problems:
        yield from _weaker(case)
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
    others = [
        replace(
            order, gpu=gpu, layout=None, gpus=None, replicas=None, kv_dtype="fp8" if "fp8" in figures.flops else "bf16"
        )
        for gpu, figures in GPUS.items()
        if gpu != order.gpu
    ]
    working = [case for case in map(best, others) if not case.problems]
    if working:
        fewest = min(working, key=lambda each: (each.gpus, each.order.hardware.memory_bytes))
        yield f"use {fewest.order.gpu}: {fewest.gpus} GPUs ({fewest.layout})", fewest.order


def _weaker(case: Case) -> Iterator[tuple[str, Order]]:
    """Targets that an idle model keeps with as many replicas as it likes, and the load that these replicas carry."""
    order = case.order
    load = order.load
    if load is None:
        return
    carried = Proof(case).capacity_requests_per_s * (1 - _MARGIN)
    if carried > 0.01:
        yield f"lower the load to {carried:.3g} requests/s", replace(order, load=replace(load, requests_per_s=carried))
    slo = order.slo
    free = replace(order, slo=replace(slo, ttft_p95_ms=None, itl_p95_ms=None))
    eased = best(free)
    if eased.problems:
        return
    itl = eased.steady.itl_quantile_s(0.95) * 1e3 * (1 + _MARGIN)
    ttft = eased.steady.ttft_quantile_s(0.95) * 1e3 * (1 + _MARGIN)
    words, changed = [], {}
    if slo.itl_p95_ms is not None and itl > slo.itl_p95_ms:
        changed["itl_p95_ms"] = float(math.ceil(itl))
        words.append(f"itl_p95_ms to {math.ceil(itl)}")
    if slo.ttft_p95_ms is not None and ttft > slo.ttft_p95_ms:
        changed["ttft_p95_ms"] = float(math.ceil(ttft))
        words.append(f"ttft_p95_ms to {math.ceil(ttft)}")
    if words:
        relaxed = replace(slo, **changed)
        yield f"raise {' and '.join(words)}", replace(order, slo=relaxed, layout=eased.layout, replicas=eased.replicas)
