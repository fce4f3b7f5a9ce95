"""A site's models on its nodes: whether all fit together, and what a lost node or a rollout leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from components.specs.model_server import ModelServerSpec, PodPriority, pod_priority
from floor import gpu_nodes
from floor.counts import listed
from floor.problems import Problem
from floor.revision_ids import RevisionId
from stacks.facts.hardware import GPUS, GpuSlice, slice_name, slices_per_node
from stacks.facts.mig import layout_of, profile_of
from stacks.plan.block import keeping
from stacks.plan.infra_nodes import describe_infra
from stacks.plan.interim import Interim, described, interims
from stacks.plan.machine_documents import merged_keys
from stacks.plan.placement import Demand, Loss, Node, Placement, fits, nodes_taken, place, whole_nodes
from stacks.proof.case import Case
from stacks.proof.ends import Ends, Verdict
from stacks.proof.fixes import FEWEST_REPLICAS
from stacks.proof.proof import Proof
from stacks.site.demand import OrderedModelSpec
from stacks.site.machine import MachineKeys, NodeSpec
from stacks.site.machines import MachinesSpec
from stacks.site.model import SiteConfig

_LABEL = 12
# Lines of one kind that people read; the rest is a number, and in the data.
_MOST_LINES = 5
_WORST_FIRST = ("down", "degraded", "recovers", "spare")


def nodes_of(site: SiteConfig, *, dead: bool = False) -> list[Node] | None:
    """Nodes with GPUs that take replicas, by name, with dead ones or not; None where the site does not list them.

    A node whose GPUs are cut is one of another kind, which has as many slices.
    """
    machines = site.cluster.machines
    if machines is None:
        return None
    kinds = {
        name: _kind_of(site.cluster.gpu, machines, node)
        for name, node in sorted(machines.nodes.items())
        if node.role == "hgx" and (dead or not node.dead) and not _taint(machines, node)
    }
    return [Node(name=name, gpu=kind, gpus=slices_per_node(kind)) for name, kind in kinds.items()]


def resource_of(kind: str) -> str:
    """Name of the resource that a node of this kind offers."""
    gpu = GPUS[kind]
    return gpu_nodes.resource_of(gpu.profile if isinstance(gpu, GpuSlice) else "")


def cuts_gpus(site: SiteConfig) -> bool:
    """Whether a machine with GPUs names a layout for them, be it the one of whole GPUs."""
    machines = site.cluster.machines
    nodes = machines.nodes.values() if machines else ()
    return any(machines and node.role == "hgx" and merged_keys(machines, node).mig is not None for node in nodes)


def _kind_of(gpu: str, machines: MachinesSpec, node: NodeSpec) -> str:
    """What replicas take of a node: its whole GPUs, or the slices that all of them are cut into."""
    return slice_name(gpu, profile_of(merged_keys(machines, node).mig))


def _taint(machines: MachinesSpec, node: NodeSpec) -> str:
    """The taint that keeps replicas away from a node, or nothing."""
    return next(_repelling(merged_keys(machines, node).taints), "")


def _repelling(taints: Mapping[str, str]) -> Iterator[str]:
    """Those of the taints that replicas do not tolerate."""
    for key, value in taints.items():
        effect = value.rpartition(":")[2]
        if effect in {"NoSchedule", "NoExecute"} and (key, effect) != (gpu_nodes.TAINT_KEY, gpu_nodes.TAINT_EFFECT):
            yield key


def _without_inherited_taints(site: SiteConfig) -> tuple[SiteConfig, list[str]]:
    """The site without taints that every new HGX node would have too, and what was taken out of where."""
    machines = site.cluster.machines
    if machines is None:
        return site, []
    role = machines.roles.get("hgx", MachineKeys())
    ways, kept = [], []
    for where, taints in (("taints", machines.taints), ("roles.hgx.taints", role.taints)):
        repelling = list(_repelling(taints))
        ways += [f"take {key} out of cluster.machines.{where}" for key in repelling]
        kept.append({key: value for key, value in taints.items() if key not in repelling})
    roles = {**machines.roles, "hgx": role.model_copy(update={"taints": kept[1]})}
    free = machines.model_copy(update={"taints": kept[0], "roles": roles})
    return site.model_copy(update={"cluster": site.cluster.model_copy(update={"machines": free})}), ways


def _left_out(site: SiteConfig, *, dead: bool = False) -> str:
    """Nodes with GPUs that are not counted, and why."""
    machines = site.cluster.machines
    nodes = sorted(machines.nodes.items()) if machines else []
    skipped = []
    for name, node in nodes:
        taint = _taint(machines, node) if machines and node.role == "hgx" else ""
        gone = node.dead and not dead and node.role == "hgx"
        why = [*(["dead"] if gone else []), *([f"taint {taint}"] if taint else [])]
        skipped += [f"{name} ({', '.join(why)})"] if why else []
    return f"; not counted: {listed(skipped)}" if skipped else ""


def takes_whole_nodes(proof: Proof) -> bool:
    """Whether a replica takes every GPU of its nodes."""
    return proof.case.layout.gpus % slices_per_node(proof.order.gpu) == 0


def demands_of(proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec] | None = None) -> list[Demand]:
    """What the proven replicas take. specs: with the priorities that the site sets, for what a lost node does."""
    return [
        Demand(
            model=name,
            gpu=proof.order.gpu,
            gpus=proof.case.layout.gpus,
            replicas=proof.case.replicas,
            priority=pod_priority(
                specs[name].server if specs and name in specs else ModelServerSpec(),
                whole_nodes=takes_whole_nodes(proof),
            ),
        )
        for name, proof in sorted(proofs.items())
    ]


def whole_nodes_of(site: SiteConfig, proofs: Mapping[str, Proof]) -> frozenset[str]:
    """Nodes that the placement gives to one replica each, by name; none where the site does not list its nodes."""
    return whole_nodes(nodes_of(site) or [], demands_of(proofs))


def crowds(site: SiteConfig, proofs: Mapping[str, Proof], *, dead: bool = True) -> Iterator[Problem]:
    """Models that do not fit together with the others; none if all fit, or if the nodes are unknown.

    dead: whether nodes count that are; a site that takes a dead node out is not refused before it has.
    """
    nodes, demands = nodes_of(site, dead=dead), demands_of(proofs)
    if nodes is None or fits(nodes, demands):
        return
    placement = place(nodes, demands)
    ways = [_fewer(nodes, demands, proofs), _more_nodes(site, demands, dead=dead)]
    fix = "; or ".join(way for way in ways if way)
    for missing in placement.unplaced:
        free = [placement.free[node.name] for node in nodes if node.gpu == missing.gpu]
        left = f"{_units(sum(free), missing.gpu)} left beside the others on {_nodes_in_words(len(free), missing.gpu)}"
        left += f", at most {max(free)} on one" if free else ""
        taken = nodes_taken(missing, slices_per_node(missing.gpu))
        yield Problem(
            path=(*RevisionId.of(missing.model).path, "server", *proofs[missing.model].order.replicas_key.split(".")),
            what=f"{missing.replicas} of {proofs[missing.model].case.replicas} replicas find no room: each takes "
            f"{_units(missing.gpus, missing.gpu)} of {taken}; {left}{_left_out(site, dead=dead)}",
            fix=fix,
        )


def _fewer(nodes: Sequence[Node], demands: Sequence[Demand], proofs: Mapping[str, Proof]) -> str:
    """The cut of one model's replicas that gives up fewest GPUs, if its targets hold with what is left."""
    cuts = []
    for index, demand in enumerate(demands):

        def enough(replicas: int, index: int = index, demand: Demand = demand) -> bool:
            return fits(nodes, [*demands[:index], replace(demand, replicas=replicas), *demands[index + 1 :]])

        low, high = 0, demand.replicas
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if enough(middle) else (low, middle)
        if low and _holds(proofs[demand.model], low):
            gap = low < min(FEWEST_REPLICAS, demand.replicas)
            cuts.append((gap, demand.gpus * (demand.replicas - low), demand, low))
    if not cuts:
        return ""
    gap, _, demand, left = min(cuts, key=lambda cut: (cut[0], cut[1], cut[2].model))
    key = f"{'.'.join(RevisionId.of(demand.model).path)}.server.{proofs[demand.model].order.replicas_key}"
    cut = f"lower {key} from {demand.replicas} to {left}"
    return f"{cut}, which leaves no replica to answer during a rollout" if gap else cut


