"""Secure Boot, sealed disks, used disks and kernel settings, as commands see them on emulated machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.machines.faults import Fault
from talos.api.results import BootState, MachineVolume
from talos.cli.boot_chain import refusal
from talos.cluster import MachineSettings
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from talos.secrets import talosconfig
from tests.unit.machines.emulated_rack import Bench, eventually, new_bench
from tests.unit.machines.test_machines_volumes import KMS, TPM, disk, sealed
from tests.unit.talos_api.emulated_site import Kubectl, Site

pytestmark = [pytest.mark.processes, pytest.mark.row("000.09", "000.11")]

NAMES = {"m1": "cp", "m2": "gpu"}
NEW = ("--mode", "auto", "--insecure")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Commands on a rack, which `secure_boot` of the firmware decides about."""
    racks = list[Bench]()

    def make(*, secure_boot: bool = False) -> Site:
        bench = new_bench(tmp_path / "machines", "infra", "hgx-h200", secure_boot=secure_boot)
        racks.append(bench)
        credentials = talosconfig.issue(bench.bundle, context="bench", endpoints=())
        monkeypatch.setenv("TALOSCONFIG_TEXT", credentials.render())
        kubectl = Kubectl(tmp_path / "bin", "cp", "gpu").follow(bench.cluster)
        monkeypatch.setenv("PATH", f"{kubectl.folder}:/usr/bin:/bin")
        monkeypatch.setenv("KUBECONFIG_TEXT", "canary-kubeconfig")
        bench.rack.start()
        for name in bench.rack.machines:
            bench.wait_stage(name, "maintenance")
        return Site(bench, capsys, tmp_path, NAMES)

    yield make
    for bench in racks:
        bench.rack.stop()


def with_documents(config: bytes, *documents: object) -> bytes:
    return config + b"---\n" + yaml.safe_dump_all(documents).encode()


def test_a_machine_that_would_not_boot_what_it_installs_is_refused_in_the_preview(run: Any) -> None:
    site = run()
    signed = site.bench.installer(Schematic(), signed=True)
    sealed_plane = with_documents(site.bench.control_plane("cp", image=signed), sealed("STATE", TPM))
    plan = site("plan", "m1", "--image", signed, "--insecure", config=sealed_plane)
    assert plan["change"] == "refused"
    assert "a boot medium that is not signed" in plan["reason"]
    assert "sitectl docs secure-boot" in plan["fix"]
    assert "not signed" in site("apply", "m1", *NEW, config=sealed_plane, code=3)
    assert site.bench.rack.machines["m1"].stage == "maintenance"


def test_an_unsigned_system_is_refused_by_a_machine_with_secure_boot(run: Any) -> None:
    site = run(secure_boot=True)
    plain = site.bench.control_plane("cp")
    plan = site("plan", "m1", "--image", site.bench.image, "--insecure", config=plain)
    assert (plan["change"], "Secure Boot is on in its firmware" in plan["reason"]) == ("refused", True)
    signed = site.bench.installer(Schematic(), signed=True)
    sealed_plane = with_documents(site.bench.control_plane("cp", image=signed), sealed("STATE", TPM, KMS))
    assert site("plan", "m1", "--image", signed, "--insecure", config=sealed_plane)["change"] == "install"
    assert site("apply", "m1", *NEW, config=sealed_plane)["applied"]
    assert site("plan", "m1", "--image", signed, config=sealed_plane)["change"] == "none"


def test_a_site_that_turns_to_signed_images_upgrades_each_machine_and_seals_none(run: Any) -> None:
    site = run()
    bench = site.bench
    bench.bring_up()
    signed = bench.installer(Schematic(), signed=True)
    config = bench.control_plane("cp", image=signed)
    plan = site("plan", "m1", "--image", signed, config=config)
    assert plan["change"] == "upgrade"
    assert "its unsigned system becomes the signed one" in plan["says"]
    plan = site("plan", "m1", "--image", signed, config=with_documents(config, sealed("STATE", TPM)))
    assert plan["change"] == "refused"
    assert "its volume STATE is plain and the config has it encrypted" in plan["reason"]
    assert site("roll", "m1", "--image", signed, "--settle", "1s", config=config)["done"][-1] == "reboot"
    assert bench.rack.machines["m1"].is_signed
    assert site("plan", "m1", "--image", signed, config=config)["change"] == "none"


