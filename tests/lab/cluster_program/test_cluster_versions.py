"""A changed Talos version goes over the nodes one at a time; one that does not exist stops at the first."""

from __future__ import annotations

import pytest

from lab.machines.faults import Fault
from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rig import Rig

# Drivers that each version's extensions carry; stacks/facts/compatibility.yaml knows them too.
DRIVERS = {
    "v1.13.7": {"production": "595.71.05", "lts": "580.173.02"},
    "v1.13.9": {"production": "595.91.07", "lts": "580.178.04"},
}


def bump(rig: Rig, talos: str) -> None:
    """Another Talos version with the drivers that go with it; those of the newest with one that is not known."""
    drivers = DRIVERS.get(talos, DRIVERS["v1.13.9"])
    rig.versions(
        talos=talos, nvidia={fork: {"driver": version, "fabric_manager": version} for fork, version in drivers.items()}
    )


@pytest.mark.exhaustive
def test_a_version_rolls_node_by_node_and_a_bad_one_stops_at_the_first(make_rig: NewRig) -> None:
    rig = make_rig("infra", "hgx-h200", "hgx-h200")
    bump(rig, "v1.13.7")
    rig.up()
    boots = rig.boots()
    rig.calls()

    bump(rig, "v1.13.9")
    shown = rig.preview()
    for node in rig.nodes:
        assert f"{node}: Talos v1.13.7 becomes v1.13.9: the node is drained and the machine REBOOTS into it" in shown
    assert rig.boots() == boots, "a preview touches nothing"
    # The second worker does not come back well: the third is left alone, and the next `up` goes on where it stopped.
    rig.fault("hgx-1", Fault(kind="installer-fails"))
    assert "hgx-1" in rig.up(check=False)
    assert [name for name in rig.nodes if rig.machine(name).running_system.talos_version == "v1.13.9"] == ["cp-1"]
    assert rig.calls() == ["cordon cp-1", "drain cp-1", "uncordon cp-1"]
    rig.restore()
    rig.up()
    assert rig.calls() == [
        "cordon hgx-1",
        "drain hgx-1",
        "uncordon hgx-1",
        "cordon hgx-2",
        "drain hgx-2",
        "uncordon hgx-2",
    ]
    assert {rig.machine(name).running_system.talos_version for name in rig.nodes} == {"v1.13.9"}
    assert rig.cluster.nodes["hgx-2"].capacity["nvidia.com/gpu"] == "8"

    boots = rig.boots()
    bump(rig, "v1.13.77")
    failed = rig.up(check=False)
    assert "cp-1" in failed
    assert "v1.13.77" in failed
    assert rig.boots() == boots
    assert rig.calls() == []
    bump(rig, "v1.13.9")
    rig.up()
    assert rig.boots() == boots


@pytest.mark.exhaustive
def test_a_minor_version_of_kubernetes_goes_over_api_servers_before_kubelets(make_rig: NewRig) -> None:
    """In one step it is refused, by preview and by `up`; in two no kubelet is ever newer than an API server."""
    rig = make_rig("infra", "infra", "infra", "infra")
    rig.make_control_planes(3)
    rig.versions(kubernetes="v1.35.2")
    rig.up()
    boots = rig.boots()

    rig.versions(kubernetes="v1.36.3")
    for shown in (rig.preview(check=False), rig.up(check=False)):
        assert "cp-1: " in shown
        assert "its kubelet would be 1.36 with API servers of v1.35.2 on cp-2, v1.35.2 on cp-3" in shown
        assert "`kubelet` in stacks/facts/versions.yaml" in shown
    assert {node.api_server_version for node in rig.cluster.nodes.values()} == {"v1.35.2", ""}

    rig.cluster.versions.clear()
    rig.versions(kubernetes="v1.36.3", kubelet="v1.35.2")
    rig.up()
    assert [(name, server) for name, _, server in rig.cluster.versions if server == "v1.36.3"] == [
        (name, "v1.36.3") for name in ("cp-1", "cp-2", "cp-3")
    ]
    assert {kubelet for _, kubelet, _ in rig.cluster.versions} == {"v1.35.2"}

    rig.cluster.versions.clear()
    rig.versions(kubernetes="v1.36.3", kubelet=None)
    rig.up()
    order = [name for name, kubelet, _ in rig.cluster.versions if kubelet == "v1.36.3"]
    assert order == ["cp-1", "cp-2", "cp-3", "worker-3"]
    assert rig.boots() == boots
    rig.pulumi("preview", "--expect-no-changes")


@pytest.mark.exhaustive
def test_kubernetes_versions_change_live(make_rig: NewRig) -> None:
    rig = make_rig("infra", "infra")
    rig.versions(kubernetes="v1.36.2")
    rig.up()
    boots = rig.boots()
    rig.versions(kubernetes="v1.36.3")
    assert "worker-1: the config changes at once, without a reboot: machine.kubelet.image" in rig.preview()
    rig.up()
    assert rig.boots() == boots
    assert {node.kubelet_version for node in rig.cluster.nodes.values()} == {"v1.36.3"}

    # What the machine refuses fails the preview; one that does not answer is a warning.
    dns = {"enabled": False, "forwardKubeDNSToHost": True}
    rig.site["cluster"]["machines"]["patches"] = {"dns": {"machine": {"features": {"hostDNS": dns}}}}
    rig.write_site()
    shown = rig.preview(check=False)
    for node in rig.nodes:
        assert f"{node}: REFUSED: " in shown
    assert "requires hostDNS.enabled to be true" in shown
    del rig.site["cluster"]["machines"]["patches"]
    rig.write_site()
    rig.machine("worker-1").power_off()
    shown = rig.preview()
    assert "worker-1: does not answer, so what the change does to it is unknown" in shown
    assert "cp-1: nothing changes on the machine" in shown
    assert "Traceback" not in shown