def _with(proof: Proof, replicas: int) -> Case:
    return proof.case.again(replicas=replicas)


def _holds(proof: Proof, replicas: int) -> bool:
    return not _with(proof, replicas).problems


def _verdict(proof: Proof, replicas: int) -> Verdict:
    return Ends(_with(proof, replicas)).verdict


def _more_nodes(site: SiteConfig, demands: Sequence[Demand], *, dead: bool) -> str:
    """More nodes; where these would have a taint of their role as well, it goes first."""
    open_site, ways = _without_inherited_taints(site)
    nodes = nodes_of(open_site, dead=dead) or []
    missing = place(nodes, demands).missing_nodes
    for kind, own in _by_kind(demands).items():
        there = any(node.gpu == kind for node in nodes)
        more = missing.get(kind) if there else _fewest(kind, own)
        if more:
            ways.append(f"add {more} {_plural('node', more)} of role hgx{_cut(kind)} to cluster.machines.nodes")
    return ", and ".join(ways)


def _cut(kind: str) -> str:
    """What a node of the kind has in addition, in words."""
    gpu = GPUS[kind]
    return f" with mig: {layout_of(gpu.profile)}" if isinstance(gpu, GpuSlice) else ""


def fewest_nodes(demands: Sequence[Demand]) -> int:
    """Nodes that these replicas take if they are packed: whole ones, and those of each slice."""
    return sum(_fewest(kind, own) for kind, own in _by_kind(demands).items())


