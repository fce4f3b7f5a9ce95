"""Container images that machines pull for Kubernetes, with what Talos itself decides: nothing of charts, no installer.

Read in siderolabs/talos at each version's tag: pkg/machinery/constants/constants.go, and pkg/images/list.go for the
image of pod sandboxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from talos.documents.problems import ConfigError

Program = Literal["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"]
_CONTROL_PLANE: tuple[Program, ...] = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, kw_only=True)
class DefaultImages:
    """What one Talos version pulls by defaults that no config of ours sets, with registry and tag."""

    etcd: str
    coredns: str
    pause: str
    """The sandbox of each pod."""
    flannel: str


DEFAULTS: Mapping[str, DefaultImages] = {
    "v1.13.9": DefaultImages(
        etcd="registry.k8s.io/etcd:v3.6.12",
        coredns="registry.k8s.io/coredns/coredns:v1.14.6",
        pause="registry.k8s.io/pause:3.10.1",
        flannel="ghcr.io/siderolabs/flannel:0.28.8",
    )
}


def kubelet_image(version: str) -> str:
    """Of a Kubernetes version such as `v1.36.3`."""
    return f"ghcr.io/siderolabs/kubelet:{version}"


def kubernetes_image(program: Program, version: str) -> str:
    """Of a Kubernetes version such as `v1.36.3`."""
    return f"registry.k8s.io/{program}:{version}"


def machine_images(
    talos: str, *, kubernetes: str, kubelet: str | None = None, kube_proxy: bool, flannel: bool
) -> dict[str, str]:
    """Image -> what it is for, of all machines of a cluster: those that a config names, and Talos's defaults.

    Versions are texts such as `v1.36.3`; `kubelet` where it differs from `kubernetes`. `kube_proxy` and `flannel`:
    whether Talos runs them. ConfigError for a Talos version whose defaults are not known here.
    """
    default = DEFAULTS.get(talos)
    if default is None:
        raise ConfigError(
            f"the images of Talos {talos} are not known; known: {', '.join(DEFAULTS)}",
            fix="read them in Talos's sources at this tag, and add them to talos/images.py",
        )
    images = {
        default.pause: "sandbox of each pod",
        kubelet_image(kubelet or kubernetes): "kubelet",
        **{kubernetes_image(program, kubernetes): "control plane" for program in _CONTROL_PLANE},
        default.etcd: "control plane",
        default.coredns: "cluster DNS",
    }
    if kube_proxy:
        images[kubernetes_image("kube-proxy", kubernetes)] = "addresses of Services"
    if flannel:
        images[default.flannel] = "pod network"
    return images
