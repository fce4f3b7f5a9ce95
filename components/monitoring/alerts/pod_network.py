"""Alerts about the pod network: what Cilium's agents measure of themselves and of packets."""

from __future__ import annotations

from components.monitoring import host_queries, host_scrapes, queries
from components.monitoring.alerts.alert import Alert

# Estimates. A node carries up to millions of packets a second, and loses some whenever a pod ends.
_DROPS_PER_S = 10
_FULL_SHARE = 0.9


def pod_network() -> list[Alert]:
    """Agents, what they drop by a fault, how full their maps are, and whom they do not reach."""
    unreachable = " or ".join(
        f"{queries.highest(name, host_queries.CILIUM, by=('node',))} > {host_queries.silent_nodes()}"
        for name in ("cilium_unreachable_nodes", "cilium_unreachable_health_endpoints")
    )
    return [
        Alert(
            name="CiliumNotMeasured",
            severity="ticket",
            expression=host_queries.not_measured(host_scrapes.POD_NETWORK),
            minutes=15,
            summary="Cilium on {{ $labels.node }} does not answer when it is measured",
            description="Prometheus reads nothing of {{ $labels.job }} there ({{ $value }}). Without a node, it has no "
            "target of this job at all. Without its agent no pod starts on a node; those that run keep their network.",
            runbook="pod-network-unwell",
        ),
        Alert(
            name="CiliumDropsPackets",
            severity="ticket",
            expression=f"{host_queries.faulty_drops()} > {_DROPS_PER_S}",
            minutes=15,
            summary="Cilium drops packets on {{ $labels.node }}, and by no policy",
            description="{{ $value | humanize }} a second: {{ $labels.reason }}.",
            runbook="pod-network-unwell",
        ),
        Alert(
            name="CiliumMapNearlyFull",
            severity="ticket",
            expression=f"{host_queries.map_full()} > {_FULL_SHARE}",
            minutes=10,
            summary="The map {{ $labels.map_name }} of Cilium on {{ $labels.node }} is nearly full",
            description="{{ $value | humanizePercentage }} of it is in use. Of a full one of connections or NAT the "
            "oldest entries go, so that idle connections break; others refuse new Services or policies.",
            runbook="pod-network-unwell",
        ),
        Alert(
            name="CiliumNodesUnreachable",
            severity="ticket",
            expression=unreachable,
            minutes=10,
            summary="{{ $labels.node }} does not reach other nodes over the pod network",
            description="{{ $value }} of them, more than are not ready or not measured. Requests between pods of these "
            "nodes may fail.",
            runbook="pod-network-unwell",
        ),
    ]
