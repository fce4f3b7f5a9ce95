"""What keeps a machine from being well: by its services, and by those that its image must have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from talos.api.results import ExtensionStatus, MachineStatus, MachineVolume, Service
from talos.cli.health import service_problems, what_is_missing
from talos.hgx import FABRIC_MANAGER_SERVICE, HGXProfile, required_services

pytestmark = pytest.mark.row("000.11")

WELL = (
    Service("apid", "Running", healthy=True),
    Service("dashboard", "Running", healthy=None),
    Service("ext-once", "Finished", healthy=None),
    Service("auditd", "Skipped", healthy=None),
)


def test_services_that_run_ended_or_were_skipped_are_well() -> None:
    assert service_problems(WELL) == []


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        (Service("cri", "Failed", healthy=None, message="exit code 1"), "cri is Failed: exit code 1"),
        (Service("kubelet", "Waiting", healthy=None, message="for etcd"), "kubelet is Waiting: for etcd"),
        (Service("etcd", "Preparing", healthy=None), "etcd is Preparing"),
        (Service("trustd", "Stopping", healthy=True), "trustd is Stopping"),
        (Service("kubelet", "Running", healthy=False, message="timeout"), "kubelet is not healthy: timeout"),
    ],
)
def test_a_service_that_is_not_well_is_named_with_its_reason(service: Service, problem: str) -> None:
    assert service_problems((*WELL, service)) == [problem]


@pytest.mark.parametrize("state", ["Waiting", "Failed", "Finished", "Skipped"])
def test_a_required_service_must_run(state: str) -> None:
    required = (FABRIC_MANAGER_SERVICE,)
    assert service_problems((*WELL, Service(*required, "Running", healthy=None)), required) == []
    stopped = Service(*required, state, healthy=None)
    assert service_problems((*WELL, stopped), required) == [f"{FABRIC_MANAGER_SERVICE} is {state}"]
    assert service_problems(WELL, required) == [f"{FABRIC_MANAGER_SERVICE} does not exist"]


def test_the_fabric_manager_is_required_where_the_image_has_it() -> None:
    assert required_services(HGXProfile().extensions) == (FABRIC_MANAGER_SERVICE,)
    assert required_services(["nvidia-fabricmanager-lts"]) == (FABRIC_MANAGER_SERVICE,)
    assert required_services(["siderolabs/nvidia-container-toolkit-lts", "iscsi-tools"]) == ()


@dataclass(frozen=True)
class Answers:
    """A machine of this image and these services."""

    extension: str
    running: tuple[Service, ...]

    def machine_status(self) -> MachineStatus:
        return MachineStatus("running", ready=True)

    def services(self) -> tuple[Service, ...]:
        return self.running

    def volumes(self) -> tuple[MachineVolume, ...]:
        return (MachineVolume("EPHEMERAL", "ready"),)

    def extensions(self) -> tuple[ExtensionStatus, ...]:
        return (ExtensionStatus(self.extension, "1"),)


def test_a_machine_whose_fabric_manager_never_started_is_not_well() -> None:
    lost: Any = Answers("nvidia-fabricmanager-production", WELL)
    assert what_is_missing(lost) == [f"{FABRIC_MANAGER_SERVICE} does not exist"]
    without: Any = Answers("iscsi-tools", WELL)
    assert what_is_missing(without) == []
