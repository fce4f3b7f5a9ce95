"""Images that machines pull: those that the configs name, and the defaults of the pinned Talos."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from stacks.facts import versions
from talos.cni import CNI, Cilium, External, Flannel
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.images import DEFAULTS, machine_images
from talos.machine_config import MachineConfig
from tests.unit.talos import talos_examples as examples

pytestmark = pytest.mark.row("C.01")

PINS = versions.load()


def named(value: Any) -> Iterator[str]:
    """Images in a config of what Kubernetes runs; the installer is no part of it."""
    for key, inner in value.items():
        if isinstance(inner, dict) and not inner.get("disabled") and key != "install":
            yield from named(inner)
        elif key == "image":
            yield inner


@pytest.mark.parametrize("cni", [Cilium(), Flannel(), External()], ids=lambda cni: cni.name)
@pytest.mark.parametrize("kubelet", [None, "v1.35.2"])
def test_they_are_those_of_the_configs_and_the_defaults(cni: CNI, kubelet: str | None) -> None:
    cluster = replace(examples.plain_cluster(), cni=cni, kubernetes_version="v1.36.3", kubelet_version=kubelet or "")
    install = Install(image=examples.INSTALLER, disk="/dev/sda")
    config = MachineConfig(documents=(cluster.control_plane(install),))
    default = DEFAULTS[PINS.talos]
    expected = {*named(config.wire()[0]), default.etcd, default.coredns, default.pause}
    if cni.name == "flannel":
        expected.add(default.flannel)
    images = machine_images(
        PINS.talos,
        kubernetes="v1.36.3",
        kubelet=kubelet,
        kube_proxy=cni.name != "cilium",
        flannel=cni.name == "flannel",
    )
    assert set(images) == expected
    assert f"ghcr.io/siderolabs/kubelet:{kubelet or 'v1.36.3'}" in images


def test_the_list_of_a_plain_cluster() -> None:
    assert list(machine_images("v1.13.9", kubernetes="v1.36.3", kube_proxy=True, flannel=True)) == [
        "registry.k8s.io/pause:3.10.1",
        "ghcr.io/siderolabs/kubelet:v1.36.3",
        "registry.k8s.io/kube-apiserver:v1.36.3",
        "registry.k8s.io/kube-controller-manager:v1.36.3",
        "registry.k8s.io/kube-scheduler:v1.36.3",
        "registry.k8s.io/etcd:v3.6.12",
        "registry.k8s.io/coredns/coredns:v1.14.6",
        "registry.k8s.io/kube-proxy:v1.36.3",
        "ghcr.io/siderolabs/flannel:0.28.8",
    ]


def test_defaults_of_the_pinned_talos_are_known() -> None:
    assert PINS.talos in DEFAULTS


def test_another_talos_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"Talos v1\.14\.1 are not known; known: v1\.13\.9") as caught:
        machine_images("v1.14.1", kubernetes="v1.36.3", kube_proxy=True, flannel=True)
    assert "talos/images.py" in caught.value.fix
