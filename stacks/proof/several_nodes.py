"""What a replica over several nodes would hold, where no single node holds the model or the requests.

The proof names it so that a refusal shows whether more of the same GPUs would help at all, and the key that deploys
it: `server.nodes`. Pipelines over nodes are looked at, with tensor parallelism inside of each.
"""

from __future__ import annotations

import math
from dataclasses import replace

from floor.counts import counted
from stacks.facts.hardware import GpuSlice
from stacks.proof.case import Case
from stacks.proof.figures import shown
from stacks.proof.layouts import over
from stacks.proof.proof import Proof, prove
from stacks.proof.search import best

# Percentiles that a line shows.
_SHOWN = {"ttft_p95": "TTFT p95", "itl_p95": "ITL p95"}


def over_nodes(proof: Proof) -> Proof | None:
    """The cheapest layout over several nodes of this GPU; None where one node is enough, or where none helps, and for a
    slice, which reaches no other.

    It fits. It may need more replicas than the site has, or miss targets: see its order and its problems.
    """
    order = proof.order
    if not order.one_node or not proof.case.fit_problems or isinstance(order.hardware, GpuSlice):
        return None
    free = replace(order, layout=None, gpus=None)
    if not best(free).fit_problems:
        return None
    wider = [prove(replace(free, one_node=False, replicas=count)) for count in dict.fromkeys((order.replicas, None))]
    fitting = [other for other in wider if not other.case.fit_problems]
    return next((other for other in fitting if other.holds), fitting[0] if fitting else None)


def nodes_of(proof: Proof) -> int:
    """Nodes that all replicas take, as many for each as its GPUs fill."""
    case = proof.case
    return case.replicas * math.ceil(case.layout.gpus / proof.order.hardware.gpus_per_node)


def words(proof: Proof) -> str:
    """One sentence about `over_nodes`; empty where it is None."""
    wider = over_nodes(proof)
    if wider is None:
        return ""
    case = wider.case
    size = f"{case.replicas} x {case.layout}" if case.replicas > 1 else str(case.layout)
    text = f"{size} would hold it: " if wider.holds else f"{size} would fit: "
    text += f"{counted(case.gpus, 'GPU')} on {counted(nodes_of(wider), 'node')}, context {wider.memory['context']}"
    for key, title in _SHOWN.items():
        if key in wider.serving:
            text += f", {title} {shown(wider.serving[key].value)} ms"
    if not wider.holds:
        text += "; " + "; ".join(problem.text for problem in wider.problems)
    return f"{text} [estimated]; {_written(case)}"


def _written(case: Case) -> str:
    """What a site writes to have it."""
    gpu = case.order.hardware
    nodes, rest = divmod(case.layout.gpus, gpu.gpus_per_node)
    if rest or case.layout.data > 1 or case.layout.pipeline % nodes:
        return "the platform does not deploy it"
    usual = case.layout == over(gpu, nodes)
    written = f"server.nodes: {nodes} deploys" if usual else f"nodes: {nodes} and layout: {case.layout.words} deploy"
    return f"with InfiniBand between the nodes, {written} it"
