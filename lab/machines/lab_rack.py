"""The lab's own rack: which emulated machines are in it, and the file that lists them for `python -m lab.machines`.

It holds more machines than the lab's site names, so that a node is added by naming it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.paths import Lab, NetworkPlan

CONTROL_PLANE = "cp-1"
DEFAULT_HGX_MACHINES = 6
MOST_HGX_MACHINES = 30
FACTORY_PORT = 8080


def file(lab: Lab) -> Path:
    """The rack's description; the supervisor runs the machines that it names."""
    return lab.home / "rack.json"


def folder(lab: Lab) -> Path:
    """The machines' disks, screens and faults."""
    return lab.home / "machines"


def description(plan: NetworkPlan, hgx: int) -> dict[str, Any]:
    """`cp-1` without a GPU, then `hgx-1` to `hgx-N`; LabError beyond what the address plan holds."""
    if not 0 <= hgx <= MOST_HGX_MACHINES:
        raise LabError(
            f"{hgx} HGX machines do not fit a lab: its address plan holds 0 to {MOST_HGX_MACHINES}",
            fix=f"give --hgx a number from 0 to {MOST_HGX_MACHINES}",
        )
    names = [CONTROL_PLANE, *(f"hgx-{number}" for number in range(1, hgx + 1))]
    machines = [
        {
            "name": name,
            "address": str(plan.node_address(ordinal)),
            "pod_cidr": str(plan.node_pods(ordinal)),
            "hardware": "hgx-h200" if ordinal else "infra",
        }
        for ordinal, name in enumerate(names)
    ]
    factory = {"host": str(plan.image_factory), "port": FACTORY_PORT}
    return {"cluster": "kwok", "factory": factory, "machines": machines}


def write(lab: Lab, hgx: int) -> bool:
    """Write the description of the lab's own rack; whether it is another one than before."""
    return put(lab, description(lab.network, hgx))


def put(lab: Lab, rack: Mapping[str, Any]) -> bool:
    """Write a rack's description; whether it is another one than before."""
    content = json.dumps(rack, indent=2)
    if file(lab).exists() and file(lab).read_text() == content:
        return False
    lab.make_folders()
    draft = file(lab).with_suffix(".draft")
    draft.write_text(content)
    draft.replace(file(lab))
    return True


def names(lab: Lab) -> list[str]:
    """The machines of the rack as it is described now."""
    return [machine["name"] for machine in json.loads(file(lab).read_text())["machines"]]


def addresses(lab: Lab) -> list[str]:
    """Of every machine of the rack as it is described now."""
    return [machine["address"] for machine in json.loads(file(lab).read_text())["machines"]]
