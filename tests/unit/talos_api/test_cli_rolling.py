"""`plan`, `roll` and `leave` against emulated machines and a kubectl that records what it was asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.machines.faults import Fault
from talos.api.results import EtcdMember
from talos.cli import rolling
from talos.cli.inputs import Address
from talos.cli.main import main
from talos.cli.waiting import PendingError, Watch
from talos.cluster import MachineSettings
from talos.draining import movable
from talos.factory.schematic import Schematic
from tests.unit.machines.emulated_rack import Bench, eventually, new_bench
from tests.unit.talos_api.cluster_objects import budget, picker, replica, volume
from tests.unit.talos_api.emulated_site import Kubectl, Site

pytestmark = [pytest.mark.processes, pytest.mark.row("000.11", "000.20")]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = new_bench(tmp_path / "machines", "infra", "hgx-h200")
    monkeypatch.setenv("TALOS_SECRETS_TEXT", made.bundle.export())
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        yield made


@pytest.fixture
def site(bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Site:
    return Site(bench, capsys, tmp_path, {"m1": "cp", "m2": "gpu"})


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Kubectl:
    made = Kubectl(tmp_path / "kubectl", "cp", "gpu").follow(bench.cluster)
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG_TEXT", "canary-kubeconfig")
    return made


def bring_up(bench: Bench) -> None:
    """m1 and m2 as a cluster, m2 a worker without GPUs."""
    bench.give("m1", bench.control_plane("cp"))
    bench.give("m2", bench.worker("gpu"))
    eventually(lambda: bench.rack.machines["m1"].cri_up)
    with bench.client("m1") as client:
        client.bootstrap()
    eventually(lambda: all(machine.node_is_ready for machine in bench.rack.machines.values()))


class Etcd:
    """A control plane's client that answers about etcd alone."""

    def __init__(self, state: str, *members: EtcdMember) -> None:
        self._state, self._members = state, members

    def services(self) -> list[Any]:
        return [SimpleNamespace(id="etcd", state=self._state)]

    def etcd_members(self) -> tuple[EtcdMember, ...]:
        return self._members


@pytest.mark.parametrize(
    ("learner", "peer_state", "waits_for"),
    [
        (False, "Running", ""),
        (True, "Running", "etcd's member cp-2 has no vote yet"),
        (False, "Failed", "etcd on cp-2 is Failed"),
    ],
)
def test_a_control_plane_is_taken_only_while_all_others_vote(learner: bool, peer_state: str, waits_for: str) -> None:
    own = EtcdMember(id=1, hostname="cp-1", peer_urls=("https://10.5.0.2:2380",), is_learner=False)
    other = EtcdMember(id=2, hostname="cp-2", peer_urls=("https://10.5.0.3:2380",), is_learner=learner)
    peer = SimpleNamespace(configured=lambda: nullcontext(Etcd(peer_state)))
    machine: Any = SimpleNamespace(name="cp-1", address=Address("10.5.0.2", 50000), peer=lambda *_: peer)
    client: Any = Etcd("Running", own, other)
    with pytest.raises(PendingError, match=waits_for) if waits_for else nullcontext():
        assert rolling.require_others_well(machine, client) == 1


def labelled(bench: Bench, label: str) -> bytes:
    return bench.worker("gpu", settings=MachineSettings(node_labels={"example.org/rack": label}), image=bench.image)


def rebooting(bench: Bench) -> bytes:
    return bench.worker("gpu", settings=MachineSettings(udev_rules=('SUBSYSTEM=="net"',)), image=bench.image)


