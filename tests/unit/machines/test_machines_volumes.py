"""Volumes, kernel settings and restarts of emulated machines, as Talos's controllers have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.machines import kernel
from lab.machines.config_view import Config
from lab.machines.faults import Fault
from lab.machines.spec import MachineSpec
from lab.machines.volumes import mounts, volumes
from talos.api.results import ApplyMode, RebootMode
from talos.cluster import MachineSettings
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from tests.unit.machines.emulated_rack import Bench, eventually, new_bench

pytestmark = pytest.mark.processes

TPM, KMS = {"slot": 0, "tpm": {}}, {"slot": 1, "kms": {"endpoint": "https://kms.site.example:4050"}}
SPEC = MachineSpec(name="m", address="10.5.0.11", pod_cidr="10.65.0.0/24")


def sealed(name: str, *keys: object) -> dict[str, object]:
    encryption = {"provider": "luks2", "keys": list(keys)}
    return {"apiVersion": "v1alpha1", "kind": "VolumeConfig", "name": name, "encryption": encryption}


def disk(name: str, serial: str = "A") -> dict[str, object]:
    provisioning = {"diskSelector": {"match": f'disk.serial == "{serial}"'}, "minSize": "3TB"}
    return {"apiVersion": "v1alpha1", "kind": "UserVolumeConfig", "name": name, "provisioning": provisioning}


def config(*documents: object, extra_mounts: tuple[str, ...] = ()) -> Config:
    kubelet = {"extraMounts": [{"source": path, "destination": path} for path in extra_mounts]}
    return Config(yaml.safe_dump_all([{"machine": {"type": "worker", "kubelet": kubelet}}, *documents]).encode())


def states(of: Config, *, signed: bool = False, used: tuple[str, ...] = (), **there: str) -> dict[str, str]:
    made = volumes(
        of, {name.replace("_", "-"): held for name, held in there.items()}, signed=signed, used=frozenset(used)
    )
    return {state.id: f"{state.phase}: {state.error}".removesuffix(": ") for state in made}


def test_a_tpm_seals_for_a_signed_system_only() -> None:
    alone, with_kms = config(sealed("STATE", TPM)), config(sealed("STATE", TPM, KMS))
    assert states(alone, signed=True) == {"STATE": "ready", "EPHEMERAL": "ready"}
    refused = states(alone)["STATE"]
    assert refused.startswith("failed: error formatting and encrypting volume: no handlers available to get encryption")
    assert "failed to read pcr signing public key: open /.extra/tpm2-pcr-public-key.pem: no such file" in refused
    assert states(with_kms)["STATE"] == "ready"
    assert states(alone, STATE="luks")["STATE"].startswith("failed: error opening encrypted volume")


def test_a_volume_that_exists_is_neither_encrypted_nor_decrypted() -> None:
    assert "xfs != luks" in states(config(sealed("EPHEMERAL", KMS)), EPHEMERAL="plain")["EPHEMERAL"]
    assert "luks != xfs" in states(config(), EPHEMERAL="luks")["EPHEMERAL"]


def test_a_disk_that_is_not_blank_takes_no_volume_and_the_extra_mount_is_there_all_the_same() -> None:
    plain = config(disk("longhorn-0"), disk("longhorn-1"))
    matching = states(plain, used=("longhorn-0",))
    assert (matching["u-longhorn-0"].partition(":")[0], matching["u-longhorn-1"]) == ("failed", "ready")
    assert "1 have wrong format" in matching["u-longhorn-0"]
    assert states(plain, used=("longhorn-0",), u_longhorn_0="plain")["u-longhorn-0"] == "ready"

    def folders(of: Config) -> tuple[str, ...]:
        made = volumes(of, {}, signed=False, used=frozenset({"longhorn-0"}))
        return mounts(of, {state.id: state for state in made})

    assert folders(plain) == ("/var/mnt/longhorn-1",)
    extra = config(disk("longhorn-0"), disk("longhorn-1"), extra_mounts=("/var/mnt/longhorn-0",))
    assert folders(extra) == ("/var/mnt/longhorn-1", "/var/mnt/longhorn-0")


def test_user_volumes_wait_for_the_system_disk() -> None:
    matching = states(config(sealed("EPHEMERAL", TPM), disk("longhorn-0")))
    assert matching["u-longhorn-0"] == "waiting"


def test_a_setting_that_the_kernel_lacks_fails_its_controller_and_no_other_setting() -> None:
    settings = {"kernel.numa_balancing": "0", "kernel/hung_task_panic": "1", "vm.swappiness": "1", "kernel.panic": "10"}
    wrong = Config(yaml.safe_dump({"machine": {"sysctls": settings}}).encode())
    assert "open /proc/sys/kernel/numa_balancing: no such file or directory" in kernel.failure(wrong)
    assert "2 errors occurred" in kernel.failure(wrong)
    assert {"proc.sys.vm.swappiness", "proc.sys.kernel.panic"} <= set(kernel.written(wrong))
    assert not [name for name in kernel.written(wrong) if "numa" in name or "hung" in name]


def test_the_profile_sets_nothing_that_the_kernel_lacks() -> None:
    right = Config(yaml.safe_dump({"machine": {"sysctls": HGXProfile(huge_pages_2mib=8).all_sysctls}}).encode())
    assert kernel.failure(right) == ""


def test_a_restart_is_a_kexec_unless_something_forbids_it() -> None:
    plain, forbidden = config(), Config(b"machine: {sysctls: {kernel.kexec_load_disabled: '1'}}\n")
    default, through_firmware = RebootMode.DEFAULT, RebootMode.POWERCYCLE
    assert kernel.restarts_by_kexec(plain, SPEC, default)
    assert not kernel.restarts_by_kexec(plain, SPEC, through_firmware)
    assert not kernel.restarts_by_kexec(forbidden, SPEC, default)
    assert not kernel.restarts_by_kexec(plain, dataclasses.replace(SPEC, secure_boot=True), default)


def test_an_hgx_node_never_restarts_by_kexec_and_others_do(running: Bench) -> None:
    for name in running.rack.machines:
        with running.client(name) as client:
            client.reboot()
    boots = {name: machine.store.disks for name, machine in running.rack.machines.items()}
    eventually(lambda: all(len(disks.boots) == 3 for disks in boots.values()))
    assert boots["m1"].boots == ["power", "kexec", "kexec"]
    assert boots["m2"].boots == ["power", "firmware", "firmware"]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Bench]:
    """Two machines with Secure Boot in their firmware, from their signed medium in maintenance mode."""
    bench = new_bench(tmp_path / "locked", "infra", "hgx-h200", secure_boot=True)
    with bench.rack:
        for name in bench.rack.machines:
            bench.wait_stage(name, "maintenance")
        yield bench


def test_sealed_disks_of_a_signed_system_come_up(locked: Bench) -> None:
    image = locked.installer(Schematic(), signed=True)
    plane = locked.control_plane("cp", image=image) + b"---\n" + yaml.safe_dump(sealed("STATE", TPM)).encode()
    locked.give("m1", plane)
    machine = locked.rack.machines["m1"]
    eventually(lambda: machine.cri_up)
    with locked.client("m1") as client:
        assert {volume.id: (volume.phase, volume.encrypted) for volume in client.volumes()} == {
            "STATE": ("ready", True),
            "EPHEMERAL": ("ready", False),
        }
        state = client.boot_state()
    assert state is not None
    assert (state.secure_boot, state.is_uki, state.is_signed) == (True, True, True)
    assert machine.store.disks.boots == ["power", "firmware"], "Secure Boot allows no kexec"


def test_a_sealed_disk_of_an_unsigned_medium_never_takes_the_config(bench: Bench) -> None:
    plane = bench.control_plane("cp") + b"---\n" + yaml.safe_dump(sealed("STATE", TPM)).encode()
    machine = bench.rack.machines["m1"]
    bench.give("m1", plane)
    eventually(lambda: len(machine.store.disks.boots) == 2)
    bench.wait_stage("m1", "maintenance")
    assert machine.store.config is None
    assert "failed to read pcr signing public key" in machine.store.console.read_text()


def test_firmware_with_secure_boot_starts_no_unsigned_system(locked: Bench) -> None:
    locked.give("m1", locked.control_plane("cp"))
    machine = locked.rack.machines["m1"]
    eventually(lambda: "the image is not signed; nothing is started" in machine.store.console.read_text())
    assert machine.stage == "unknown"


def test_a_used_disk_is_seen_by_the_api_with_its_name(running: Bench) -> None:
    machine = running.rack.machines["m2"]
    machine.faults.set((Fault(kind="disk-used", names=("longhorn-1",)),))
    profile = HGXProfile()
    image = running.installer(Schematic(extensions=profile.extensions))
    own = yaml.safe_dump_all([disk("longhorn-0", "S-0"), disk("longhorn-1", "S-1")])
    worker = running.worker("gpu", settings=profile.settings().joined(MachineSettings()), image=image)
    with running.client("m2") as client:
        client.apply_configuration(worker + b"---\n" + own.encode(), mode=ApplyMode.REBOOT)
        eventually(lambda: len(machine.store.disks.boots) == 3)
        running.wait_stage("m2", "running")
    with running.client("m2") as client:
        phases = {volume.id: volume.phase for volume in client.volumes()}
        assert (phases["u-longhorn-0"], phases["u-longhorn-1"]) == ("ready", "failed")
        assert {matching.name: matching.fields["serial"] for matching in client.disks()}["nvme2n1"] == "S-1"
    assert running.cluster.nodes["gpu"].mounts == ("/var/mnt/longhorn-0",)
