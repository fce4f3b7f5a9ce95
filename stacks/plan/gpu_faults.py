"""Nodes with a faulty GPU: which of them the watcher may take out, as the rest serves every model's least."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from floor import gpu_nodes
from floor.counts import listed
from floor.problems import Problem
from services.load_test.verdict import Floors, LoadTest
from services.watcher.settings import NodeOffer
from stacks.facts.hardware import GPUS, Gpu
from stacks.plan.placement import Node, place
from stacks.plan.placing import demands_of, nodes_of, resource_of
from stacks.plan.scaling import at_least
from stacks.proof.collectives import links_between
from stacks.proof.ends import Ends
from stacks.proof.proof import Proof
from stacks.proof.roofline import CALIBRATION
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig

# An estimate: far below GPUs that are well, far above one that throttles or has lost its links.
_LEAST = 0.7
_PATH = ("monitoring", "gpu_faults", "on_fault")
Proofs = Mapping[str, Proof]
Specs = Mapping[str, OrderedModelSpec]


def node_offers(site: SiteConfig) -> dict[str, NodeOffer]:
    """What each node must offer that takes replicas."""
    tested = site.monitoring.gpu_faults.new_nodes == "load_test"
    return {
        node.name: NodeOffer(
            resource=resource_of(node.gpu),
            count=node.gpus,
            gpus=round(node.gpus * GPUS[node.gpu].share),
            load_test=_test_of(node) if tested else "",
        )
        for node in nodes_of(site) or ()
    }


def load_tests(site: SiteConfig) -> list[LoadTest]:
    """One for each kind of node that has any."""
    if site.monitoring.gpu_faults.new_nodes != "load_test":
        return []
    kinds = {name: node for node in nodes_of(site) or () if (name := _test_of(node))}
    return [
        LoadTest(name=name, gpus=node.gpus, floors=load_floors(GPUS[node.gpu], node.gpus))
        for name, node in sorted(kinds.items())
    ]


def _test_of(node: Node) -> str:
    """Name of its load test. Slices have none: no slice reaches another one."""
    return f"{node.gpu}-{node.gpus}" if resource_of(node.gpu) == gpu_nodes.RESOURCE else ""


def load_floors(gpu: Gpu, gpus: int) -> Floors:
    """What such GPUs must reach: a part of what the proof has kernels reach."""
    links = links_between(gpu, gpus, latency_s=CALIBRATION.collective_s, share=CALIBRATION.link)
    return Floors(
        tflops=_LEAST * gpu.flops["bf16"] * CALIBRATION.compute["none"] / 1e12,
        memory_gb_s=_LEAST * gpu.memory_bytes_per_s * CALIBRATION.bandwidth["none"] / 1e9,
        all_reduce_gb_s=_LEAST * links.bytes_per_s / 1e9,
    )


def losses(site: SiteConfig, proofs: Proofs, specs: Specs) -> dict[str, str]:
    """Each node -> what the rest does not serve without it; empty where it serves every model's least.

    A model that has fewer replicas afterwards is served where those that are left carry its load, however the proof's
    range turns out.
    """
    least = {name: at_least(proof, specs[name]) for name, proof in proofs.items()}
    placement = place(nodes_of(site) or [], demands_of(least, specs))
    return {
        loss.node: listed([text for model, count in loss.missing for text in _short(model, least[model], count)])
        for loss in placement.losses
    }


def _short(model: str, proof: Proof, missing: int) -> Iterator[str]:
    wanted = proof.case.replicas
    left = wanted - missing
    if left < 1 or Ends(proof.case.again(replicas=left)).verdict != "holds":
        yield f"{model} would have {left} of {wanted} replicas"


def problems(site: SiteConfig, proofs: Proofs, specs: Specs) -> Iterator[Problem]:
    """A site that asks for drains of which none would ever be made."""
    lost = losses(site, proofs, specs)
    if site.monitoring.gpu_faults.on_fault == "drain" and lost and all(lost.values()):
        yield Problem(
            path=_PATH,
            what=f"drains no node, as the rest carries the loss of none: without {next(iter(lost))}, "
            f"{next(iter(lost.values()))}",
            got="drain",
            allowed="drain where the rest serves every model's least without one of the nodes",
            fix="add a node of role hgx, lower replicas or scaling.least, or set on_fault to alert",
        )


def describe_gpu_faults(site: SiteConfig, proofs: Proofs, specs: Specs) -> str:
    """What the watcher would do, as text for people; empty where none runs."""
    spec = site.monitoring.gpu_faults
    if not spec.watches:
        return ""
    lines = ["GPU faults:"]
    if spec.on_fault == "drain":
        lost = losses(site, proofs, specs)
        carried = listed([node for node, short in lost.items() if not short])
        lines.append(f"  may be drained  {carried}: one at a time, one an hour, where DCGM and the cluster agree")
        lines += [f"  not drained     {node}: {short}; alerts alone" for node, short in lost.items() if short]
    if spec.checks:
        lines += [
            "  new nodes       take replicas once their GPUs are offered, validated, measured and without a fault",
            *(f"  under load      {_demanded(test)}" for test in load_tests(site)),
            "  nodes now       stay in service where a replica is ready; the others are checked as new ones",
        ]
    return "\n".join(lines)


def _demanded(test: LoadTest) -> str:
    floors = test.floors
    among = f", {floors.all_reduce_gb_s:.0f} GB/s all-reduce" if test.gpus > 1 else ""
    alone = f"{floors.tflops:.0f} TFLOP/s bf16, {floors.memory_gb_s:.0f} GB/s memory"
    return f"{test.name}: at least {alone}{among} ({100 * _LEAST:.0f} % of what the proof counts with)"
