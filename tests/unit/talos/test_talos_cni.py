"""Cilium's manifest: the same objects give the same text, and what a cold cluster could not use is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from talos.cni import KUBE_PRISM_PORT, Cilium, External, cilium_manifest, cilium_values
from talos.documents.firewall import cluster_rules
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from tests.unit.talos import talos_examples as examples

pytestmark = pytest.mark.row("C.01")

Objects = list[dict[str, Any]]


def workload(kind: str, name: str) -> dict[str, Any]:
    address = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(KUBE_PRISM_PORT)}
    container = {"name": name, "env": [{"name": key, "value": value} for key, value in address.items()]}
    metadata = {"name": name, "namespace": "kube-system", "annotations": None}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def rendered() -> Objects:
    return [
        workload("DaemonSet", "cilium"),
        workload("Deployment", "cilium-operator"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium-config", "namespace": "kube-system"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "empty", "namespace": "kube-system"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cilium-secrets"}},
    ]


def text(objects: Objects) -> str:
    return yaml.safe_dump_all(objects, sort_keys=False)


def test_the_order_of_objects_and_keys_says_nothing_but_namespaces_are_first() -> None:
    manifest = cilium_manifest(text(rendered()))
    turned = text([dict(reversed(entry.items())) for entry in reversed(rendered())])
    assert cilium_manifest(turned) == manifest
    objects = list(yaml.safe_load_all(manifest))
    assert objects[0]["kind"] == "Namespace"
    assert sorted(map(_name, objects)) == sorted(map(_name, rendered()))


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['kind']} {entry['metadata']['name']}"


def test_the_manifest_goes_to_control_planes_alone() -> None:
    manifest = cilium_manifest(text(rendered()))
    cluster = replace(examples.site_cluster(), cni=Cilium(manifest=manifest))
    install = Install(disk="/dev/sda")
    [inline] = cluster.control_plane(install).document()["cluster"]["inlineManifests"]
    assert inline == {"name": "cilium", "contents": manifest}
    assert "inlineManifests" not in cluster.worker(install).document()["cluster"]


def test_the_values_say_what_talos_needs() -> None:
    values = cilium_values()
    assert (values["k8sServiceHost"], values["k8sServicePort"]) == ("localhost", KUBE_PRISM_PORT)
    assert values["hubble"] == {"enabled": False}
    assert "SYS_MODULE" not in str(values)


def hooked(objects: Objects) -> None:
    objects[2]["metadata"]["annotations"] = {"helm.sh/hook": "post-install"}


def through_the_cluster_address(objects: Objects) -> None:
    objects[0]["spec"]["template"]["spec"]["containers"][0]["env"] = []


SPOILED: dict[str, tuple[Callable[[Objects], object], str]] = {
    "a hook": (hooked, "ConfigMap cilium-config: is a Helm hook"),
    "a key": (lambda objects: objects[3].update(data={"ca.key": examples.CANARY}), "Secret empty: was made while"),
    "no agent": (lambda objects: objects.pop(0), "Cilium's manifest: has no DaemonSet cilium"),
    "no operator": (lambda objects: objects.pop(1), "Cilium's manifest: has no Deployment cilium-operator"),
    "another way to the API server": (through_the_cluster_address, "DaemonSet cilium: does not ask for the API server"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_a_cold_cluster_could_not_use_is_refused(what: str) -> None:
    change, refusal = SPOILED[what]
    objects = copy.deepcopy(rendered())
    change(objects)
    with pytest.raises(ConfigError) as failure:
        cilium_manifest(text(objects))
    assert refusal in str(failure.value)
    assert len(failure.value.problems) == 1
    assert examples.CANARY not in str(failure.value)


@pytest.mark.parametrize("given", ["", "a: [", "- a", "a: b", "metadata: text"])
def test_a_text_that_is_no_manifest_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="Cilium's manifest"):
        cilium_manifest(given)


def test_an_external_network_leaves_kube_proxy_and_opens_no_port_of_its_own() -> None:
    """Something else gives pods their network, and Talos brings none."""
    install = Install(disk="/dev/sda", image=examples.INSTALLER)
    base = replace(examples.plain_cluster(), cni=External()).control_plane(install).document()
    assert base["cluster"]["network"]["cni"] == {"name": "none"}
    assert "disabled" not in base["cluster"]["proxy"]
    rules = cluster_rules("worker", admins=("10.1.0.0/24",), control_planes=(), nodes=("10.5.0.0/24",), cni="external")
    assert not [rule for rule in rules if rule.document().get("name") in {"pod-network", "cilium-health"}]
