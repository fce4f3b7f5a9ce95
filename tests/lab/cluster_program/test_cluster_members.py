"""Machines that are replaced, that die for good, and that are known by their key: the site's keys for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.machines.machine import Machine
from talos.api.client import connect
from talos.api.tls import FirstContact
from talos.secrets import bundle as secrets
from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rig import Rig
from tests.unit.machines.emulated_rack import eventually
from tests.unit.talos.talos_examples import entropy


def members(rig: Rig) -> list[str]:
    """etcd's members as the rack counts them."""
    config = rig.machine("cp-3").config
    assert config is not None
    return sorted(member.hostname for member in rig.rack.etcd_members(config.cluster_id))


def key_of(machine: Machine) -> str:
    """What the console of a machine in maintenance mode shows."""
    with connect(machine.address, FirstContact(), port=machine.spec.port, attempts=1) as client:
        client.machine_status()
        return client.shown_key


@pytest.mark.exhaustive
def test_the_first_control_plane_dies_and_another_machine_takes_its_name(make_rig: NewRig) -> None:
    """`dead`, then `replacement` on other hardware. `up` bootstrapped on the first one and asked it for the kubeconfig;
    without it others do both. etcd has three members again, and no fourth one meanwhile."""
    rig = make_rig("infra", "infra", "infra", "infra")
    spare = rig.nodes.pop("worker-3")
    rig.site["cluster"]["machines"]["endpoint"] = "https://api.site.example:6443"
    rig.make_control_planes(3)
    rig.up()
    assert members(rig) == ["cp-1", "cp-2", "cp-3"]
    boots = rig.boots()

    broken = rig.machine("cp-1")
    broken.power_off()
    rig.nodes["cp-1"]["dead"] = True
    rig.write_site()
    assert "cp-1: is marked dead and is not asked" in rig.preview()
    assert members(rig) == ["cp-1", "cp-2", "cp-3"]
    rig.calls()
    rig.up()
    assert members(rig) == ["cp-2", "cp-3"]
    assert rig.calls() == ["delete cp-1"]
    rig.pulumi("preview", "--expect-no-changes")

    rig.site["cluster"]["machines"]["credentials_rotation"] = 2
    del rig.nodes["cp-1"]["dead"]
    rig.nodes["cp-1"] |= {"address": spare["address"], "replacement": 1}
    rig.write_site()
    assert "machines-nodes-kubeconfig-2 created" in rig.up()
    assert members(rig) == ["cp-1", "cp-2", "cp-3"]
    assert rig.machine("cp-1") is not broken
    assert rig.machine("cp-1").node_is_ready
    assert {name: rig.boots()[name] for name in ("cp-2", "cp-3")} == {name: boots[name] for name in ("cp-2", "cp-3")}
    rig.pulumi("preview", "--expect-no-changes")

    # The old one finds its way back to nothing: its member is gone, and its place taken.
    broken.power_on()
    eventually(lambda: broken.cri_up)
    assert not broken.etcd_up
    assert members(rig) == ["cp-1", "cp-2", "cp-3"]


@pytest.mark.exhaustive
def test_a_dead_node_is_removed_without_being_asked(make_rig: NewRig) -> None:
    """`dead`, `up`, the key out of the file, `up`: as the runbook says."""
    rig = make_rig("infra", "infra", "infra", "hgx-h200")
    rig.make_control_planes(3)
    rig.up()
    for name in ("cp-2", "hgx-3"):
        machine = rig.machine(name)
        machine.power_off()
        rig.nodes[name]["dead"] = True
        rig.write_site()
        rig.calls()
        rig.up()
        assert rig.calls() == [f"delete {name}"]
        del rig.nodes[name]
        rig.write_site()
        rig.up()
        assert machine.store.config is not None, "no command could erase it"
        rig.pulumi("preview", "--expect-no-changes")
    assert members(rig) == ["cp-1", "cp-3"]


@pytest.mark.exhaustive
def test_a_replaced_machine_is_installed_anew_and_no_other(make_rig: NewRig) -> None:
    """`replacement` counted up on the same machine: drained, erased, installed; and a `fingerprint` is kept to."""
    rig = make_rig("infra", "hgx-h200", "hgx-h200")
    other = rig.machine("hgx-2")
    rig.nodes["hgx-1"]["fingerprint"] = key_of(other)
    rig.write_site()
    refused = rig.preview(check=False)
    assert "hgx-1: REFUSED" in refused
    assert "fingerprint" in refused
    rig.nodes["hgx-1"]["fingerprint"] = key_of(rig.machine("hgx-1"))
    rig.write_site()
    rig.up()
    boots = rig.boots()

    # Its key is another one after each boot into maintenance mode, so the old one would let nothing through.
    del rig.nodes["hgx-1"]["fingerprint"]
    rig.nodes["hgx-1"]["replacement"] = 1
    rig.write_site()
    rig.calls()
    rig.up()
    assert rig.calls() == ["cordon hgx-1", "drain hgx-1", "delete hgx-1"]
    assert {name for name, boot in rig.boots().items() if boot != boots[name]} == {"hgx-1"}
    assert rig.cluster.nodes["hgx-1"].capacity["nvidia.com/gpu"] == "8"
    assert rig.machine("hgx-1").node_is_ready
    rig.pulumi("preview", "--expect-no-changes")


@pytest.mark.exhaustive
def test_a_cluster_that_exists_is_taken_over_by_its_secrets(make_rig: NewRig, tmp_path: Path) -> None:
    """`secrets_import`: machines that are this cluster's already are only looked at, and a dead one is left out."""
    rig = make_rig("infra", "infra", "infra", "infra")
    bundle = secrets.generate(entropy(11), secrets.utc_now)
    (tmp_path / "bundle.yaml").write_text(bundle.export())
    rig.site["cluster"]["machines"] |= {
        "secrets_import": str(tmp_path / "bundle.yaml"),
        "endpoint": "https://api.site.example:6443",
    }
    rig.make_control_planes(3)
    rig.up()
    config = rig.machine("cp-1").config
    assert config is not None
    assert config.machine("token") == bundle.trustd_token
    assert config.cluster_id == bundle.cluster_id
    boots = rig.boots()

    # Another stack, which knows of the machines nothing but the file and the secrets.
    for state in (rig.lab.pulumi / ".pulumi" / "stacks").rglob("*.json*"):
        state.unlink()
    rig.pulumi("config", "set", "--secret", "registry-password", "canary-0d5c7e")
    rig.machine("cp-1").power_off()
    rig.nodes["cp-1"]["dead"] = True
    rig.write_site()
    shown = rig.preview()
    assert "what it takes is not known before its config is" in shown
    rig.up()
    assert rig.boots() == boots
    assert members(rig) == ["cp-2", "cp-3"]
    assert rig.calls() == ["delete cp-1"]
    rig.pulumi("preview", "--expect-no-changes")
