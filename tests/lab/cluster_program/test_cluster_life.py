"""A cluster's life under the real engine: from maintenance mode to Ready nodes, changed, grown, shrunk, and erased."""

from __future__ import annotations

import json

from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rack_site import CANARY


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
    assert rig.cluster.nodes["hgx-1"].labels["example.org/rack"] == "r1"

    # So is the one by which a node asks for slices of its GPUs, and the other nodes keep theirs whole.
    rig.nodes["hgx-1"]["mig"] = "all-1g.18gb"
    rig.write_site()
    shown = rig.preview()
    assert "hgx-1: the config changes at once, without a reboot: machine.nodeLabels" in shown
    assert "cp-1: nothing changes on the machine" in shown
    rig.up()
    assert rig.boots() == boots
    cut = rig.cluster.nodes["hgx-1"]
    assert cut.labels["nvidia.com/mig.config"] == "all-1g.18gb"
    assert (cut.capacity["nvidia.com/mig-1g.18gb"], cut.capacity["nvidia.com/gpu"]) == ("56", "0")

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
