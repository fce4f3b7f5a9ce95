"""Each fault on request, and that the machine recovers from it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lab.errors import LabError
from lab.machines.faults import Fault, parse_fault
from talos.api.errors import MachineApiError, NotReadyError, UnreachableError, UpgradeFailedError
from talos.api.results import ApplyMode, WipeMode
from talos.cli.health import what_is_missing
from talos.factory.schematic import Schematic
from talos.hgx import FABRIC_MANAGER_SERVICE
from tests.unit.machines.emulated_rack import HOUR_S, Bench, eventually

pytestmark = pytest.mark.processes


def test_slow(running: Bench, hour: threading.Event) -> None:
    running.rack.machines["m1"].faults.set((Fault(kind="slow", seconds=HOUR_S, calls=("Version",)),))
    with ThreadPoolExecutor() as pool, running.client("m1") as slow, running.client("m1") as quick:
        answer = pool.submit(slow.version)
        assert quick.boot_id()
        assert not answer.done()
        hour.set()
        assert answer.result().tag == "v1.13.9"


def test_calls_are_answered_before_it_goes_down(
    running: Bench, hour: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, waiting = running.rack.machines["m2"], threading.Event()
    calls, plain = machine.front.calls, machine.front.calls.wait

    def wait(seconds: float) -> None:
        waiting.set()
        plain(seconds)

    monkeypatch.setattr(calls, "wait", wait)
    machine.faults.set((Fault(kind="slow", seconds=HOUR_S, calls=("Version",)),))
    with ThreadPoolExecutor() as pool, running.client("m2") as slow, running.client("m2") as other:
        answer = pool.submit(slow.version)
        eventually(lambda: bool(calls))
        other.reboot()
        assert waiting.wait(60)
        hour.set()
        assert answer.result().tag == "v1.13.9"


def test_refuses_calls_as_often_as_asked(running: Bench) -> None:
    running.rack.machines["m1"].faults.set(
        (Fault(kind="refuse", calls=("Kubeconfig",), code="FAILED_PRECONDITION", message="no", times=1),)
    )
    with running.client("m1") as client:
        assert client.version().tag
        with pytest.raises(NotReadyError, match="no"):
            client.kubeconfig()
        assert client.kubeconfig()
    assert running.rack.machines["m1"].faults.all() == ()


def test_refuses_connections(running: Bench) -> None:
    running.rack.machines["m1"].faults.set((Fault(kind="refuse", calls=("connect",)),))
    with running.client("m1") as client, pytest.raises(MachineApiError):
        client.version()
    running.rack.machines["m1"].faults.set(())
    with running.client("m1") as client:
        assert client.version().tag


def test_reboots_late(running: Bench, hour: threading.Event) -> None:
    machine = running.rack.machines["m2"]
    machine.faults.set((Fault(kind="late", seconds=HOUR_S, times=1),))
    with running.client("m2") as client:
        client.reboot()
    eventually(lambda: "gpu" in running.cluster.not_ready)
    eventually(lambda: machine.stage == "unknown")
    with running.client("m2") as client, pytest.raises(UnreachableError):
        client.version()
    assert "gpu" in running.cluster.not_ready
    hour.set()
    eventually(lambda: "gpu" not in running.cluster.not_ready)


def test_dies_while_it_installs_and_starts_anew(bench: Bench) -> None:
    machine = bench.rack.machines["m2"]
    machine.faults.set((Fault(kind="die", at="install", times=1),))
    bench.give("m2", bench.hgx("gpu"))
    eventually(lambda: not machine.store.disks.powered)
    assert machine.store.disks.installed is None
    with bench.maintenance("m2") as client, pytest.raises(UnreachableError):
        client.version()
    machine.power_on()
    bench.wait_stage("m2", "maintenance")
    bench.bring_up()


def test_dies_while_it_upgrades_and_boots_what_it_had(running: Bench) -> None:
    machine = running.rack.machines["m2"]
    machine.faults.set((Fault(kind="die", at="upgrade", seconds=0.2, times=1),))
    image = running.installer(Schematic(), "v1.13.8")
    with running.client("m2") as client:
        client.pull_image(image)
        with pytest.raises(MachineApiError):
            client.install_upgrade(image)
    eventually(lambda: machine.stage == "running")
    with running.client("m2") as client:
        assert client.version().tag == "v1.13.9"


@pytest.mark.parametrize("point", ["bootstrap", "apply", "reboot", "reset"])
def test_dies_at_other_points(running: Bench, point: str) -> None:
    machine = running.rack.machines["m1"]
    machine.faults.set((Fault(kind="die", at=point, times=1),))
    if point == "bootstrap":
        machine.store.disks.etcd = None
    with running.client("m1") as client:
        deeds: dict[str, Any] = {
            "bootstrap": client.bootstrap,
            "apply": lambda: client.apply_configuration(running.control_plane("cp"), mode=ApplyMode.REBOOT),
            "reboot": client.reboot,
            "reset": lambda: client.reset(wipe=WipeMode.ALL, graceful=False, reboot=True),
        }
        try:
            deeds[point]()
        except MachineApiError as error:
            assert point in {"bootstrap", "apply"}, error
    eventually(lambda: not machine.store.disks.powered)
    eventually(lambda: "cp" in running.cluster.not_ready)


def test_the_installer_fails(running: Bench) -> None:
    machine = running.rack.machines["m2"]
    machine.faults.set((Fault(kind="installer-fails", times=1),))
    image = running.installer(Schematic(), "v1.13.8")
    with running.client("m2") as client:
        client.pull_image(image)
        with pytest.raises(UpgradeFailedError):
            client.install_upgrade(image)
        assert machine.store.disks.next_boot is None


def test_a_skewed_clock_keeps_bootstrap_away_and_certificates_wrong(bench: Bench) -> None:
    machine = bench.rack.machines["m1"]
    bench.give("m1", bench.control_plane("cp"))
    eventually(lambda: machine.cri_up)
    machine.faults.set((Fault(kind="clock-skew", seconds=600),))
    with bench.client("m1") as client:
        with pytest.raises(NotReadyError, match="time is not in sync yet"):
            client.bootstrap()
        assert any(reason.startswith("time:") for reason in client.machine_status().unmet)
    machine.power_off()
    machine.faults.set((Fault(kind="clock-skew", seconds=7 * 86400),))
    machine.power_on()
    eventually(lambda: machine.cri_up)
    with bench.client("m1") as client, pytest.raises(MachineApiError):
        client.version()


def test_a_service_is_down_until_the_fault_ends(running: Bench) -> None:
    faults = running.rack.machines["m2"].faults
    faults.set((Fault(kind="service-down", names=(FABRIC_MANAGER_SERVICE,)),))
    with running.client("m2") as client:
        down = [service for service in client.services() if service.state != "Running"]
        assert [(service.id, service.state) for service in down] == [(FABRIC_MANAGER_SERVICE, "Waiting")]
        assert what_is_missing(client) == [
            f"services: {FABRIC_MANAGER_SERVICE} not running",
            f"{FABRIC_MANAGER_SERVICE} is Waiting: {down[0].message}",
        ]
        faults.set(())
        assert what_is_missing(client) == []


def test_a_module_that_is_not_loaded_takes_the_gpus_along(running: Bench) -> None:
    machine = running.rack.machines["m2"]
    with running.client("m2") as client:
        assert client.nvidia_driver() == "595.91.07"
        assert {"nvidia", "nvidia_uvm"} <= client.kernel_modules()
        machine.faults.set((Fault(kind="module-missing", names=("nvidia",)),))
        assert "nvidia" not in client.kernel_modules()
        with pytest.raises(MachineApiError, match="no such file"):
            client.nvidia_driver()
    machine.power_off()
    machine.power_on()
    eventually(lambda: bool(running.cluster.nodes["gpu"].no_gpus_because))
    assert running.cluster.nodes["gpu"].no_gpus_because == "kernel module nvidia is not loaded"
    with running.client("m1") as client:
        assert not any(name.startswith("nvidia") for name in client.kernel_modules())


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"kind": "quick"}, "allowed: slow"),
        ({"kind": "die", "at": "lunch"}, "allowed: apply"),
        ({"kind": "die"}, "allowed: apply"),
        ({"kind": "refuse", "code": "NO"}, "UNAVAILABLE"),
        ({"seconds": 3}, "keys: at"),
        ({"kind": "slow", "colour": 3}, "colour"),
        ({"kind": "service-down"}, "take names of services"),
        ({"kind": "slow", "names": ["kubelet"]}, "other faults none"),
    ],
)
def test_faults_that_do_not_exist(fields: dict[str, Any], refusal: str) -> None:
    with pytest.raises(LabError, match=refusal):
        parse_fault(fields)