def test_a_plan_says_what_a_machine_would_do(bench: Bench, site: Site) -> None:
    worker, image = bench.worker("gpu", image=bench.image), ("--image", bench.image, "--insecure")
    assert "INSTALLED on its disk" in site("plan", "m2", *image, config=worker)["says"]
    bring_up(bench)
    assert site("plan", "m2", *image, config=worker)["change"] == "none"
    assert site("plan", "m2", *image, config=labelled(bench, "r1"))["change"] == "live"
    assert "REBOOTS for its config" in site("plan", "m2", *image, config=rebooting(bench))["says"]
    newer = ("--image", bench.installer(Schematic(), "v1.13.8"), "--insecure")
    plan = site("plan", "m2", *newer, config=labelled(bench, "r1"))
    assert (plan["change"], plan["config"]) == ("upgrade", "live")
    assert "Talos v1.13.9 becomes v1.13.8" in plan["says"]
    refused = site("plan", "m2", *image, config=b"wrong: true\nmachine: {}\n")
    assert refused["change"] == "refused"
    assert "unknown key" in refused["reason"]
    bench.rack.machines["m2"].power_off()
    away = site("plan", "m2", *image, "--timeout", "2s", config=worker)
    assert away["change"] == "unreachable"
    assert "what the change does to it is unknown" in away["says"]