def _fewest(kind: str, demands: Sequence[Demand]) -> int:
    node = Node(name="first", gpu=kind, gpus=slices_per_node(kind))
    return 1 + place([node], demands).missing_nodes.get(kind, 0)


def _by_kind(demands: Iterable[Demand]) -> dict[str, list[Demand]]:
    kinds: dict[str, list[Demand]] = {}
    for demand in sorted(demands, key=lambda demand: demand.gpu):
        kinds.setdefault(demand.gpu, []).append(demand)
    return kinds


def describe_placement(site: SiteConfig, proofs: Mapping[str, Proof], specs: Mapping[str, OrderedModelSpec]) -> str:
    """The site's placement as text for people, a few lines for any number of nodes; nothing without models."""
    if not proofs:
        return ""
    nodes, demands = nodes_of(site), demands_of(proofs, specs)
    if nodes is None:
        wanted = [
            f"{_units(_taken(own), kind)} are needed, on at least {_nodes_in_words(_fewest(kind, own), kind)}"
            for kind, own in _by_kind(demands).items()
        ]
        return f"placement: unknown, as cluster.kubeconfig does not list the nodes. {'; '.join(wanted)}"
    placement = place(nodes, demands)
    if not placement.fits:
        short = crowds(site, proofs, dead=False)
        return "\n".join(["placement: DOES NOT FIT", *(_line(problem.path[1], problem.what) for problem in short)])
    meanwhile = interims(placement.losses, proofs)
    lowest = min((spec.server.least for spec in specs.values() if spec.server.scaling), default=2)
    lines = [_headline(nodes, demands, placement, meanwhile, lowest)]
    lines += [_line("free", _free(site, nodes, placement))]
    lines += _lines("lost node", _losses(placement, proofs))
    lines += _lines("meanwhile", described(meanwhile))
    lines += [_line("priority", text) for text in _raised(nodes, demands, placement)]
    lines += [_line("rollout", _rollout(placement, proofs))]
    if placement.whole and any(demand.gpus < slices_per_node(demand.gpu) for demand in demands):
        lines.append(_line("kept whole", f"{listed(placement.whole)}, which smaller replicas take last"))
    if infra := describe_infra(site):
        lines.append(_line("CPU nodes", infra))
    if placement.crowded:
        lines.append(_line("order", _order(site, placement)))
    return "\n".join(lines)


def _headline(
    nodes: Sequence[Node], demands: Sequence[Demand], placement: Placement, meanwhile: Sequence[Interim], lowest: int
) -> str:
    parts = []
    for kind in _kinds(nodes):
        sizes = [node.gpus for node in nodes if node.gpu == kind]
        needed = _taken(demand for demand in demands if demand.gpu == kind)
        parts.append(f"{needed:,} of {_units(sum(sizes), kind)} on {_nodes_in_words(len(sizes), kind)}")
    bears = "a replica of every model outlives any one node"
    if not placement.survives_a_node:
        bears = "A LOST NODE ENDS A MODEL"
    elif not all(interim.replicas for interim in meanwhile):
        bears = "A LOST NODE STOPS A MODEL UNTIL IT HAS STARTED ELSEWHERE"
    elif lowest <= 1:
        bears = "A LOST NODE STOPS A MODEL THAT IS DOWN TO ONE REPLICA"
    return f"placement: fits, {bears}. {'; '.join(parts)}"


def _kinds(nodes: Iterable[Node]) -> list[str]:
    return sorted({node.gpu for node in nodes})


def _taken(demands: Iterable[Demand]) -> int:
    return sum(demand.gpus * demand.replicas for demand in demands)


def _free(site: SiteConfig, nodes: Sequence[Node], placement: Placement) -> str:
    left = {node.name: placement.free[node.name] for node in nodes}
    free = {kind: sum(left[node.name] for node in nodes if node.gpu == kind) for kind in _kinds(nodes)}
    whole = [node.name for node in nodes if left[node.name] == node.gpus]
    parts = [f"{left[node.name]} on {node.name}" for node in nodes if 0 < left[node.name] < node.gpus]
    text = ", ".join(_units(count, kind) for kind, count in free.items())
    if whole:
        text += f"; whole nodes: {listed(whole)}"
    return text + (f"; fragments: {listed(parts)}" if parts else "") + _left_out(site)


