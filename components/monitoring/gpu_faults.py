"""Faults of GPUs as DCGM reports them, in PromQL, for alerts and for the watcher that takes their nodes out."""

from __future__ import annotations

from collections.abc import Mapping

from components.monitoring import queries
from services.watcher.variables import MISSING

WATCHER = 'job="watcher"'
OF_GPU = ("node", "gpu", "modelName")
_RESET, _RESTART = "NVIDIA: reset the GPU or restart the machine", "NVIDIA: restart the machine"
# Errors of the hardware after which the GPU is drained and reset or replaced, and the immediate action of NVIDIA's Xid
# catalog for an H100 (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). 48 and 74 have workflows there,
# which need a reset in the end.
XIDS = {
    48: ("memory error that could not be corrected", _RESET),
    62: ("a halt of its controller", _RESET),
    64: ("a memory row that could not be remapped", _RESET),
    74: ("NVLink", _RESET),
    79: ("the GPU is no longer on the bus", _RESTART),
    95: ("memory error that reached other programs", _RESET),
    119: ("its system processor does not answer", _RESET),
    120: ("its system processor failed", _RESET),
    140: ("memory error that was not recovered", _RESET),
}
# Of `dcgmFabricManagerStatus_t` (NVIDIA/DCGM, dcgmlib/dcgm_structs.h). 0 is a GPU without a fabric, 3 is success, and
# any other value a driver and a DCGM that do not know each other.
_NOT_STARTED, _IN_PROGRESS, _FAILED = 1, 2, 4


def of_gpu(metric: str) -> str:
    """The largest of a GPU's series."""
    return queries.highest(metric, queries.GPUS, by=OF_GPU)


XID = of_gpu("DCGM_FI_DEV_XID_ERRORS")
ROW_REMAP_FAILED = f"{of_gpu('DCGM_FI_DEV_ROW_REMAP_FAILURE')} > 0"
_FABRIC = of_gpu("DCGM_FI_DEV_FABRIC_MANAGER_STATUS")
FABRIC_FAILED = f"{_FABRIC} == {_FAILED}"
FABRIC_JOINING = f"{_FABRIC} == {_NOT_STARTED} or {_FABRIC} == {_IN_PROGRESS}"
MEASURED = f"count by (node) ({queries.highest('DCGM_FI_DEV_GPU_TEMP', queries.GPUS, by=('node', 'gpu'))})"
"""GPUs of each node that DCGM reports."""
# The exporter shows a GPU's last Xid until it restarts. One that was there a day ago has an owner by now, or none will
# come: a replica that fails today is no second witness of it. So it counts where it was seen to come: the GPU was
# measured within a day without it. What a gap of Prometheus hid, or was there before it, does not count.
_WITHIN_A_DAY = f"({XID} or 0 * {of_gpu('DCGM_FI_DEV_GPU_TEMP')})[1d:5m]"
_CAME = " or ".join(f"{XID} != {of}_over_time({_WITHIN_A_DAY})" for of in ("min", "max"))
# The worst first: a node is marked with the first one.
_FAULTS: Mapping[str, tuple[str, str]] = {
    **{
        f"xid-{code}": (f"{XID} == {code}", f"Xid {code}: {what}. {action}")
        for code, (what, action) in sorted(XIDS.items(), key=lambda xid: xid[0] != 79)
    },
    "row-remap-failed": (ROW_REMAP_FAILED, "memory with errors could not be replaced by spare memory: a new board"),
    "fabric-failed": (FABRIC_FAILED, f"the GPU could not join the NVLink fabric of its node. {_RESTART}"),
}
_CODED = {code: f'label_replace({query}, "fault", "{code}", "", "")' for code, (query, _) in _FAULTS.items()}
_XIDS = " or ".join(query for code, query in _CODED.items() if code.startswith("xid-"))
FAULTS = " or ".join(
    [f"(({_XIDS}) and on (node, gpu) ({_CAME}))", *(query for code, query in _CODED.items() if code[:4] != "xid-")]
)
"""A series for each GPU with a fault, whose code is the label `fault`."""
MEANINGS: Mapping[str, str] = {
    **{code: meaning for code, (_, meaning) in _FAULTS.items()},
    MISSING: f"DCGM does not know a GPU of the node any more. {_RESTART}",
}
"""Code -> what it is, and what to do about it."""
