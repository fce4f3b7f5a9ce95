"""Documents in wire form against golden files, their order, doubles, contracts, and the text that is rendered.

To accept a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/talos
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from talos.cluster import MachineSettings, TalosCluster
from talos.cni import Cilium, Flannel, cilium_values
from talos.documents import block, firewall, network, registry, runtime, v1alpha1
from talos.documents.contract import V1_13, contract_of
from talos.documents.document import Document, Wire
from talos.documents.problems import ConfigError
from talos.documents.rendering import render
from talos.documents.v1alpha1 import Install
from talos.machine_config import MachineConfig
from talos.secrets.bundle import SecretsBundle
from talos.secrets.pki import KeyPair
from tests.unit.talos import talos_examples as examples

GOLDEN = Path(__file__).parent / "golden"


def readable() -> SecretsBundle:
    """Texts that name what they represent, so that golden files show what goes where and hold no key."""

    def pair(name: str) -> KeyPair:
        return KeyPair(certificate=f"{name} certificate", key=f"{name} key")

    return SecretsBundle(
        cluster_id="cluster id",
        cluster_secret="cluster secret",
        bootstrap_token="bootstrap token",
        secretbox_encryption_secret="secretbox secret",
        trustd_token="trustd token",
        service_account_key="service account key",
        etcd=pair("etcd"),
        kubernetes=pair("kubernetes"),
        aggregator=pair("aggregator"),
        talos=pair("talos"),
    )


def wire(documents: Sequence[Document]) -> list[Wire]:
    return [document.document() for document in documents]


def with_readable_secrets(config: MachineConfig, build: Callable[[TalosCluster], Document]) -> list[Wire]:
    cluster = replace(examples.site_cluster(), secrets=readable())
    return MachineConfig(documents=(build(cluster), *config.documents[1:])).wire()


CASES: dict[str, Callable[[], list[Wire]]] = {
    "network": lambda: wire(examples.network_documents()),
    "block": lambda: wire(examples.block_documents()),
    "runtime": lambda: wire(examples.runtime_documents()),
    "registry": lambda: wire(examples.registry_documents()[:5]),
    "firewall": lambda: wire((*examples.firewall_documents(), *examples.firewall_documents("controlplane"))),
    "control-plane": lambda: with_readable_secrets(
        examples.control_plane_config(), lambda cluster: cluster.control_plane(Install(disk="/dev/sda"))
    ),
    "hgx-worker": lambda: with_readable_secrets(
        examples.hgx_config(),
        lambda cluster: cluster.worker(Install(disk="/dev/sda"), examples.hgx_profile().settings()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_documents_are_as_agreed(case: str) -> None:
    built = render(CASES[case]())
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(built)
    assert path.read_text() == built


def test_every_kind_has_an_example() -> None:
    """So that a kind that is added is also put before Talos's validator."""
    kinds = {
        kind.kind
        for module in (network, block, runtime, registry, firewall, v1alpha1)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Document) and hasattr(kind, "kind")
    }
    assert kinds == {document.kind for document in examples.all_documents()} | {"v1alpha1"}
    assert kinds <= V1_13.kinds


def emptiness(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [place for name, inner in value.items() for place in emptiness(inner, f"{path}.{name}")]
    if isinstance(value, list):
        return [place for inner in value for place in emptiness(inner, f"{path}[]")]
    return [path] if value is None else []


def test_no_field_is_written_without_a_value() -> None:
    config = MachineConfig(documents=(*examples.control_plane_config().documents[:1], *examples.all_documents()))
    assert [emptiness(document) for document in config.wire()] == [[] for _ in config.wire()]


def test_the_order_of_documents_says_nothing() -> None:
    config = examples.hgx_config()
    turned = MachineConfig(documents=tuple(reversed(config.documents)))
    assert turned.render() == config.render()
    first, *rest = config.wire()
    assert first["version"] == "v1alpha1"
    assert [document["kind"] for document in rest] == sorted(document["kind"] for document in rest)


def test_equal_inputs_give_equal_bytes() -> None:
    assert examples.control_plane_config().render() == examples.control_plane_config().render()


def test_a_document_twice_is_refused() -> None:
    link = network.LinkConfig(name="eth0")
    base = examples.plain_cluster().worker(Install(disk="/dev/sda"))
    with pytest.raises(ConfigError, match="LinkConfig eth0: is there twice"):
        MachineConfig(documents=(base, link, replace(link, mtu=9000)))
    with pytest.raises(ConfigError, match="v1alpha1: is there twice"):
        MachineConfig(documents=(base, base))


def test_a_config_without_the_base_is_refused() -> None:
    with pytest.raises(ConfigError, match="v1alpha1 document is missing"):
        MachineConfig(documents=(network.HostnameConfig(auto="stable"),)).render()


def test_one_contract_is_supported_and_others_are_named() -> None:
    assert contract_of("v1.13.9") is contract_of("v1.13") is V1_13
    for version in ("v1.14.1", "v1.1", "1.13.9", "latest"):
        with pytest.raises(ConfigError, match=r"supported: v1\.13"):
            contract_of(version)


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "0x1f", "12:30", "1_000", ".5", "yes", "off", "null", "~", "2026-11-21"]
)
def test_texts_stay_texts_for_any_yaml_reader(text: str) -> None:
    written = render([{"value": text}])
    assert yaml.safe_load(written) == {"value": text}
    assert written in (f"value: '{text}'\n", f'value: "{text}"\n')