def _losses(placement: Placement, proofs: Mapping[str, Proof]) -> Iterator[str]:
    """One line for all nodes whose failure does the same."""
    alike: dict[tuple[str, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]], list[Loss]] = {}
    for loss in placement.losses:
        alike.setdefault((loss.verdict, loss.missing, loss.moved), []).append(loss)
    worst_first = sorted(alike.items(), key=lambda group: _WORST_FIRST.index(group[0][0]))
    for (verdict, missing, _), losses in worst_first[:_MOST_LINES]:
        names = listed([loss.node for loss in losses])
        if verdict == "spare":
            yield f"{names}: holds, no replica is there"
        elif verdict == "recovers":
            there = f", where {_moved(losses[0])} make room and start elsewhere" if losses[0].moved else ""
            yield f"{names}: holds once its replicas have started on other nodes{there}"
        else:
            left = [(model, proofs[model], proofs[model].case.replicas - count) for model, count in missing]
            yield f"{names}: {listed((_fewer_left(model, proof, count) for model, proof, count in left), '; ')}"
    if rest := sum(len(losses) for _, losses in worst_first[_MOST_LINES:]):
        yield f"{rest} {_plural('node', rest)} more: no worse"


def _moved(loss: Loss) -> str:
    return listed([f"{count} of {model}" for model, count in loss.moved])


def _raised(nodes: Sequence[Node], demands: Sequence[Demand], placement: Placement) -> Iterator[str]:
    """Models that a priority of their own would serve on after a lost node, where what makes room finds room too."""
    short = {model for loss in placement.losses for model in loss.models}
    for index, demand in enumerate(demands):
        if demand.model not in short or demand.priority.preempts:
            continue
        others = [other.priority.value for other in demands if other is not demand]
        higher = max([demand.priority.value, *(value + 1 for value in others)])
        raised = replace(demand, priority=PodPriority(value=higher, preempts=True))
        after = place(nodes, [*demands[:index], raised, *demands[index + 1 :]]).losses
        better = [new for old, new in zip(placement.losses, after, strict=True) if old.missing and not new.missing]
        worse = [new for old, new in zip(placement.losses, after, strict=True) if new.missing and new != old]
        if better and not worse:
            yield (
                f"{'.'.join(RevisionId.of(demand.model).path)}.server.priority: {higher} would keep all its replicas "
                f"after the loss of {listed([loss.node for loss in better])}: for it {_moved(better[0])} make "
                "room and start elsewhere"
            )


def _fewer_left(model: str, proof: Proof, left: int) -> str:
    if not left:
        return f"{model} has no replica until a node is back"
    text = f"{model} has {left} of {proof.case.replicas} replicas"
    if proof.order.load is None:
        return text
    return f"{text} and {keeping(proof, _verdict(proof, left))}"


def _rollout(placement: Placement, proofs: Mapping[str, Proof]) -> str:
    """Replicas are replaced one after the other, without a surge (components/models/model_server.py)."""
    room = [model for model, fitting in placement.surge.items() if fitting]
    counts = {name: proof.case.replicas for name, proof in sorted(proofs.items())}
    single = [name for name, count in counts.items() if count == 1]
    fewer = {name: _verdict(proofs[name], count - 1) for name, count in counts.items() if count > 1}
    late = [name for name, verdict in fewer.items() if verdict == "fails"]
    maybe = [name for name, verdict in fewer.items() if verdict == "uncertain"]
    text = "needs no extra GPU, as a replica stops before its successor starts"
    text += f"; without a replica meanwhile: {listed(single)}" if single else ""
    text += f"; beyond their targets meanwhile: {listed(late)}" if late else ""
    text += f"; uncertain meanwhile: {listed(maybe)}" if maybe else ""
    return f"{text}; room for one more replica of {listed(room)}" if room else f"{text}; no room for one more of any"


def _order(site: SiteConfig, placement: Placement) -> str:
    """The scheduler spreads replicas and does not pack them, so that the order of their start decides."""
    count = placement.uncrowded_nodes.get(site.cluster.gpu)
    more = f", or have {count} {_plural('node', count)} more" if count else ""
    return (
        f"{listed(placement.crowded)} may find no room if smaller replicas start first, as the scheduler spreads and "
        f"does not pack; start the large ones first{more}"
    )


def _nodes_in_words(count: int, kind: str) -> str:
    return f"{count:,} {_plural('node', count)} of {slices_per_node(kind)} {kind}"


def _units(count: int, kind: str) -> str:
    """So many GPUs, or slices, of a kind."""
    return f"{count:,} {_plural('slice' if isinstance(GPUS[kind], GpuSlice) else 'GPU', count)}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _lines(label: str, texts: Iterable[str]) -> Iterator[str]:
    """A line for each, of which the first has the label."""
    for number, text in enumerate(texts):
        yield _line("" if number else label, text)
