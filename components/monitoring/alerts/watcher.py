"""Alerts of the watcher: which nodes it took out, which it may not, and whether it sees."""

from __future__ import annotations

from components.monitoring import gpu_faults, queries
from components.monitoring.alerts.alert import Alert

_RUNBOOK = "gpu-fault"
# An estimate: a device plugin that notices, or a replica that fails, within this time is the second source.
_DISAGREE_MINUTES = 15
_BLIND_S = 300
# An estimate: a new node has its driver validated, and its GPUs connected, within this time.
_CHECK_MINUTES = 30


def watched() -> list[Alert]:
    """Of a site whose watcher runs."""
    by_dcgm, by_cluster = (
        queries.highest("watcher_reported", f'{gpu_faults.WATCHER}, source="{source}"', by=("node",))
        for source in ("dcgm", "cluster")
    )
    looked = f"watcher_looked_timestamp_seconds{{{gpu_faults.WATCHER}}}"
    return [
        Alert(
            name="GpuNodeDrained",
            severity="ticket",
            expression=f"{queries.highest('watcher_out', gpu_faults.WATCHER, by=('node', 'fault'))} == 1",
            minutes=0,
            summary="{{ $labels.node }} is out of service: {{ $labels.fault }}",
            description="DCGM and the cluster agreed, so no replica starts there any more. It "
            "stays out, and no other node is drained, until you remove the taint.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="GpuFaultHeld",
            severity="page",
            expression=f"{queries.highest('watcher_held', gpu_faults.WATCHER, by=('node',))} == 1",
            minutes=3,
            summary="{{ $labels.node }} has a GPU fault and stays in service",
            description="DCGM and the cluster agree, and the watcher may not drain the node. Its annotation "
            "inference-platform/gpu-suspect has the reason. Replicas there fail or may fail.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="GpuSourcesDisagree",
            severity="ticket",
            expression=f"{by_dcgm} == 1 unless on (node) {by_cluster} == 1",
            minutes=_DISAGREE_MINUTES,
            summary="DCGM reports a GPU fault on {{ $labels.node }}, and the cluster has nothing against it",
            description="The node offers all its GPUs and its replicas are ready, so it is not drained. Its "
            "annotation inference-platform/gpu-suspect has the fault.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="WatcherBlind",
            severity="ticket",
            # A gauge that was never set is 0, so one that falls again and again is blind as well.
            expression=f"time() - max({looked}) > {_BLIND_S} or absent({looked})",
            minutes=5,
            summary="The watcher of GPU faults cannot see",
            description="For 5 minutes Prometheus or the API server did not answer it or refused what it asked, or it "
            "does not run; watcher_blind has the source. Nodes may be neither drained nor admitted meanwhile.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="NodeUnchecked",
            severity="ticket",
            expression=f"{queries.highest('watcher_unchecked', gpu_faults.WATCHER, by=('node',))} == 1",
            minutes=_CHECK_MINUTES,
            summary="The new node {{ $labels.node }} takes no replica",
            description="Its GPUs do not pass the check; the metric watcher_unchecked has the reason.",
            runbook=_RUNBOOK,
        ),
    ]