@pytest.mark.row("opening 7")
def test_no_minor_version_of_talos_is_left_out(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    """Refused by `plan`, `roll` and `upgrade` before anything is pulled, in both directions."""
    bring_up(bench)
    worker, running = bench.worker("gpu", image=bench.image), bench.rack.machines["m2"].running_system
    for wanted, between in (("v1.15.1", "v1.14"), ("v1.11.4", "v1.12")):
        image = ("--image", bench.installer(Schematic(), wanted))
        plan = site("plan", "m2", *image, config=worker)
        assert plan["change"] == "refused"
        assert f"Talos v1.13.9 does not become {wanted} in one step" in plan["says"]
        for command in ("roll", "upgrade"):
            assert f"the newest {between} first" in site(command, "m2", *image, config=worker, code=3)
    assert kubectl.calls() == []
    assert bench.rack.machines["m2"].running_system == running


def test_a_machine_of_another_cluster_is_refused(
    bench: Bench, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring_up(bench)
    image = ("--image", bench.image, "--insecure")
    assert main(["secrets", "--output", str(tmp_path / "other")]) == 0
    monkeypatch.setenv("TALOS_SECRETS_TEXT", (tmp_path / "other").read_text())
    assert site("plan", "m2", *image, config=bench.worker("gpu"))["change"] == "refused"
    monkeypatch.delenv("TALOS_SECRETS_TEXT")
    plan = site("plan", "m2", *image)
    assert plan["change"] == "refused", "its secrets are unknown, so it is not ours"


def test_only_what_must_reboot_is_drained(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    image = ("--image", bench.image)
    before = bench.rack.machines["m2"].store.disks.boot_id
    assert site("roll", "m2", *image, config=labelled(bench, "r2"))["done"] == ["config"]
    assert site("roll", "m2", *image, config=labelled(bench, "r2"))["done"] == ["nothing"]
    assert kubectl.calls() == []
    assert bench.rack.machines["m2"].store.disks.boot_id == before

    assert site("roll", "m2", *image, config=rebooting(bench))["done"] == ["config", "reboot"]
    assert kubectl.calls() == ["annotate", "cordon", "drain", "uncordon", "annotate"]
    assert bench.rack.machines["m2"].store.disks.boot_id != before


def test_a_node_without_what_its_config_states_is_not_well_and_the_error_names_it_and_what_refuses_it(
    bench: Bench, site: Site, kubectl: Kubectl
) -> None:
    """`roll` sets no label that the API server keeps a worker's Talos from setting."""
    bring_up(bench)
    settings = MachineSettings(node_labels={"example.org/rack": "r3"})
    config = bench.worker("gpu", settings=settings, image=bench.image)
    forbidden = config.replace(b"example.org/rack", b"node-role.kubernetes.io/gpu")
    options = ("--image", bench.image, "--health-timeout", "1s")
    answer = site("roll", "m2", *options, config=forbidden, code=4)
    assert "gpu: waited 1 s to be well; last: its node lacks label node-role.kubernetes.io/gpu=r3" in answer
    assert "NodeRestriction refuses all of it" in answer
    assert "k8s.NodeApplyController" in answer
    assert kubectl.calls() == []
    assert site("roll", "m2", *options[:2], config=config)["done"] == ["config"]


@pytest.mark.parametrize("nowhere", [False, True], ids=["successor", "nowhere"])
def test_what_wants_its_successor_first_is_moved_before_the_drain(
    bench: Bench, site: Site, kubectl: Kubectl, nowhere: bool
) -> None:
    """A cluster where no other node accepts the successor is drained anyway, with a message."""
    bring_up(bench)
    kubectl.write(kubectl.read() | {"pods": [picker("cp"), picker("gpu")], "nowhere": nowhere})
    site("roll", "m2", "--image", bench.image, config=rebooting(bench))
    log = (kubectl.folder / "log").read_text()
    restart = "rollout restart deployment/glm-epp --namespace models"
    assert f"{restart} --field-manager=inference-platform-drain\n" in log, "one that the provider does not take over"
    assert kubectl.calls() == ["annotate", "cordon", "rollout", "rollout", "drain", "uncordon", "annotate"]
    assert ("no successor of models/glm-epp is ready" in site.progress) == nowhere


def stores(kubectl: Kubectl, *seen: list[dict[str, Any]]) -> None:
    """The node gpu stores for Longhorn, whose volumes are these at one look after the other."""
    state = kubectl.read() | {"volumes": list(seen)}
    state["nodes"]["gpu"]["metadata"]["labels"] = {"node.longhorn.io/create-default-disk": "config"}
    kubectl.write(state)


@pytest.mark.parametrize(("verb", "waits"), [("roll", "to drain it"), ("leave", "to leave the cluster")])
def test_no_node_is_drained_while_a_volume_of_longhorn_lacks_a_copy(
    bench: Bench, site: Site, kubectl: Kubectl, verb: str, waits: str
) -> None:
    """The copy may be on that node, and the only one. A volume that is not in use has no robustness to wait for."""
    bring_up(bench)
    unused = volume("archive", "unknown")
    stores(kubectl, [volume("glm-weights", "degraded"), unused], [volume("glm-weights", "healthy"), unused])
    if verb == "roll":
        site("roll", "m2", "--image", bench.image, config=rebooting(bench))
    else:
        site("leave", "m2")
    assert f"waiting {waits}: Longhorn still rebuilds copies of inference-models/glm-weights" in site.progress
    log = (kubectl.folder / "log").read_text()
    assert log.count("get volumes.longhorn.io --namespace longhorn-system") == 2
    assert log.rindex("get volumes.longhorn.io") < log.index("cordon")


def test_a_volume_that_stays_degraded_ends_a_roll_before_the_drain(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    stores(kubectl, [volume("glm-weights", "degraded"), volume("qwen-weights", "degraded")])
    options = ("--image", bench.image, "--rebuild-timeout", "1s")
    answer = site("roll", "m2", *options, config=rebooting(bench), code=4)
    assert "waited 1 s to drain it; last: Longhorn still rebuilds copies of" in answer
    assert "inference-models/glm-weights, inference-models/qwen-weights" in answer
    assert "fix: see why Longhorn rebuilds no copy" in answer
    assert kubectl.calls() == []


@pytest.mark.parametrize(("here", "elsewhere"), [("True", "False"), ("False", "True")], ids=["loads", "unwell here"])
def test_no_node_is_drained_while_a_replica_elsewhere_loads(
    bench: Bench, site: Site, kubectl: Kubectl, here: str, elsewhere: str
) -> None:
    """Its budget would hold the drain for as long; a replica that is unwell on the node itself has to leave it."""
    bring_up(bench)
    pods = [replica("gpu", here), replica("cp", elsewhere)]
    kubectl.write(kubectl.read() | {"pods": pods, "budgets": [[budget(1)], [budget(2)]]})
    site("roll", "m2", "--image", bench.image, config=rebooting(bench))
    waited = "waiting to drain it: pods of models/glm on other nodes are not Ready yet" in site.progress
    assert waited == (here == "True")
    log = (kubectl.folder / "log").read_text()
    assert log.count("get poddisruptionbudgets") == 1 + waited
    assert log.rindex("get poddisruptionbudgets") < log.index("cordon")


def test_nodes_that_store_nothing_wait_for_no_volume(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    kubectl.write(kubectl.read() | {"volumes": [[volume("glm-weights", "degraded")]]})
    assert site("roll", "m2", "--image", bench.image, config=rebooting(bench))["done"] == ["config", "reboot"]


def test_the_wait_for_copies_does_not_count_as_time_of_the_roll() -> None:
    watch = Watch("hgx-1", timeout_s=3600)
    before = watch.elapsed_s
    with watch.paused():
        eventually(lambda: watch.elapsed_s > before + 0.05)
    assert watch.elapsed_s < before + 0.05


def test_nothing_is_moved_twice() -> None:
    leaving = picker("gpu")
    leaving["metadata"] = leaving["metadata"] | {"deletionTimestamp": "2026-11-22T05:00:00Z"}
    alone = picker("gpu")
    alone["metadata"] = alone["metadata"] | {"ownerReferences": []}
    assert movable([leaving, alone]) == []
    assert movable([picker("gpu"), picker("gpu"), leaving]) == [("models", "glm-epp")]


def test_an_upgrade_installs_first_then_drains_and_reboots(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    older = bench.installer(Schematic(), "v1.13.8")
    config = bench.worker("gpu", image=older)
    done = site("roll", "m2", "--image", older, config=config)["done"]
    assert done[0] == "Talos v1.13.9 becomes v1.13.8"
    assert done[-1] == "reboot"
    assert kubectl.calls() == ["annotate", "cordon", "drain", "uncordon", "annotate"]
    assert site("roll", "m2", "--image", older, config=config)["done"] == ["nothing"]


def test_after_the_only_control_plane_the_next_node_waits(
    bench: Bench, site: Site, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(bench)
    slept: list[float] = []
    monkeypatch.setattr(rolling, "time", SimpleNamespace(sleep=slept.append))
    older = bench.installer(Schematic(), "v1.13.8")
    site("roll", "m2", "--image", older, config=bench.worker("gpu", image=older))
    assert slept == []
    site("roll", "m1", "--image", older, config=bench.control_plane("cp", image=older))
    site("roll", "m1", "--image", older, config=bench.control_plane("cp", image=older))
    assert slept == [30]


def test_a_version_that_does_not_exist_disturbs_nothing(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    before = bench.rack.machines["m2"].store.disks.boot_id
    bad = bench.installer(Schematic(), "v1.13.99")
    answer = site("roll", "m2", "--image", bad, "--timeout", "5s", config=bench.worker("gpu", image=bad), code=6)
    assert "gpu" in answer
    assert "v1.13.99" in answer
    assert "drain" not in kubectl.calls()
    assert bench.rack.machines["m2"].store.disks.boot_id == before


def test_a_disruption_budget_stops_it_and_the_next_run_goes_on(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    before = bench.rack.machines["m2"].store.disks.boot_id
    kubectl.write(kubectl.read() | {"stuck": True})
    answer = site("roll", "m2", "--image", bench.image, config=rebooting(bench), code=6)
    assert "disruption budget" in answer
    assert bench.rack.machines["m2"].store.disks.boot_id == before
    kubectl.write(kubectl.read() | {"stuck": False})
    assert site("roll", "m2", "--image", bench.image, config=rebooting(bench))["done"] == ["config", "reboot"]
    assert kubectl.calls()[-2:] == ["uncordon", "annotate"], "what was cordoned here takes pods again"


def test_a_node_that_somebody_cordoned_stays_cordoned(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    state = kubectl.read()
    state["nodes"]["gpu"]["spec"]["unschedulable"] = True
    kubectl.write(state)
    site("roll", "m2", "--image", bench.image, config=rebooting(bench))
    assert kubectl.calls() == ["cordon", "drain"]


def test_a_machine_that_dies_in_its_reboot_is_named_and_taken_up_again(
    bench: Bench, site: Site, kubectl: Kubectl
) -> None:
    bring_up(bench)
    bench.rack.machines["m2"].faults.set((Fault(kind="die", at="reboot", times=1),))
    answer = site("roll", "m2", "--image", bench.image, "--timeout", "5s", config=rebooting(bench), code=4)
    assert "gpu: waited" in answer
    assert "to reboot" in answer
    assert kubectl.read()["nodes"]["gpu"]["spec"] == {"unschedulable": True}
    bench.rack.machines["m2"].power_on()
    site("roll", "m2", "--image", bench.image, config=rebooting(bench))
    assert kubectl.read()["nodes"]["gpu"]["spec"] == {}


def test_leaving_drains_erases_and_deletes_the_node(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    assert site("leave", "m2")["left"] == "done"
    assert kubectl.calls() == ["annotate", "cordon", "drain", "delete"]
    assert bench.rack.machines["m2"].stage == "maintenance"
    assert site("leave", "m2")["left"] == "before"
    # The last control plane takes the cluster along: nothing is drained, no Node is left to delete.
    kubectl.calls()
    assert site("leave", "m1")["left"] == "done"
    assert kubectl.calls() == []
    assert bench.rack.machines["m1"].stage == "maintenance"


def test_a_dead_machine_is_not_asked(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bring_up(bench)
    bench.rack.machines["m2"].power_off()
    assert site("leave", "m2", "--dead")["left"] == "dead"
    assert kubectl.calls() == ["delete"]


def test_only_a_cluster_can_forget_a_dead_machine(
    bench: Bench, site: Site, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG_TEXT")
    refused = site("leave", "m2", "--dead", code=2)
    assert "gpu: --dead, and no cluster is given that could forget it" in refused
    assert "fix: put the text of the cluster's kubeconfig into $KUBECONFIG_TEXT" in refused


def test_credentials_out_of_the_bundle(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bring_up(bench)
    issued = ["talosconfig", "--context", "bench", "--endpoint", "127.0.0.1", "--role", "os:reader", "--lifetime", "1h"]
    assert main([*issued, "--output", str(tmp_path / "talosconfig")]) == 0
    assert main(["secrets", "--import", "/nowhere"]) == 2
    (tmp_path / "bundle").write_text(bench.bundle.export())
    assert main(["secrets", "--import", str(tmp_path / "bundle")]) == 0
    assert capsys.readouterr().out == bench.bundle.export()
    monkeypatch.delenv("TALOS_SECRETS_TEXT")
    machine = bench.rack.machines["m2"]
    options = ["--address", f"{machine.address}:{machine.spec.port}", "--talosconfig", str(tmp_path / "talosconfig")]
    assert main(["health", *options]) == 0
    assert main(["talosconfig", "--context", "x", "--endpoint", "y"]) == 2


def test_a_new_machine_alone_is_installed_with_only_new(bench: Bench, site: Site) -> None:
    bench.give("m1", bench.control_plane("cp"))
    config = bench.worker("gpu", image=bench.image)
    once = ("--mode", "auto", "--insecure", "--only-new")
    assert site("apply", "m2", *once, config=config)["change"] == "install"
    eventually(lambda: bench.rack.machines["m2"].stage in {"booting", "running"})
    assert site("apply", "m2", *once, config=labelled(bench, "r9"))["applied"] is False
