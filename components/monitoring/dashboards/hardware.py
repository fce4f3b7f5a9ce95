"""Is the hardware well: what NVIDIA's DCGM reports of each GPU."""

from __future__ import annotations

from components.monitoring import gpu_faults, queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup
from components.monitoring.dashboards.vocabulary import (
    BYTES,
    CELSIUS,
    COUNT,
    SHARE,
    WATTS,
    WINDOW,
    lines,
)

_NO_GPU = "the lab's GPUs are emulated, and no DCGM reads them"
_OF_GPU = "{{node}} GPU {{gpu}}"
_GPU = ("node", "gpu")
_REPLACE = "Drain the node and replace the board; a replica on it fails sooner or later."


def _gpu(title: str, expression: str, unit: str, good: str, do: str, legend: str = _OF_GPU) -> Panel:
    return Panel(title=title, good=good, do=do, unit=unit, queries=lines(expression, legend), not_in_lab=_NO_GPU)


BOARD = Board(
    name="hardware",
    title="Inference: is the hardware well?",
    question="Errors, links, fabric, heat, power and use of each GPU, by NVIDIA's DCGM. A model cannot be faster than "
    "its slowest GPU: with tensor parallelism one hot or broken GPU slows all of them.",
    groups=(
        PanelGroup(
            title="Does a GPU fail?",
            runbook="gpu-unwell",
            panels=(
                _gpu(
                    "Last XID error of each GPU (number)",
                    queries.highest("DCGM_FI_DEV_XID_ERRORS", by=_GPU),
                    COUNT,
                    "0.",
                    "Look the number up in NVIDIA's catalogue of Xids. 48, 62, 64, 74, 79, 95, 119, 120 and 140 are of "
                    "the hardware: drain the node. 13, 31, 43 and 45 come from a program.",
                ),
                _gpu(
                    "Rows of memory with an uncorrectable error (rows)",
                    queries.highest("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", by=_GPU),
                    COUNT,
                    "0, or a number that does not grow.",
                    f"A remapped row works after a reset of the GPU. Several in a week: {_REPLACE[0].lower()}"
                    f"{_REPLACE[1:]}",
                ),
                _gpu(
                    "Did remapping of memory rows fail? (1 is yes)",
                    queries.highest("DCGM_FI_DEV_ROW_REMAP_FAILURE", by=_GPU),
                    COUNT,
                    "0.",
                    _REPLACE,
                ),
                _gpu(
                    "Rows of memory with a corrected error (rows)",
                    queries.highest("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", by=_GPU),
                    COUNT,
                    "0, or a number that does not grow.",
                    "Plan a reset of the GPU when the node is drained next.",
                ),
                _gpu(
                    "Replays on PCIe (per second)",
                    queries.rate("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", by=_GPU, window=WINDOW),
                    COUNT,
                    "0.",
                    "Reseat the board or its cable; loading of weights is slow until then.",
                ),
                _gpu(
                    "Recoveries of NVLink (links trained again, per second)",
                    queries.rate("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", by=_GPU, window=WINDOW),
                    COUNT,
                    "0.",
                    "A link was lost and trained again: look for Xid 74 and at the fabric manager. On all GPUs of a "
                    "node it is a switch, on one the board.",
                ),
                _gpu(
                    "Replays on NVLink (per second)",
                    queries.rate("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", by=_GPU, window=WINDOW),
                    COUNT,
                    "0, or a few a day.",
                    "Many are a bad contact: drain the node, reseat the board.",
                ),
                _gpu(
                    "Fabric manager's status of each GPU (3 is success)",
                    queries.highest("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", by=_GPU),
                    COUNT,
                    "3; 0 on cards without NVSwitch.",
                    "1 is not started, 2 in progress, 4 failed. On all GPUs of a node it is the service or a "
                    "switch, on one the board. The status stays 3 where the service stops later: look at it too.",
                ),
                Panel(
                    title="Nodes that are out of service for a fault",
                    good="None; empty where the site lets nothing drain nodes.",
                    do="The legend has the fault. Repair the node, then remove its taint.",
                    unit=COUNT,
                    queries=lines(
                        queries.highest("watcher_out", gpu_faults.WATCHER, by=("node", "fault")), "{{node}} {{fault}}"
                    ),
                    not_in_lab=_NO_GPU,
                ),
            ),
        ),
        PanelGroup(
            title="Is a GPU slowed down?",
            runbook="gpu-unwell",
            panels=(
                _gpu(
                    "Temperature of each GPU",
                    queries.highest("DCGM_FI_DEV_GPU_TEMP", by=_GPU),
                    CELSIUS,
                    "Below 83 \u00b0C under load, and alike on all GPUs of a node.",
                    "One hot GPU: its heat sink. All of a node: fans or inlet. All nodes: the room.",
                ),
                _gpu(
                    "Temperature of each GPU's memory",
                    queries.highest("DCGM_FI_DEV_MEMORY_TEMP", by=_GPU),
                    CELSIUS,
                    "Below 92 \u00b0C.",
                    "As for the GPU; memory slows down by itself above 95 \u00b0C.",
                ),
                _gpu(
                    "Power of each GPU",
                    queries.highest("DCGM_FI_DEV_POWER_USAGE", by=_GPU),
                    WATTS,
                    "Below its limit (700 W for an H200 SXM), and alike on all GPUs of a replica.",
                    "One that takes less than its neighbours waits for them or is throttled: compare clocks.",
                ),
                _gpu(
                    "Clock of each GPU (MHz)",
                    queries.lowest("DCGM_FI_DEV_SM_CLOCK", by=_GPU),
                    "suffix: MHz",
                    "The same on all GPUs of a replica under load.",
                    "A low clock under load is throttling: temperature or power above show why.",
                ),
            ),
        ),
        PanelGroup(
            title="Is a GPU used?",
            panels=(
                _gpu(
                    "Share of time in which a GPU works",
                    queries.highest("DCGM_FI_PROF_GR_ENGINE_ACTIVE", by=_GPU),
                    SHARE,
                    "Above 0.5 over the hours of use, and alike on all GPUs of a replica.",
                    "Low while requests wait: the replica waits for the network, the processor or its neighbours. Low "
                    "without them: its models have more replicas than their load needs.",
                ),
                _gpu(
                    "Share of time in which tensor cores work",
                    queries.highest("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", by=_GPU),
                    SHARE,
                    "High in prefill, low in decode.",
                    "DCGM's own utilisation is near 1 for any language model, so it is not shown.",
                ),
                _gpu(
                    "Share of time in which memory is read or written",
                    queries.highest("DCGM_FI_PROF_DRAM_ACTIVE", by=_GPU),
                    SHARE,
                    "0.4 to 0.8 in decode, which memory limits.",
                    "Low while requests wait: the replica waits for the network, the processor or its neighbours.",
                ),
                _gpu(
                    "Memory of each GPU in use",
                    queries.highest("DCGM_FI_DEV_FB_USED", by=_GPU) + " * 1024 * 1024",
                    BYTES,
                    "Constant from a replica's start on: vLLM takes its share of memory at once.",
                    "Growth is another program on the GPU, or a leak: restart the replica.",
                ),
                _gpu(
                    "Traffic over NVLink (of DCGM's counter, per second)",
                    queries.rate("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", by=_GPU, window=WINDOW),
                    COUNT,
                    "Alike on all GPUs of a replica with tensor parallelism; its unit is that of the driver.",
                    "0 under load: NCCL goes over PCIe; check the fabric manager.",
                ),
            ),
        ),
    ),
)
