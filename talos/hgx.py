"""What makes a worker an HGX H200 node: NVIDIA's driver from extensions, kernel modules, sysctls, RDMA, storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from floor import gpu_nodes
from talos.cluster import MachineSettings
from talos.documents.document import Document
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import KernelModule
from talos.storage import LonghornStorage

Modules = Literal["open", "proprietary"]
Fork = Literal["production", "lts"]
Rdma = Literal["none", "roce", "infiniband"]
GpuDirect = Literal["dma-buf", "none"]

_MODULE_PACKAGES = {"open": "nvidia-open-gpu-kernel-modules", "proprietary": "nonfree-kmod-nvidia"}
_STORAGE_PACKAGES = ("iscsi-tools", "util-linux-tools", "nfsrahead")
FABRIC_MANAGER_SERVICE = "ext-nvidia-fabricmanager"
"""Talos's service of the extension `nvidia-fabricmanager`: without it NVSwitch does not connect the GPUs."""
_FABRIC_MANAGER = "nvidia-fabricmanager"
_CONTAINER_TOOLKIT = "nvidia-container-toolkit"
_DRIVER_MODULES = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")
_RDMA_MODULES = ("mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_umad")


def required_services(extensions: Iterable[str]) -> tuple[str, ...]:
    """Services that must run where an image has these extensions, by their names there or in a schematic."""
    names = [name.removeprefix("siderolabs/") for name in extensions]
    return (FABRIC_MANAGER_SERVICE,) if any(name.startswith(_FABRIC_MANAGER) for name in names) else ()


def is_driver(extension: str) -> bool:
    """Whether the extension is a part of NVIDIA's driver, of any line and kind: an image can have one of each."""
    packages = (*_MODULE_PACKAGES.values(), _CONTAINER_TOOLKIT, _FABRIC_MANAGER)
    return extension.removeprefix("siderolabs/").startswith(packages)


@dataclass(frozen=True, kw_only=True)
class HGXProfile:
    """Choices for the HGX nodes of a site.

    `modules` is NVIDIA's open or proprietary kernel driver; `fork` names the one line that driver, toolkit and fabric
    manager all come from, whose versions the Talos version fixes. `rdma` is served by the kernel's own mlx5 modules
    (Talos loads no others), beside which nvidia_peermem does not load; so `gpu_direct`, how network cards reach GPU
    memory, is dma-buf or nothing. `huge_pages_2mib` is a count of 2 MiB pages. `extra_extensions` are names such as
    `siderolabs/intel-ucode`.
    """

    modules: Modules = "open"
    fork: Fork = "production"
    rdma: Rdma = "none"
    gpu_direct: GpuDirect = "dma-buf"
    huge_pages_2mib: int = 0
    storage: LonghornStorage | None = None
    extra_extensions: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.rdma != "none" and self.modules == "proprietary" and self.gpu_direct == "dma-buf":
            raise ConfigError(
                "GPUDirect over dma-buf needs NVIDIA's open kernel modules, the profile has the proprietary ones",
                fix="set modules to open, or gpu_direct to none",
            )

    @property
    def extensions(self) -> tuple[str, ...]:
        """Names for the schematic, sorted; fork and kind agree by construction."""
        stack = (_MODULE_PACKAGES[self.modules], _CONTAINER_TOOLKIT, _FABRIC_MANAGER)
        names = {f"siderolabs/{package}-{self.fork}" for package in stack}
        names |= {f"siderolabs/{package}" for package in _STORAGE_PACKAGES}
        return tuple(sorted(names | set(self.extra_extensions)))

    @property
    def kernel_args(self) -> tuple[str, ...]:
        """Kernel arguments for the schematic: with RDMA, devices bypass the IOMMU's translation."""
        return () if self.rdma == "none" else ("iommu=pt",)

    @property
    def kernel_modules(self) -> tuple[KernelModule, ...]:
        names = list(_DRIVER_MODULES)
        if self.rdma != "none":
            names += _RDMA_MODULES
            names += ["ib_ipoib"] if self.rdma == "infiniband" else []
        storage = self.storage.kernel_modules if self.storage else ()
        return (*(KernelModule(name=name) for name in names), *storage)

    @property
    def all_sysctls(self) -> dict[str, str]:
        """Defaults, huge pages (the profile's own and the storage engine's), and what the site sets over both."""
        # Pods watch many files. A kexec resets neither GPUs, NVSwitches nor network cards, so a reboot goes through the
        # firmware: Talos falls back to that where the kernel refuses to load the next one (bootloader/kexec/kexec.go).
        chosen = {"fs.inotify.max_user_instances": "8192", "kernel.kexec_load_disabled": "1"}
        pages = self.huge_pages_2mib + (self.storage.huge_pages_2mib if self.storage else 0)
        if pages:
            chosen["vm.nr_hugepages"] = str(pages)
        return chosen | dict(self.sysctls)

    @property
    def documents(self) -> tuple[Document, ...]:
        """Documents other than v1alpha1: the node's storage."""
        return self.storage.documents if self.storage else ()

    def settings(self, *, node_ip_subnets: tuple[str, ...] = ()) -> MachineSettings:
        """What goes into the worker's v1alpha1 document; the kubelet registers the node with the taint already on."""
        storage = self.storage
        return MachineSettings(
            sysctls=self.all_sysctls,
            kernel_modules=self.kernel_modules,
            node_labels={**(storage.node_labels if storage else {}), **self.node_labels},
            node_annotations=storage.node_annotations if storage else {},
            node_taints={gpu_nodes.TAINT_KEY: f"{gpu_nodes.TAINT_VALUE}:{gpu_nodes.TAINT_EFFECT}"},
            kubelet_mounts=storage.kubelet_mounts if storage else (),
            node_ip_subnets=node_ip_subnets,
        )
