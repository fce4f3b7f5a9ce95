"""Alerts about GPUs and their nodes, out of DCGM's counters and what Kubernetes has of the nodes."""

from __future__ import annotations

from collections.abc import Iterable

from components.monitoring import gpu_faults, gpu_resources, queries
from components.monitoring.alerts.alert import Alert

# Estimates: public reports have H100 and H200 slow down from 83 to 87 degrees on, and their memory at 95; a board's own
# limits are in `nvidia-smi -q -d TEMPERATURE`.
_GPU_CELSIUS, _MEMORY_CELSIUS = 83, 92
# An estimate: neighbours on a board differ by a few percent.
_CLOCK_SHARE = 0.8
_BUSY_SHARE = 0.5
# PCIe corrects replays by itself; many in an hour are a bad contact. An estimate.
_REPLAYS_PER_HOUR = 100
# NVLink repeats damaged transfers by itself, and many of them are a bad contact. A link that it lost is always a fault.
# An estimate.
_LINK_REPLAYS_PER_HOUR = 100

# An estimate: a node that boots connects its GPUs within this time.
_FABRIC_MINUTES = 10


def gpus() -> list[Alert]:
    """Errors, fabric, heat and clocks of each GPU."""
    xid, clock = gpu_faults.XID, _of_gpu("DCGM_FI_DEV_SM_CLOCK")
    # One without work clocks down, or stays as fast as it can be.
    busy = f"({clock} and on (node, gpu) {_of_gpu('DCGM_FI_PROF_GR_ENGINE_ACTIVE')} > {_BUSY_SHARE:g})"
    where = "GPU {{ $labels.gpu }} of {{ $labels.node }}"
    return [
        Alert(
            name="GpuXidError",
            severity="page",
            expression=" or ".join(f"{xid} == {code}" for code in gpu_faults.XIDS),
            minutes=0,
            summary=f"{where} reports the hardware error Xid {{{{ $value }}}}",
            description="Replicas on this node may hang or fail. The value is the last error until the exporter "
            "restarts.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuRowRemapFailed",
            severity="page",
            expression=gpu_faults.ROW_REMAP_FAILED,
            minutes=0,
            summary=f"{where} has no memory left to replace bad memory",
            description="A row with an error could not be remapped ({{ $value }} is yes): the GPU must be replaced.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuMemoryErrors",
            severity="ticket",
            expression=f"{_growth('DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS', '1d')} > 0",
            minutes=0,
            summary=f"{where} had a memory error that could not be corrected",
            description="{{ $value | humanize }} rows were remapped within a day. They work after a reset of the GPU.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuHot",
            severity="ticket",
            expression=(
                f"{_of_gpu('DCGM_FI_DEV_GPU_TEMP')} > {_GPU_CELSIUS} "
                f"or {_of_gpu('DCGM_FI_DEV_MEMORY_TEMP')} > {_MEMORY_CELSIUS}"
            ),
            minutes=10,
            summary=f"{where} is hot",
            description="It or its memory has {{ $value }} degrees Celsius and will slow down. One GPU: its heat sink. "
            "All of a node: fans or inlet. All nodes: the room.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuSlowedDown",
            severity="ticket",
            # Power or heat throttles a GPU, and all others of its replica wait for it.
            expression=(
                f"{busy} / on (node, modelName) group_left () max by (node, modelName) {busy} < {_CLOCK_SHARE:g}"
            ),
            minutes=15,
            summary=f"{where} is slower than its neighbours",
            description="Under load its clock is at {{ $value | humanizePercentage }} of the node's fastest with "
            "work: power, heat or a fault throttles it, and its whole replica.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuBusErrors",
            severity="ticket",
            expression=f"{_growth('DCGM_FI_DEV_PCIE_REPLAY_COUNTER', '1h')} > {_REPLAYS_PER_HOUR}",
            minutes=0,
            summary=f"{where} has a bad connection to its node",
            description="{{ $value | humanize }} transfers over PCIe were repeated within an hour.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuLinkErrors",
            severity="ticket",
            expression=(
                f"{_growth('DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL', '1h')} > 0 "
                f"or {_growth('DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL', '1h')} > {_LINK_REPLAYS_PER_HOUR}"
            ),
            minutes=0,
            summary=f"{where} has a bad link to its neighbours",
            description="{{ $value | humanize }} times within an hour NVLink was trained again or repeated transfers. "
            "A replica with tensor parallelism waits for it, and fails where the link is lost.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuFabricFailed",
            severity="page",
            expression=gpu_faults.FABRIC_FAILED,
            minutes=0,
            summary=f"{where} could not join the NVLink fabric of its node",
            description="The status of the fabric manager is {{ $value }}, failed, even where its service runs. "
            "Replicas on this node may fail or not start.",
            runbook="gpu-unwell",
        ),
        Alert(
            name="GpuFabricNotReady",
            severity="ticket",
            expression=gpu_faults.FABRIC_JOINING,
            minutes=_FABRIC_MINUTES,
            summary=f"{where} has not joined the NVLink fabric of its node",
            description="The status of the fabric manager is still {{ $value }}: 1 is not started, 2 in progress. "
            "No replica starts on this GPU.",
            runbook="gpu-unwell",
        ),
    ]


def nodes(slices: Iterable[str] = ()) -> list[Alert]:
    """Nodes and the GPUs that they offer. slices: resources of slices that nodes have."""
    offered, of_gpus = queries.offered_gpus(slices), gpu_resources.any_of(slices)
    there = queries.total("kube_node_status_capacity", f"{queries.OBJECTS}, {of_gpus}", by=("node",))
    ready = f'{queries.OBJECTS}, condition="Ready", status="true"'
    return [
        Alert(
            name="GpusNotOffered",
            severity="ticket",
            # A node without the resource has no series at all; nor has any while nothing reads the nodes.
            expression=(
                f"({queries.OFFERED_GPUS} - on (node) ({offered} or on (node) 0 * {queries.OFFERED_GPUS}) > 0 "
                f"or on (node) {there} - on (node) {offered} > 0) and on () up{{{queries.OBJECTS}}} == 1"
            ),
            minutes=10,
            summary="{{ $labels.node }} does not offer all of its GPUs",
            description="{{ $value }} are missing, and no replica can be placed on them.",
            runbook="gpu-not-offered",
        ),
        Alert(
            name="NodeNotReady",
            severity="ticket",
            expression=f"{queries.total('kube_node_status_condition', ready, by=('node',))} == 0",
            minutes=5,
            summary="The node {{ $labels.node }} is not ready",
            description="Its kubelet does not report ({{ $value }} is no). Kubernetes starts its pods elsewhere, where "
            "there is room.",
            runbook="replace-node",
        ),
    ]


def _of_gpu(metric: str) -> str:
    return gpu_faults.of_gpu(metric)


def _growth(metric: str, window: str) -> str:
    return queries.growth(metric, queries.GPUS, by=gpu_faults.OF_GPU, window=window)
