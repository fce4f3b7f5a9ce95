"""`gpu-nodes`: which of the known states each node with GPUs is in."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from floor.counts import counted
from sitectl.live import site_cluster
from sitectl.live.gpu_evidence import ClusterSeen, MachinesSeen, ask, evidence, machines_to_ask
from sitectl.live.gpu_states import RUNBOOK, GpuFinding, classify
from sitectl.live.site_cluster import SiteCluster
from sitectl.offline import checkout
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.cluster import PlannedNode
from stacks.plan.site_plan import SitePlan, plan_file
from talos.api.talosconfig import TalosconfigError, parse_talosconfig

if TYPE_CHECKING:
    from talos.api.client import MachineClient

MORE = f"""\
A node with GPUs offers them at the end of a chain: image, kernel modules, fabric manager, labels, validations, device
plugin. Each link waits without an error for the one before it, and `up` waits for the last. This shows for each node
the first link that is not there, by the machine's own API and by the objects of the cluster, with cause and fix.
{RUNBOOK} has all states.

\b
  python -m sitectl gpu-nodes prod            each node, while `up` waits too
  python -m sitectl gpu-nodes prod --json     the same as data

It needs the stack's kubeconfig and kubectl, and the addresses of the machines in reach where the program installed
them. It only reads. The exit status is 1 where a node is in another state than `well`, or none shows a GPU.
"""
_CALL_TIMEOUT_S = 20.0


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@pass_context
def command(context: CommandContext, *, site: str) -> int:
    file = checkout.site_files(context.project, [site])[site]
    plan = plan_file(file)
    with context.progress.layer(f"look at {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        # First, so that a cluster that does not answer is one error.
        cluster.version()
        machines = _machines(context, site, plan)
        findings = [classify(node) for node in evidence(plan, _objects(cluster), machines)]
    addresses = {node.name: node.spec.address for node in machines_to_ask(plan)}
    well = sum(finding.is_well for finding in findings)
    lines = [f"{site}: {counted(len(findings), 'node')} with GPUs, {well} well"]
    for finding in findings:
        lines += _words(finding, site, addresses)
    if not findings:
        lines.append(f"   no node of the cluster shows a GPU by a label or by what it offers; fix: {RUNBOOK}")
    record = {"site": site, "nodes": [_record(finding, site, addresses) for finding in findings]}
    context.say("\n".join(lines), record)
    return int(Exit.OK if findings and well == len(findings) else Exit.REFUSED)


def _objects(cluster: SiteCluster) -> ClusterSeen:
    return ClusterSeen(
        nodes=cluster.objects("nodes", ["nodes"]),
        pods=cluster.objects("Pods", ["pods"]),
        runtime_classes=cluster.objects("RuntimeClasses", ["runtimeclasses"]),
    )


def _machines(context: CommandContext, site: str, plan: SitePlan) -> MachinesSeen:
    nodes = machines_to_ask(plan)
    if not nodes:
        return MachinesSeen()
    text = site_cluster.pulumi(context.project, site, "stack", "output", "talosconfig", "--show-secrets", "--json")
    try:
        identity = parse_talosconfig(str(text)).identity
    except TalosconfigError as error:
        fix = "run `pulumi up`, which writes it into the stack"
        raise SitectlError(f"the stack of {site}: {error.problem.what}", fix=fix) from None

    # Imported here, as it brings protobuf, which no other command needs.
    api: Any = importlib.import_module("talos.api.client")

    def reach(node: PlannedNode) -> AbstractContextManager[MachineClient]:
        reached: AbstractContextManager[MachineClient] = api.connect(
            node.spec.address, identity, node=node.name, attempts=2, call_timeout_s=_CALL_TIMEOUT_S
        )
        return reached

    return ask(nodes, reach)


def _words(finding: GpuFinding, site: str, addresses: Mapping[str, str]) -> Iterator[str]:
    yield f"   {finding.node}: {finding.text}"
    if not finding.is_well:
        yield f"      cause: {finding.cause}"
        yield f"      fix: {finding.fix(site, addresses.get(finding.node, ''))}"


def _record(finding: GpuFinding, site: str, addresses: Mapping[str, str]) -> dict[str, Any]:
    return {
        "node": finding.node,
        "state": finding.state.name,
        "seen": finding.seen,
        "cause": finding.cause,
        "fix": "" if finding.is_well else finding.fix(site, addresses.get(finding.node, "")),
    }