class Seen:
    """A machine that booted like this."""

    def __init__(self, boot: BootState | None, *volumes: MachineVolume, state: str = "configured") -> None:
        self.client, self.state = self, state
        self._boot, self._volumes = boot, volumes

    def boot_state(self) -> BootState | None:
        return self._boot

    def volumes(self) -> tuple[MachineVolume, ...]:
        return self._volumes


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (Seen(BootState(secure_boot=False, is_uki=False, is_signed=False)), "it boots by GRUB"),
        (
            Seen(BootState(secure_boot=False, is_uki=True, is_signed=True), state="maintenance"),
            "without Secure Boot in",
        ),
        (Seen(BootState(secure_boot=False, is_uki=True, is_signed=False)), ""),
        (Seen(None), ""),
        (Seen(None, MachineVolume("EPHEMERAL", "ready", encrypted=True)), "its volume EPHEMERAL is encrypted"),
        (
            Seen(
                None,
                MachineVolume("META", "ready", encrypted=True),
                MachineVolume("EPHEMERAL", "failed", encrypted=True),
            ),
            "",
        ),
    ],
)
def test_what_cannot_become_a_signed_system_is_refused(seen: Any, says: str) -> None:
    config = b"machine: {install: {image: factory.example/metal-installer-secureboot/a:v1.13.9}}\n"
    matching = refusal(seen, config)
    assert (matching is None) == (not says)
    assert matching is None or says in matching[0]


def test_a_roll_waits_for_each_volume_and_names_the_disk_that_is_not_blank(run: Any) -> None:
    site = run()
    bench, machine = site.bench, site.bench.rack.machines["m2"]
    bench.bring_up()
    machine.faults.set((Fault(kind="disk-used", names=("longhorn-1",)),))
    image = bench.installer(Schematic(extensions=HGXProfile().extensions))
    config = with_documents(bench.hgx("gpu"), disk("longhorn-0", "S-0"), disk("longhorn-1", "S-1"))
    stated = site("roll", "m2", "--image", image, "--health-timeout", "1s", config=config, code=4)
    assert "volume u-longhorn-1 is failed: no disks matched for volume" in stated
    assert "its disk nvme2n1 is not blank: if nothing on it is needed, `talosctl wipe disk nvme2n1`" in stated
    machine.faults.set(())
    assert site("roll", "m2", "--image", image, config=config)["done"] == ["nothing"]


def test_a_roll_of_an_hgx_node_is_no_kexec(run: Any) -> None:
    site = run()
    bench, machine = site.bench, site.bench.rack.machines["m2"]
    bench.bring_up()
    image = bench.installer(Schematic(extensions=HGXProfile().extensions), "v1.13.8")
    config = bench.hgx("gpu", version="v1.13.8")
    assert "reboot" in site("roll", "m2", "--image", image, config=config)["done"]
    assert machine.store.disks.boots == ["power", "firmware", "firmware"]


def test_a_roll_names_a_setting_that_the_kernel_did_not_take(run: Any) -> None:
    site = run()
    bench = site.bench
    bench.bring_up()
    image = bench.installer(Schematic(extensions=HGXProfile().extensions))
    own = HGXProfile().settings().joined(MachineSettings(sysctls={"kernel.numa_balancing": "0"}))
    config = bench.worker("gpu", settings=own, image=image)
    stated = site("roll", "m2", "--image", image, "--health-timeout", "1s", config=config, code=4)
    assert "its kernel did not take the setting kernel.numa_balancing" in stated
    eventually(lambda: "KernelParamSpecController" in bench.rack.machines["m2"].store.console.read_text())
