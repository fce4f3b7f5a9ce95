"""Models whose replicas span several nodes: what a replica needs of the site, and what it cannot have yet (ADR 62).

The proof decides whether the model can be cut so, and whether the links carry it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.rdma_devices import RdmaDevicesSpec
from floor.problems import Path, Problem, shown
from stacks.facts.hardware import GPUS, USUAL_GPU
from stacks.site.reading.levels import MACHINES
from stacks.site.reading.raw import at, mapping, number

_SYSTEM: Path = ("cluster", "rdma_devices", "system")
_RDMA: Path = (*MACHINES, "hgx", "rdma")
# Keys of a model with which no group of pods is built, and why.
_WITHOUT: Mapping[tuple[str, ...], str] = {
    ("server", "gpus"): "is of a replica on one node, and with server.nodes it has every GPU of its nodes",
    ("server", "gpu_slice"): "is a part of one GPU, and with server.nodes a replica has whole nodes",
    ("server", "speculative"): "does not work with pipeline stages: vLLM does not start",
    ("server", "kv_offload_gib"): "is memory that all ranks of a replica share, and with server.nodes they share none",
    ("server", "scaling"): "scales Deployments, and with server.nodes there is none",
    ("adapters",): "are not proven on pipeline stages",
    ("canary",): "would have groups of nodes of its own, which no rollout of the two is built for",
    ("dedicated",): "would have groups of nodes of their own, beside which no rollout was tried",
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What does not go together, as far as the values can be understood."""
    spanning = _spanning(values)
    for name in sorted(spanning):
        other, _, ending = name.rpartition("-")
        if other in spanning and ending.isdigit():
            yield Problem(
                path=("models", name),
                what=f"is the name of a pod of {other}, whose groups are {other}-0, {other}-1 and so on",
                fix="rename one of the two",
            )
    for name, model in mapping(values.get("models")).items():
        path: Path = ("models", str(name), "server", "nodes")
        if at(model, "canary", "server", "nodes") is not None:
            yield Problem(
                path=("models", str(name), "canary", "server", "nodes"),
                what="is of a canary, whose replicas are one pod each",
                fix="take it out",
            )
        if count := spanning.get(str(name)):
            yield from _of_model(str(name), mapping(model))
            yield from _layout(values, str(name), mapping(model), count)
            # A simulator is whole in each pod of its group, and sends the others nothing.
            if at(model, "server", "engine") != "simulator":
                yield from _links(values, path, shown(count))
            yield from _watcher(values, path, shown(count))
            if str(name)[:1].isdigit():
                yield Problem(
                    path=("models", str(name)),
                    what="names a Service of its groups, which begins with a letter",
                    fix=f"rename it, for example to m-{name}",
                )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Links that the program does not see."""
    models = mapping(values.get("models"))
    joined = [name for name in _spanning(values) if at(models[name], "server", "engine") != "simulator"]
    if joined and not isinstance(at(values, *MACHINES), Mapping):
        yield Problem(
            path=_SYSTEM,
            what="must offer InfiniBand devices to models with server.nodes, and the program does not see the links of "
            "an existing cluster: over RoCE the engines of a replica do not find each other's cards",
            fix="have InfiniBand between the nodes with GPUs, or take server.nodes out",
        )


def _spanning(values: Mapping[str, Any]) -> dict[str, int]:
    """Models whose replicas have more than one node each, and how many."""
    models = mapping(values.get("models"))
    counts = {str(name): int(number(at(model, "server", "nodes")) or 1) for name, model in models.items()}
    return {name: count for name, count in counts.items() if count > 1}


def _of_model(name: str, model: Mapping[str, Any]) -> Iterator[Problem]:
    for keys, why in _WITHOUT.items():
        if at(model, *keys):
            yield Problem(path=("models", name, *keys), what=why, fix=f"take it out, or models.{name}.server.nodes")


def _layout(values: Mapping[str, Any], name: str, model: Mapping[str, Any], nodes: int) -> Iterator[Problem]:
    """A layout has every GPU of the nodes, whole stages on each, and no rank that shares a layer with another node."""
    layout, gpu = at(model, "server", "layout"), at(values, "cluster", "gpu") or USUAL_GPU
    if not isinstance(layout, Mapping) or gpu not in GPUS:
        return
    node = GPUS[str(gpu)].gpus_per_node
    tensor, data, stages = (int(number(layout.get(key, 1)) or 1) for key in ("tensor", "data", "pipeline"))
    if data == 1 and tensor * stages == nodes * node and stages % nodes == 0:
        return
    yield Problem(
        path=("models", name, "server", "layout"),
        what=f"does not fill {nodes} nodes of {node} GPUs, with as many stages on each and no layer on two of them",
        got=f"tensor {tensor}, data {data}, pipeline {stages}",
        allowed=f"without data, tensor x pipeline of {nodes * node}, and pipeline a multiple of {nodes}",
        fix=f"write {{tensor: {node}, pipeline: {nodes}}}, or take layout out, which is the same",
    )


def _links(values: Mapping[str, Any], path: Path, got: str) -> Iterator[Problem]:
    system = at(values, *_SYSTEM) or RdmaDevicesSpec.model_fields["system"].default
    if system == "none":
        declared = f" and {'.'.join(_RDMA)} to infiniband" if isinstance(at(values, *MACHINES), Mapping) else ""
        yield Problem(
            path=path,
            what="needs RDMA between the nodes of a replica, and the site offers pods no device for it",
            got=f"{got} with {'.'.join(_SYSTEM)} none",
            allowed=f"1, or {'.'.join(_SYSTEM)}: network_operator",
            fix=f"set {'.'.join(_SYSTEM)} to network_operator{declared}, or take nodes out",
        )
    elif at(values, *_RDMA) == "roce":
        yield Problem(
            path=path,
            what="needs InfiniBand: over RoCE a pod needs a network device of the card too, which this program gives "
            "to none",
            got=f"{got} with {'.'.join(_RDMA)} roce",
            allowed=f"1, or {'.'.join(_RDMA)}: infiniband",
            fix="take nodes out; a model that one node does not hold needs nodes with InfiniBand",
        )


def _watcher(values: Mapping[str, Any], path: Path, got: str) -> Iterator[Problem]:
    """It knows pods that take requests, and none of those behind them."""
    faults = mapping(at(values, "monitoring", "gpu_faults"))
    for key, doing in (("on_fault", {"drain": "drain"}), ("new_nodes", {"check": "check", "load_test": "test"})):
        if (value := faults.get(key)) in doing:
            yield Problem(
                path=path,
                what=f"has pods that the watcher of GPU faults does not see, and it is to {doing[value]} nodes",
                got=got,
                allowed=f"1 with monitoring.gpu_faults.{key}: {value}",
                fix=f"take monitoring.gpu_faults.{key} out, or nodes",
            )
