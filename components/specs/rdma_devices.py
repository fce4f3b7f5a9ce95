"""What a site may set for the RDMA devices that its nodes offer to pods."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from floor.spec import Spec

RdmaSystem = Literal["none", "network_operator"]
LinkKind = Literal["roce", "infiniband"]


class RdmaDevicesSpec(Spec):
    """RDMA devices of the nodes with GPUs: for models with `server.nodes`, and for pods of your own."""

    system: RdmaSystem = "none"
    """`network_operator`: this program installs NVIDIA's network operator with its RDMA shared device plugin alone;
    `none`: it offers no device, and one that the cluster offers by other means stays as it is."""
    resource: str = "hca_shared"
    """What a pod asks for, behind `rdma/`."""
    pods_per_node: int = Field(default=63, ge=1, le=1000)
    """Pods of a node that may have the devices at once. Each of them gets all devices of the node."""
    gpu_bytes_per_s: float | None = Field(default=None, ge=1.0e6, le=1.0e12)
    """What a GPU sends to another node over them, one direction: the node's cards together, over its GPUs. Without it
    the figure of `cluster.gpu` for the network of NVIDIA's reference design."""
    interfaces: tuple[str, ...] = ()
    """Interfaces of the cards, the same on every node; if not set, every card of NVIDIA's (Mellanox's) whose links are
    as `cluster.machines.hgx.rdma` states, which with `roce` may be the node's own uplink too."""