def test_long_texts_are_never_folded() -> None:
    text = "a b " * 400 + "end"
    assert render([{"value": text}]) == f"value: {text}\n"
    assert render([{"value": "one\ntwo\n"}]) == "value: |\n  one\n  two\n"


def test_workers_get_no_key_and_nothing_of_the_control_plane() -> None:
    worker = replace(examples.site_cluster(), secrets=readable()).worker(Install(disk="/dev/sda")).document()
    assert worker["machine"]["ca"]["key"] == worker["cluster"]["ca"]["key"] == ""
    apart = {"etcd", "aggregatorCA", "serviceAccount", "apiServer", "secretboxEncryptionSecret", "inlineManifests"}
    assert not apart & worker["cluster"].keys()


@pytest.mark.parametrize("label", ["node-role.kubernetes.io/worker", "kubernetes.io/arch", "x.k8s.io/y"])
def test_labels_that_kubernetes_refuses_from_a_worker_are_an_error(label: str) -> None:
    worker = examples.site_cluster().worker(Install(disk="/dev/sda"), MachineSettings(node_labels={label: ""}))
    with pytest.raises(ConfigError, match=f"lets no worker give itself; got {label}"):
        MachineConfig(documents=(worker,))


@pytest.mark.parametrize(
    "label",
    ["topology.kubernetes.io/zone", "node.kubernetes.io/rack", "node.longhorn.io/x", "plain", "mykubernetes.io/x"],
)
def test_other_labels_are_the_sites_own(label: str) -> None:
    worker = examples.site_cluster().worker(Install(disk="/dev/sda"), MachineSettings(node_labels={label: "1"}))
    assert worker.document()["machine"]["nodeLabels"] == {label: "1"}


def test_cilium_takes_the_place_of_talos_own_network() -> None:
    spec = examples.site_cluster()
    cluster = spec.control_plane(Install(disk="/dev/sda")).document()["cluster"]
    assert cluster["network"]["cni"] == {"name": "none"}
    assert cluster["proxy"]["disabled"] is True
    assert cluster["inlineManifests"] == [{"name": "cilium", "contents": examples.MANIFEST}]
    assert cilium_values()["k8sServicePort"] == 7445
    later = replace(spec, cni=Cilium()).control_plane(Install(disk="/dev/sda")).document()["cluster"]
    assert "inlineManifests" not in later
    flannel = replace(spec, cni=Flannel()).control_plane(Install(disk="/dev/sda")).document()["cluster"]
    assert "cni" not in flannel["network"]
    assert "disabled" not in flannel["proxy"]


@pytest.mark.parametrize(
    ("discovery", "written"),
    [
        ("off", {"enabled": False}),
        ("public", {"enabled": True, "registries": {"kubernetes": {"disabled": True}, "service": {}}}),
        (
            "https://discovery.site.example",
            {
                "enabled": True,
                "registries": {
                    "kubernetes": {"disabled": True},
                    "service": {"endpoint": "https://discovery.site.example"},
                },
            },
        ),
    ],
)
def test_discovery_is_nobodys_the_vendors_or_the_sites(discovery: str, written: Wire) -> None:
    spec = replace(examples.site_cluster(), discovery=discovery)
    assert spec.worker(Install(disk="/dev/sda")).document()["cluster"]["discovery"] == written


def test_the_firewall_lets_etcd_reach_control_planes_alone() -> None:
    documents = wire(examples.firewall_documents("controlplane"))
    assert documents[0] == {"apiVersion": "v1alpha1", "kind": "NetworkDefaultActionConfig", "ingress": "block"}
    [etcd] = [document for document in documents if document.get("name") == "etcd"]
    assert etcd["ingress"] == [{"subnet": "10.5.0.0/28"}]
    names = {document.get("name") for document in wire(examples.firewall_documents("worker"))}
    assert not names & {"etcd", "trustd", "kubernetes-api"}
    assert "load-balancers" in names


def test_a_rule_without_sources_is_written_as_nobody() -> None:
    rule = firewall.NetworkRuleConfig(name="none", ports=(22,), ingress=())
    assert rule.document()["ingress"] == []


@pytest.mark.parametrize(("given", "written"), [(30, "30s"), (0.1, "100ms"), (90.5, "90500ms")])
def test_durations_are_written_as_go_reads_them(given: float, written: str) -> None:
    assert runtime.WatchdogTimerConfig(timeout_s=given).wire()["timeout"] == written
