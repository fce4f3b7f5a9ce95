"""The HGX profile and Longhorn's disks: what each choice puts into schematic, machine config and documents."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from talos.cluster import MachineSettings
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.factory.extensions import Extension, check_extensions
from talos.factory.schematic import Schematic
from talos.hgx import Fork, HGXProfile
from talos.storage import LonghornDisk, LonghornStorage
from tests.unit.talos import talos_examples as examples


@pytest.mark.parametrize("fork", ["lts", "production"])
@pytest.mark.parametrize(
    ("modules", "package"), [("open", "nvidia-open-gpu-kernel-modules"), ("proprietary", "nonfree-kmod-nvidia")]
)
def test_driver_toolkit_and_fabric_manager_are_of_one_fork(
    fork: Fork, modules: Literal["open", "proprietary"], package: str
) -> None:
    profile = HGXProfile(fork=fork, modules=modules)
    assert profile.extensions == tuple(
        sorted(
            f"siderolabs/{name}"
            for name in (
                f"{package}-{fork}",
                f"nvidia-container-toolkit-{fork}",
                f"nvidia-fabricmanager-{fork}",
                "iscsi-tools",
                "nfsrahead",
                "util-linux-tools",
            )
        )
    )


def test_the_factorys_check_is_content_with_the_list() -> None:
    names = HGXProfile(fork="lts", extra_extensions=("siderolabs/intel-ucode",)).extensions
    driver = "580.178.04-v1.13.9"
    official = [Extension(name, f"ghcr.io/{name}:{driver if 'nvidia' in name else 'v1.13.9'}") for name in names]
    toolkit = [Extension(extension.name, extension.ref) for extension in official]
    check_extensions(Schematic(extensions=names), toolkit, talos_version="v1.13.9", nvswitch=True)


def test_rdma_brings_the_kernels_own_modules_and_an_argument() -> None:
    plain = {module.name for module in HGXProfile().kernel_modules}
    roce = {module.name for module in HGXProfile(rdma="roce").kernel_modules}
    infiniband = {module.name for module in HGXProfile(rdma="infiniband").kernel_modules}
    assert plain == {"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"}
    assert roce - plain == {"mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_umad"}
    assert infiniband - roce == {"ib_ipoib"}
    assert HGXProfile().kernel_args == ()
    assert HGXProfile(rdma="roce").kernel_args == ("iommu=pt",)


def test_the_proprietary_driver_has_no_dma_buf() -> None:
    with pytest.raises(ConfigError, match="dma-buf"):
        HGXProfile(modules="proprietary", rdma="roce")
    profile = HGXProfile(modules="proprietary", rdma="roce", gpu_direct="none")
    assert "nvidia_peermem" not in {module.name for module in profile.kernel_modules}
    assert HGXProfile(modules="proprietary").gpu_direct == "dma-buf"


def test_huge_pages_of_profile_and_storage_add_up() -> None:
    assert "vm.nr_hugepages" not in HGXProfile().all_sysctls
    assert examples.hgx_profile("v1").all_sysctls["vm.nr_hugepages"] == "512"
    assert examples.hgx_profile("v2").all_sysctls["vm.nr_hugepages"] == str(512 + 1024)
    assert HGXProfile(huge_pages_2mib=8, sysctls={"vm.nr_hugepages": "9"}).all_sysctls["vm.nr_hugepages"] == "9"


def test_no_reboot_is_a_kexec_and_no_setting_is_one_that_the_kernel_lacks() -> None:
    sysctls = HGXProfile().all_sysctls
    assert sysctls["kernel.kexec_load_disabled"] == "1"
    assert "kernel.numa_balancing" not in sysctls


def test_the_node_registers_tainted() -> None:
    """By the kubelet: an update that changes a taint later loses the labels, too, which Talos sends with it."""
    machine = examples.hgx_config().wire()[0]["machine"]
    assert machine["nodeTaints"] == {"nvidia.com/gpu": "present:NoSchedule"}
    assert machine["kubelet"]["extraConfig"]["registerWithTaints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    ]


def test_taints_of_a_site_are_registered_with_in_one_order_beside_what_the_site_sets_of_the_kubelet() -> None:
    taints = {"b.example/x": "NoExecute", "a.example/y": "z:NoSchedule"}
    settings = MachineSettings(node_taints=taints, kubelet_config={"maxPods": 250})
    install = Install(disk="/dev/sda", image="f/metal-installer/s:v1.13.9")
    machine = examples.site_cluster().worker(install, settings).wire()["machine"]
    assert machine["kubelet"]["extraConfig"] == {
        "maxPods": 250,
        "registerWithTaints": [
            {"key": "a.example/y", "value": "z", "effect": "NoSchedule"},
            {"key": "b.example/x", "effect": "NoExecute"},
        ],
    }


@pytest.mark.parametrize(
    ("engine", "kind", "path", "disk_type"),
    [
        ("v1", "UserVolumeConfig", "/var/mnt/longhorn-0", "filesystem"),
        ("v2", "RawVolumeConfig", "/dev/disk/by-partlabel/r-longhorn-0", "block"),
    ],
)
def test_longhorn_knows_where_talos_made_its_disks(engine: str, kind: str, path: str, disk_type: str) -> None:
    profile = examples.hgx_profile(engine)
    assert profile.storage is not None
    documents = [document.document() for document in profile.documents]
    assert [(document["kind"], document["name"]) for document in documents] == [
        (kind, "longhorn-0"),
        (kind, "longhorn-1"),
    ]
    settings = profile.settings()
    [listed, _] = json.loads(settings.node_annotations["node.longhorn.io/default-disks-config"])
    assert (listed["path"], listed["diskType"], listed["tags"]) == (path, disk_type, ["nvme"])
    assert settings.node_labels["node.longhorn.io/create-default-disk"] == "config"
    mounted = [mount.destination for mount in settings.kubelet_mounts]
    assert mounted == (["/var/lib/longhorn"] if engine == "v1" else [])
    assert {"vfio_pci", "ublk_drv"} <= {module.name for module in profile.kernel_modules} or engine == "v1"


def test_storage_needs_a_disk() -> None:
    with pytest.raises(ConfigError, match="names no disk"):
        LonghornStorage(disks=())
    disk = LonghornDisk(name="a", selector="!system_disk", min_size="1TB")
    assert LonghornStorage(disks=(disk,)).path(disk) == "/var/mnt/a"
