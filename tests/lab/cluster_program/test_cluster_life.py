"""A cluster's life under the real engine: from maintenance mode to Ready nodes, changed, grown, shrunk, and erased."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rack_site import CANARY
from tests.lab.cluster_program.rig import Rig


def metadata(rig: Rig) -> dict[str, Any]:
    """Of the Node object `hgx-1`."""
    matching: dict[str, Any] = (rig.cluster.read("hgx-1") or {})["metadata"]
    return matching


def taints(rig: Rig) -> set[str]:
    node = rig.cluster.read("hgx-1") or {}
    return {f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in node["spec"]["taints"]}


def test_a_clusters_life(make_rig: NewRig) -> None:
    """One `up` from an empty rack; the second changes nothing; nodes come, change and go; destroy erases."""
    rig = make_rig("infra", "hgx-h200", "hgx-h200")
    spare = rig.nodes.pop("hgx-2")
    rig.write_site()

    shown = rig.preview()
    for node in ("cp-1", "hgx-1"):
        assert f"{node}: the machine is in maintenance mode: Talos v1.13.9 is INSTALLED on its disk" in shown
    rig.up()
    assert {name: rig.machine(name).node_is_ready for name in rig.nodes} == {"cp-1": True, "hgx-1": True}
    assert rig.cluster.nodes["hgx-1"].capacity["nvidia.com/gpu"] == "8"
    boots = rig.boots()
    rig.pulumi("preview", "--expect-no-changes")
    rig.pulumi("up", "--yes", "--skip-preview", "--expect-no-changes")
    assert rig.calls() == []

    # A label is live.
    rig.nodes["hgx-1"]["labels"] = {"example.org/rack": "r1"}
    rig.write_site()
    shown = rig.preview()
    assert "hgx-1: the config changes at once, without a reboot: machine.nodeLabels" in shown
    assert "cp-1: nothing changes on the machine" in shown
    rig.up()
    assert rig.boots() == boots
    assert metadata(rig)["labels"]["example.org/rack"] == "r1"

    # So is the one by which a node asks for slices of its GPUs, and the other nodes keep theirs whole.
    rig.nodes["hgx-1"]["mig"] = "all-1g.18gb"
    rig.write_site()
    shown = rig.preview()
    assert "hgx-1: the config changes at once, without a reboot: machine.nodeLabels" in shown
    assert "cp-1: nothing changes on the machine" in shown
    rig.up()
    assert rig.boots() == boots
    cut = rig.cluster.nodes["hgx-1"]
    assert metadata(rig)["labels"]["nvidia.com/mig.config"] == "all-1g.18gb"
    assert (cut.capacity["nvidia.com/mig-1g.18gb"], cut.capacity["nvidia.com/gpu"]) == ("56", "0")

    # A taint is live too, but only an administrator may change it; and a node that was tainted at its start needs none.
    rig.calls()
    rig.nodes["hgx-1"]["taints"] = {"example.org/rented": "yes:NoSchedule"}
    rig.write_site()
    assert "hgx-1: the config changes at once, without a reboot: machine." in rig.preview()
    assert "setting taint example.org/rented=yes:NoSchedule" in rig.up()
    assert taints(rig) == {"nvidia.com/gpu=present:NoSchedule", "example.org/rented=yes:NoSchedule"}
    rig.nodes["hgx-1"]["taints"] = {}
    rig.write_site()
    assert "removing taint example.org/rented=yes:NoSchedule" in rig.up()
    assert taints(rig) == {"nvidia.com/gpu=present:NoSchedule"}
    assert rig.calls() == ["patch hgx-1", "patch hgx-1"]
    assert rig.boots() == boots

    # What needs a reboot says so before, and drains.
    rig.nodes["hgx-1"]["udev_rules"] = ['SUBSYSTEM=="net"']
    rig.write_site()
    assert "hgx-1: the node is drained and the machine REBOOTS for its config: machine.udev" in rig.preview()
    rig.calls()
    rig.up()
    assert rig.calls() == ["cordon hgx-1", "drain hgx-1", "uncordon hgx-1"]
    assert {name for name, boot in rig.boots().items() if boot != boots[name]} == {"hgx-1"}

    # A node more.
    rig.nodes["hgx-2"] = spare
    rig.write_site()
    shown = rig.preview()
    assert "hgx-2: the machine is in maintenance mode" in shown
    assert "hgx-1: nothing changes on the machine" in shown
    rig.up()
    assert rig.cluster.nodes["hgx-2"].capacity["nvidia.com/gpu"] == "8"

    # A node less.
    machine = rig.machine("hgx-1")
    del rig.nodes["hgx-1"]
    rig.write_site()
    rig.calls()
    rig.up()
    assert rig.calls() == ["cordon hgx-1", "drain hgx-1", "delete hgx-1"]
    assert machine.stage == "maintenance"

    state = rig.pulumi("stack", "export").stdout
    outputs = json.loads(rig.pulumi("stack", "output", "--json", "--show-secrets").stdout)
    assert "contexts" in outputs["talosconfig"]
    assert CANARY not in state
    assert CANARY not in shown
    bundle = rig.rack.machines["m0"].config
    assert bundle is not None
    token = str(bundle.machine("token"))
    assert token not in state + shown

    machines = [rig.machine(name) for name in rig.nodes]
    rig.pulumi("destroy", "--yes", "--skip-preview")
    assert [machine.stage for machine in machines] == ["maintenance", "maintenance"]
