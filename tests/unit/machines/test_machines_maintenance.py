"""Maintenance mode and the way out of it: who may do what, and as whom the machine answers."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.machines.config_view import Config
from lab.machines.machine import Machine
from talos.api.client import MachineClient
from talos.api.errors import DeniedError, InvalidError, MachineApiError, UntrustedError
from talos.api.results import ApplyMode, RebootMode, WipeMode
from talos.api.tls import FirstContact, MutualTls, Pinned
from talos.factory.schematic import Schematic
from talos.secrets import bundle as secrets
from tests.unit.machines.emulated_rack import Bench, eventually
from tests.unit.talos.talos_examples import entropy

pytestmark = pytest.mark.processes


def console(bench: Bench, name: str) -> str:
    return Path(bench.rack.machines[name].store.console).read_text()


def test_the_console_has_the_fingerprint_of_the_certificate(bench: Bench) -> None:
    shown = re.findall(r'"fingerprint": "([^"]+)"', console(bench, "m1"))
    with bench.client("m1", Pinned(shown[-1])) as client:
        assert client.version().tag == "v1.13.9"
    other = re.findall(r'"fingerprint": "([^"]+)"', console(bench, "m2"))
    with bench.client("m1", Pinned(other[-1])) as client, pytest.raises(UntrustedError):
        client.version()


def test_it_waits_for_a_port_that_is_taken(bench: Bench) -> None:
    machine = bench.rack.machines["m1"]
    machine.power_off()
    with socket.create_server((machine.spec.address, machine.spec.port)):
        machine.power_on()
        eventually(lambda: "cannot listen on" in console(bench, "m1"))
    bench.wait_stage("m1", "maintenance")
    with bench.maintenance("m1") as client:
        assert client.version().tag == "v1.13.9"


def test_it_tells_what_a_reader_may_know(bench: Bench) -> None:
    with bench.maintenance("m2") as client:
        status = client.machine_status()
        assert (status.stage, status.ready) == ("maintenance", True)
        assert [extension.name for extension in client.extensions()] == ["schematic"]
        assert "kubelet" not in [service.id for service in client.services()]


CALLS: dict[str, Callable[[MachineClient], object]] = {
    "Bootstrap": lambda client: client.bootstrap(),
    "Kubeconfig": lambda client: client.kubeconfig(),
    "Read": lambda client: client.boot_id(),
    "Reboot": lambda client: client.reboot(mode=RebootMode.DEFAULT),
    "Reset": lambda client: client.reset(wipe=WipeMode.ALL, graceful=False, reboot=True),
    "Upgrade": lambda client: client.upgrade_legacy("any/image:v1"),
    "Pull": lambda client: client.pull_image("any/image:v1"),
    "LifecycleService/Upgrade": lambda client: client.install_upgrade("any/image:v1"),
    "EtcdSnapshot": lambda client: list(client.etcd_snapshot()),
}


@pytest.mark.parametrize("call", CALLS)
def test_it_denies_everything_else(bench: Bench, call: str) -> None:
    with bench.maintenance("m1") as client, pytest.raises(DeniedError, match="not authorized"):
        CALLS[call](client)


def test_it_passes_no_calls_on(bench: Bench) -> None:
    other = bench.rack.machines["m2"].address
    with (
        bench.client("m1", FirstContact(), forward_to=other) as client,
        pytest.raises(DeniedError, match="no request forwarding"),
    ):
        client.version()


def test_an_invalid_config_is_refused_and_changes_nothing(bench: Bench) -> None:
    with bench.maintenance("m1") as client:
        with pytest.raises(InvalidError, match="unknown key"):
            client.apply_configuration(b"wrong: true\nmachine: {}\n", mode=ApplyMode.AUTO)
        assert client.machine_status().stage == "maintenance"
    assert bench.rack.machines["m1"].store.config is None


def test_a_dry_run_installs_nothing(bench: Bench) -> None:
    with bench.maintenance("m1") as client:
        applied = client.apply_configuration(bench.control_plane("cp"), mode=ApplyMode.AUTO, dry_run=True)
    assert applied.mode is ApplyMode.NO_REBOOT
    assert applied.changed
    assert bench.rack.machines["m1"].stage == "maintenance"


def test_an_incomplete_config_leaves_it_in_maintenance(bench: Bench) -> None:
    bench.give("m1", b"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: early\n")
    with bench.maintenance("m1") as client:
        assert client.machine_status().stage == "maintenance"
    assert bench.rack.machines["m1"].hostname == "early"


def test_a_config_installs_reboots_and_turns_to_mutual_tls(bench: Bench) -> None:
    machine = bench.rack.machines["m1"]
    before = machine.store.disks.boot_id
    assert bench.give("m1", bench.control_plane("cp")).details == "Applied configuration without a reboot"
    eventually(lambda: machine.cri_up)
    assert machine.store.disks.installed is not None
    with bench.client("m1") as client:
        assert client.boot_id() == machine.store.disks.boot_id != before
    with bench.maintenance("m1") as client, pytest.raises(MachineApiError):
        client.version()


def test_only_clients_of_its_ca_are_let_in(running: Bench) -> None:
    foreign = secrets.generate(entropy(99), secrets.utc_now)
    stranger = running.login(bundle=foreign)
    mixed = MutualTls(running.login().ca, stranger.certificate, stranger.key)
    with running.client("m1", mixed) as client, pytest.raises(DeniedError):
        client.version()


def test_roles_are_honoured(running: Bench) -> None:
    with running.client("m1", running.login("os:reader")) as client:
        assert client.version().tag == "v1.13.9"
        for call in (MachineClient.kubeconfig, MachineClient.boot_id, MachineClient.reboot, MachineClient.bootstrap):
            with pytest.raises(DeniedError, match="not authorized"):
                call(client)
        with pytest.raises(DeniedError, match="not authorized"):
            client.apply_configuration(running.control_plane("cp"), mode=ApplyMode.AUTO, dry_run=True)
    with running.client("m1", running.login("os:operator")) as client:
        client.reboot()


def test_an_issued_client_certificate_works_with_its_role(running: Bench) -> None:
    with running.client("m1") as client:
        issued = client.generate_client_configuration(roles=("os:reader",), lifetime_s=600)
    assert "reader@bench" in issued.talosconfig
    login = MutualTls(issued.ca, issued.certificate, issued.key)
    with running.client("m2", login) as client:
        assert client.version().tag == "v1.13.9"
        with pytest.raises(DeniedError):
            client.boot_id()


def test_a_worker_serves_only_once_a_control_plane_signs_for_it(bench: Bench) -> None:
    bench.give("m2", bench.hgx("gpu"))
    bench.wait_stage("m2", "booting")
    with bench.client("m2") as client, pytest.raises(MachineApiError):
        client.version()
    bench.give("m1", bench.control_plane("cp"))
    bench.wait_stage("m2", "running")
    with bench.client("m2") as client:
        assert client.version().tag == "v1.13.9"


def test_a_worker_with_a_wrong_token_gets_no_certificate(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], bench.rack.trustd

    def trustd(config: Config) -> Machine | None:
        token = plain(config)
        asked.append(token)
        return token

    bench.give("m1", bench.control_plane("cp"))
    right = bench.bundle.trustd_token.encode()
    bench.give("m2", bench.hgx("gpu").replace(right, b"abcdef.0123456789abcdef"))
    eventually(lambda: bench.rack.machines["m1"].cri_up and bench.rack.machines["m2"].store.disks.installed is not None)
    bench.wait_stage("m2", "booting")
    monkeypatch.setattr(bench.rack, "trustd", trustd)
    # More may come between two looks.
    eventually(lambda: len(asked) >= 3)
    assert set(asked) == {None}
    assert bench.rack.machines["m2"].stage == "booting"


def test_an_image_that_no_registry_has_ends_in_maintenance_again(bench: Bench) -> None:
    machine = bench.rack.machines["m1"]
    before = machine.store.disks.boot_id
    bench.give("m1", bench.control_plane("cp", image=bench.installer(Schematic(), "v1.12.0")))
    eventually(lambda: machine.store.disks.boot_id != before and machine.stage == "maintenance")
    assert "install failed" in console(bench, "m1")
    assert machine.store.disks.installed is None
