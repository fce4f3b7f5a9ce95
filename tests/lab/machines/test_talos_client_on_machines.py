"""Talos's own Go client against emulated machines: every call of this project's client, and the codes it reads."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.install import install
from lab.machines.checker import CheckerProgram
from lab.paths import Lab
from talos.api import calls
from talos.cluster import MachineSettings
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from talos.secrets import bundle as secrets
from talos.secrets import talosconfig
from tests.unit.machines.emulated_rack import Bench, eventually, new_bench
from tests.unit.talos.talos_examples import entropy

Answer = dict[str, Any]
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass
class TalosClient:
    """The Go program as an operator, with the rack that it is for."""

    program: Path
    folder: Path
    bench: Bench

    def login(self, role: talosconfig.Role = "os:admin", bundle: secrets.SecretsBundle | None = None) -> Path:
        issued = talosconfig.issue(bundle or self.bench.bundle, context="bench", endpoints=("127.0.0.1",), role=role)
        file = self.folder / f"{role.replace(':', '-')}-{bundle is None}"
        file.write_text(issued.render())
        return file

    def insecure(self, name: str, *arguments: str, given: bytes = b"") -> Answer:
        return self._run(name, ["--insecure", *arguments], given)

    def __call__(self, name: str, *arguments: str, given: bytes = b"", login: Path | None = None) -> Answer:
        return self._run(name, ["--talosconfig", str(login or self.login()), *arguments], given)

    def _run(self, name: str, arguments: list[str], given: bytes) -> Answer:
        machine = self.bench.rack.machines[name]
        endpoint = f"{machine.address}:{machine.spec.port}"
        done = subprocess.run(
            [self.program, "client", "--endpoint", endpoint, *arguments],
            input=given,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.stdout, done.stderr.decode()
        answer: Answer = json.loads(done.stdout)
        return answer


@pytest.fixture(scope="module")
def program() -> Path:
    lab = Lab.from_environment()
    install(lab, ["talos-checker"])
    return lab.bin / "talos-checker"


@pytest.fixture(scope="module")
def talos(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TalosClient]:
    """A control plane and an HGX worker, configured and bootstrapped by Talos's own client."""
    folder = tmp_path_factory.mktemp("talos")
    bench = new_bench(folder / "machines", "infra", "hgx-h200", checker=CheckerProgram(program))
    client = TalosClient(program, folder, bench)
    with bench.rack:
        for name, config in (("m1", bench.control_plane("cp")), ("m2", bench.hgx("gpu"))):
            bench.wait_stage(name, "maintenance")
            assert client.insecure(name, "apply", "-", given=config)["ok"]
        eventually(lambda: bench.rack.machines["m1"].cri_up)
        assert client("m1", "bootstrap")["ok"]
        eventually(lambda: {"cp", "gpu"} <= set(bench.cluster.nodes))
        for name in ("m1", "m2"):
            bench.wait_stage(name, "running")
        yield client


@pytest.fixture
def fresh(program: Path, tmp_path: Path) -> Iterator[TalosClient]:
    """One machine in maintenance mode."""
    bench = new_bench(tmp_path / "machines", "infra", checker=CheckerProgram(program))
    with bench.rack:
        bench.wait_stage("m1", "maintenance")
        yield TalosClient(program, tmp_path, bench)


def messages(answer: Answer) -> list[Answer]:
    assert answer["ok"], answer
    replies: list[Answer] = answer["reply"]["messages"]
    return replies


def test_maintenance_mode(fresh: TalosClient) -> None:
    assert messages(fresh.insecure("m1", "version"))[0]["version"]["tag"] == "v1.13.9"
    assert fresh.insecure("m1", "machine-status")["reply"]["stage"] == "maintenance"
    assert messages(fresh.insecure("m1", "disks"))[0]["disks"][0]["deviceName"] == "/dev/nvme0n1"
    for call in ("reboot", "bootstrap", "kubeconfig", "reset", "upgrade-legacy", "pull", "upgrade", "etcd-snapshot"):
        assert fresh.insecure("m1", call, "any/image:v1")["code"] == "PermissionDenied", call
    assert fresh.insecure("m1", "--node", "127.9.9.9", "version")["code"] == "PermissionDenied"


def test_a_fingerprint_is_the_one_that_talos_computes(fresh: TalosClient) -> None:
    console = fresh.bench.rack.machines["m1"].store.console.read_text()
    shown = console.partition('"fingerprint": "')[2].partition('"')[0]
    assert fresh.insecure("m1", "--fingerprint", shown, "version")["ok"]
    other = ("B" if shown.startswith("A") else "A") + shown[1:]
    wrong = fresh.insecure("m1", "--fingerprint", other, "version")
    assert wrong["code"] == "Unavailable"
    assert shown in wrong["error"]


