"""Which GPUs, labels and taints follow from a config and an image."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from lab.machines.config_view import Config
from lab.machines.image_factory import official_extensions
from lab.machines.node_facts import loaded_modules, node_addresses, pod_cidr_problem, why_no_gpus
from lab.machines.spec import MachineSpec
from lab.machines.state import System
from talos.hgx import HGXProfile
from tests.unit.talos import talos_examples as examples

OFFICIAL = official_extensions("v1.13.9")
STACK = HGXProfile().extensions
OPEN = "siderolabs/nvidia-open-gpu-kernel-modules-production"
TOOLKIT = "siderolabs/nvidia-container-toolkit-production"
FABRIC = "siderolabs/nvidia-fabricmanager-production"
CONFIG = Config(examples.hgx_config().render().encode())


def system(*names: str, **tags: str) -> System:
    chosen = {name: OFFICIAL[name] for name in names}
    return System(talos_version="v1.13.9", extensions=chosen | {f"siderolabs/{k}": v for k, v in tags.items()})


def test_the_whole_stack_makes_the_gpus_usable() -> None:
    assert why_no_gpus(CONFIG, system(*STACK), "hgx-h200") == ""
    assert why_no_gpus(CONFIG, system(), "infra") == ""


@pytest.mark.parametrize(
    ("installed", "because"),
    [
        (system(), "no NVIDIA kernel modules"),
        (system(OPEN, TOOLKIT), "no nvidia-fabricmanager"),
        (system(OPEN, FABRIC), "no nvidia-container-toolkit"),
        (system(OPEN, TOOLKIT, "siderolabs/nvidia-fabricmanager-lts"), "another fork"),
        (system(OPEN, "siderolabs/nonfree-kmod-nvidia-production", TOOLKIT, FABRIC), "more than one set"),
        (
            system(OPEN, TOOLKIT, **{"nvidia-fabricmanager-production": "570.1.1"}),
            "nvidia-fabricmanager-production is for driver 570.1.1",
        ),
    ],
)
def test_a_stack_that_does_not_fit_gives_none(installed: System, because: str) -> None:
    assert because in why_no_gpus(CONFIG, installed, "hgx-h200")


def test_kernel_modules_must_be_loaded() -> None:
    plain = Config(examples.control_plane_config().render().encode())
    assert why_no_gpus(plain, system(*STACK), "hgx-h200") == "the config does not load kernel module nvidia"


def test_addresses_follow_the_config() -> None:
    inside, outside = IPv4Address("10.5.0.11"), IPv4Address("192.0.2.1")
    assert node_addresses(CONFIG, (outside, inside)) == (inside,)


def test_the_pod_network_must_be_the_configs() -> None:
    good = MachineSpec(name="m", address="10.5.0.11", pod_cidr="10.65.0.0/24")
    bad = MachineSpec(name="m", address="10.5.0.11", pod_cidr="10.1.0.0/24")
    assert pod_cidr_problem(CONFIG, good) == ""
    assert "10.64.0.0/12" in pod_cidr_problem(CONFIG, bad)


def test_modules_of_nvidia_are_loaded_where_the_image_has_them() -> None:
    named = {"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"}
    with_driver, without = (set(loaded_modules(CONFIG, installed)) for installed in (system(*STACK), system(TOOLKIT)))
    assert with_driver - without == named
    assert without
    assert set(loaded_modules(CONFIG, system(*STACK), frozenset({"nvidia"}))) == with_driver - {"nvidia"}
