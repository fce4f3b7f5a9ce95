"""What an emulated machine has on its disks: the systems that it boots, and the volumes of its config."""

from __future__ import annotations

import dataclasses
from typing import Literal

from lab.machines import kernel, volumes
from lab.machines.config_view import Config
from lab.machines.power import PoweredMachine, Session
from lab.machines.state import Image, System
from lab.machines.volumes import VolumeState
from talos.api.results import RebootMode


class MachineWithDisks(PoweredMachine):
    """Systems and volumes; what lasts of them is in the machine's Store."""

    config: Config | None
    """What is in effect, which a reboot forgets."""
    is_signed: bool
    """Of what booted; an installer that writes the disk meanwhile does not change it."""

    @property
    def running_system(self) -> System:
        """What it booted: from its disk, or from the image of its description."""
        return self.store.disks.installed or self._medium

    @property
    def _medium(self) -> System:
        spec = self.spec
        return System(talos_version=spec.boot_version, schematic=spec.boot_schematic, signed=spec.secure_boot)

    @property
    def volumes(self) -> dict[str, VolumeState]:
        """The config's volumes by their ids, sealed and opened by what runs; none before it has a config."""
        config, used = self.config, self.faults.disks_used()
        if config is None:
            return {}
        states = volumes.volumes(config, self.store.disks.volumes, signed=self.is_signed, used=used)
        return {state.id: state for state in states}

    def make_volume(self, name: str) -> str:
        """Why a volume cannot be made or opened; empty where it is there then."""
        state = self.volumes[name]
        if state.phase == "ready":
            self.store.disks.volumes = {**self.store.disks.volumes, name: state.content}
            self.store.save()
        return state.error

    def wait_volume(self, session: Session, name: str) -> None:
        shown = ""
        while problem := self.make_volume(name):
            if problem != shown:
                self.log(f"volume {name} failed: {problem}")
            shown = problem
            session.wait(self.speed.retry_s)

    def restarts_by(self, mode: RebootMode = RebootMode.DEFAULT) -> Literal["firmware", "kexec"]:
        """How the next kernel is started."""
        return "kexec" if kernel.restarts_by_kexec(self.config, self.spec, mode) else "firmware"

    def boot_next(self, image: Image, reference: str) -> None:
        """Write an image's system to the slot that boots next."""
        self.store.disks.next_boot = dataclasses.replace(image.system, image=reference)
        self.store.save()