def test_invalid_configs_are_refused_by_talos_own_validator(fresh: TalosClient) -> None:
    good = fresh.bench.control_plane("cp")
    for bad, reason in (
        (good.replace(b"nodeLabels:", b"nodeLabel:"), "unknown keys found"),
        (good.replace(b"disk: /dev/nvme0n1", b"wipe: false"), "1 error occurred:\n\t* "),
        (b"\x00", "yaml"),
    ):
        answer = fresh.insecure("m1", "apply", "-", given=bad)
        assert answer["code"] == "InvalidArgument"
        assert reason in answer["error"]
    assert fresh.bench.rack.machines["m1"].stage == "maintenance"


def test_strangers_and_readers(talos: TalosClient) -> None:
    stranger = talos.login(bundle=secrets.generate(entropy(99), secrets.utc_now))
    refused = talos("m1", "version", login=stranger)
    assert refused["code"] == "Unavailable"
    assert "certificate" in refused["error"]
    assert talos.insecure("m1", "version")["code"] == "Unavailable"
    reader = talos.login("os:reader")
    assert talos("m1", "version", login=reader)["ok"]
    for call in ("kubeconfig", "bootstrap", "reboot", "reset", "generate-client-configuration"):
        assert talos("m1", call, login=reader)["code"] == "PermissionDenied", call
    assert talos("m1", "read", BOOT_ID, login=reader)["code"] == "PermissionDenied"


def test_what_reads(talos: TalosClient) -> None:
    assert messages(talos("m1", "version"))[0]["features"] == {"rbac": True}
    services = {service["id"]: service for service in messages(talos("m1", "services"))[0]["services"]}
    assert services["etcd"]["state"] == "Running"
    assert services["etcd"]["health"]["healthy"]
    assert [member["hostname"] for member in messages(talos("m1", "etcd-members"))[0]["members"]] == ["cp"]
    eventually(lambda: bool(talos("m1", "machine-status")["reply"]["ready"]))
    assert talos("m2", "extensions")["reply"]["nvidia-fabricmanager-production"] == "595.91.07"
    assert talos("m1", "kubeconfig")["reply"].startswith("apiVersion: v1\nkind: Config\n")
    boot = talos("m1", "read", BOOT_ID)["reply"].strip()
    assert boot == talos.bench.rack.machines["m1"].store.disks.boot_id
    assert talos("m1", "read", "/nothing")["code"] == "Unknown"
    assert talos("m1", "etcd-snapshot")["reply"]["whole"]
    assert messages(talos("m1", "disks"))[0]["disks"][0]["systemDisk"]


def test_codes(talos: TalosClient) -> None:
    assert talos("m1", "bootstrap")["code"] == "AlreadyExists"
    for call in ("bootstrap", "etcd-members", "kubeconfig", "etcd-snapshot", "generate-client-configuration"):
        assert talos("m2", call)["code"] == "Unimplemented", call
    image = talos.bench.installer(Schematic(), "v1.13.8")
    assert talos("m2", "upgrade", image)["code"] == "Internal"
    assert talos("m2", "pull", image.replace("v1.13.8", "v1.0.0"))["code"] == "NotFound"
    assert talos("m2", "apply", "-", given=b"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: x\n")["code"] == (
        "InvalidArgument"
    )


def test_an_issued_login_works(talos: TalosClient) -> None:
    answer = talos("m1", "--roles", "os:reader", "--ttl", "10m", "generate-client-configuration")
    issued = talos.folder / "issued"
    encoded = messages(answer)[0]["talosconfig"]
    issued.write_bytes(base64.b64decode(encoded))
    assert talos("m2", "version", login=issued)["ok"]
    assert talos("m2", "reboot", login=issued)["code"] == "PermissionDenied"


def test_proxying(talos: TalosClient) -> None:
    worker = talos.bench.rack.machines["m2"]
    plane = talos.bench.rack.machines["m1"]
    read = talos("m1", "--node", worker.address, "read", BOOT_ID)
    assert read["reply"].strip() == worker.store.disks.boot_id
    both = messages(talos("m1", "--nodes", f"{worker.address},{plane.address}", "version"))
    assert [message["metadata"]["hostname"] for message in both] == [worker.address, plane.address]
    partly = talos("m1", "--nodes", f"{worker.address},127.9.9.9", "version")
    assert (partly["code"], len(partly["reply"]["messages"])) == ("Unavailable", 1)
    inside = talos("m1", "--nodes", worker.address, "etcd-members")
    assert inside["code"] == "Unimplemented"
    assert talos("m2", "--node", plane.address, "version")["code"] == "PermissionDenied"
    assert talos("m1", "--nodes", worker.address, "machine-status")["code"] == "InvalidArgument"


def test_apply_modes_are_talos_own_classification(talos: TalosClient) -> None:
    bench = talos.bench
    live = bench.hgx("gpu", HGXProfile(node_labels={"site.example/rack": "r1"}))
    planned = messages(talos("m2", "--dry-run", "apply", "-", given=live))[0]
    assert planned["mode"] == "NO_REBOOT"
    assert "+        site.example/rack: r1\n" in planned["modeDetails"]
    same = messages(talos("m2", "--dry-run", "apply", "-", given=bench.hgx("gpu")))[0]
    assert same["modeDetails"].endswith("Config diff:\n\nNo changes.")
    chosen = HGXProfile()
    settings = chosen.settings()
    udev = MachineSettings(**{**vars(settings), "udev_rules": ('SUBSYSTEM=="net"',)})
    image = bench.installer(Schematic(extensions=chosen.extensions))
    reboots = bench.worker("gpu", settings=udev, image=image)
    planned = messages(talos("m2", "--dry-run", "apply", "-", given=reboots))[0]
    assert planned.get("mode", "REBOOT") == "REBOOT"
    assert planned["modeDetails"].startswith(
        "Dry run summary:\nApplied configuration with a reboot (skipped in dry-run)."
    )
    assert talos("m2", "--mode", "NO_REBOOT", "apply", "-", given=reboots)["code"] == "InvalidArgument"
    for mode in ("AUTO", "TRY", "STAGED"):
        arguments = ["--mode", mode, *(["--try-timeout", "1s"] if mode == "TRY" else [])]
        assert messages(talos("m2", *arguments, "apply", "-", given=live))


def test_pull_upgrade_and_reboot(talos: TalosClient) -> None:
    image = talos.bench.installer(Schematic(extensions=HGXProfile().extensions), "v1.13.8")
    pulled = talos("m2", "pull", image)["reply"]
    assert "@sha256:" in pulled["name"]
    assert pulled["progress"] > 0
    assert talos("m2", "upgrade", image)["reply"]["exitCode"] == 0
    assert messages(talos("m2", "reboot"))[0]["actorId"]
    eventually(lambda: talos.bench.cluster.nodes["gpu"].os_image == "Talos (v1.13.8), emulated")
    assert messages(talos("m2", "version"))[0]["version"]["tag"] == "v1.13.8"


def test_members_of_etcd_that_cannot_be_removed(talos: TalosClient) -> None:
    (member,) = messages(talos("m1", "etcd-members"))[0]["members"]
    assert talos("m1", "etcd-remove-member", "1")["code"] == "NotFound"
    only = talos("m1", "etcd-remove-member", member["id"])
    assert (only["ok"], "not enough started members" in only["error"]) == (False, True)
    assert talos("m2", "etcd-remove-member", member["id"])["code"] == "Unimplemented"


def test_a_member_of_etcd_whose_machine_is_off_is_removed(program: Path, tmp_path: Path) -> None:
    bench = new_bench(tmp_path / "machines", "infra", "infra", "infra", checker=CheckerProgram(program))
    client = TalosClient(program, tmp_path, bench)

    def members() -> dict[str, str]:
        return {member["hostname"]: member["id"] for member in messages(client("m1", "etcd-members"))[0]["members"]}

    with bench.rack:
        for name in bench.rack.machines:
            bench.wait_stage(name, "maintenance")
            assert client.insecure(name, "apply", "-", given=bench.control_plane(f"cp-{name}"))["ok"]
        eventually(lambda: bench.rack.machines["m1"].cri_up)
        assert client("m1", "bootstrap")["ok"]
        eventually(lambda: all(machine.etcd_up for machine in bench.rack.machines.values()))
        bench.rack.machines["m3"].power_off()
        assert client("m1", "etcd-remove-member", members()["cp-m3"])["ok"]
        assert set(members()) == {"cp-m1", "cp-m2"}


def test_the_legacy_upgrade(talos: TalosClient) -> None:
    image = talos.bench.installer(Schematic(extensions=HGXProfile().extensions), "v1.13.7")
    assert messages(talos("m2", "upgrade-legacy", image))[0]["ack"] == "Upgrade request received"
    eventually(lambda: talos.bench.cluster.nodes["gpu"].os_image == "Talos (v1.13.7), emulated")


def test_reset_and_recovery(fresh: TalosClient) -> None:
    config = fresh.bench.control_plane("cp")
    for again in (False, True):
        assert fresh.insecure("m1", "apply", "-", given=config)["ok"]
        eventually(lambda: fresh.bench.rack.machines["m1"].cri_up)
        if again:
            snapshot = bytes(1000)
            file = fresh.folder / "snapshot"
            file.write_bytes(snapshot + hashlib.sha256(snapshot).digest())
            assert messages(fresh("m1", "etcd-recover", str(file))) == [{}]
        assert fresh("m1", *(["--recover"] if again else []), "bootstrap")["ok"]
        fresh.bench.wait_stage("m1", "running")
        if not again:
            assert messages(fresh("m1", "reset"))[0]["actorId"]
            fresh.bench.wait_stage("m1", "maintenance")
    assert fresh.bench.cluster.recovered == file.read_bytes()


def test_every_call_of_our_client_is_tried_here() -> None:
    tried = {
        "Version", "ServiceList", "EtcdMemberList", "Get", "List", "Kubeconfig", "Read", "EtcdSnapshot",
        "ApplyConfiguration", "Bootstrap", "Reboot", "Reset", "Upgrade", "GenerateClientConfiguration", "Pull",
        "EtcdRecover", "EtcdRemoveMemberByID",
    }  # fmt: skip
    assert {call.name for call in calls.CALLS} == tried
