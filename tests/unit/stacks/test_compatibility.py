"""Every row of the compatibility table speaks where it should, and a set that it forbids stops a site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from floor.problems import SiteError
from stacks.facts import compatibility, versions
from stacks.facts.compatibility import Fact, Row
from stacks.plan import conflicts
from stacks.plan.site_plan import plan_file, plan_values
from stacks.site.model import SiteConfig
from talos.documents.contract import CONTRACTS
from tests.unit.stacks.site_examples import OTHER_ADDONS
from tests.unit.stacks.site_examples import prod as reference_site
from tests.unit.stacks.test_several_nodes import alone
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 7")

ROOT = Path(__file__).parents[3]
# A set that goes together, with every fact that a site can decide.
GOOD: dict[str, Fact] = {
    "talos": "1.13.9",
    "kubernetes": "1.36.3",
    "kubelet": "1.36.3",
    "cilium": "1.20.2",
    "nvidia_production_driver": "595.91.07",
    "nvidia_production_fabric_manager": "595.91.07",
    "nvidia_lts_driver": "580.178.04",
    "nvidia_lts_fabric_manager": "580.178.04",
    "picker_image": "registry.k8s.io/gateway-api-inference-extension/epp",
    "picker": "1.5.0",
    "simulator": "0.10.2",
    "vllm": "0.32.0",
    "vllm_flags": frozenset({"--seed", "--reasoning-parser"}),
    "envoy_gateway": "1.9.1",
    "envoy": "1.39.1",
    "ai_gateway": "1.0.0",
    "gpu_operator": "26.7.1",
    "gpus": "whole",
    "device_plugin": "0.20.0",
    "dcgm_exporter": "4.8.3",
    "network_operator": "26.4.1",
    "rdma_device_plugin": "26.4.1",
    "cert_manager": "1.21.2",
    "cert_manager_crds": "1.21.2",
    "longhorn": "1.12.1",
    "external_secrets": "2.9.0",
    "keda": "2.21.0",
    "leader_worker_set": "0.10.0",
    "cloudnative_pg": "0.29.0",
    "barman_cloud": "0.7.0",
    "metallb": "0.16.1",
    "node_exporter": "4.56.1",
    "grafana": "12.11.1",
    "victoria_logs": "0.13.9",
    "external_dns": "1.21.1",
    "victoria_logs_collector": "0.3.7",
    "envoy_gateway_crds": "1.9.1",
    "ai_gateway_crds": "1.0.0",
    "gateway_api_crds": "1.6.1",
    "inference_extension_crds": "1.5.0",
    "prometheus_operator": "0.85.0",
    "prometheus_operator_crds": "0.85.0",
    "config_reloader": "0.85.0",
    "prometheus": "3.12.0",
    "alertmanager": "0.31.0",
    "kube_state_metrics": "2.18.0",
    "storage_class": "longhorn",
    "models": frozenset({"glm-5.1-fp8", "qwen3-32b-fp8"}),
}
OLD_EG: dict[str, Fact] = {
    "envoy_gateway": "1.8.3",
    "envoy_gateway_crds": "1.8.3",
    "gateway_api_crds": "1.5.1",
    "envoy": "1.38.3",
    "kubernetes": "1.35.2",
    # 2.9 is tested with Kubernetes 1.36 alone.
    "external_secrets": "2.8.0",
}
OLD_DRIVERS: dict[str, Fact] = {
    "nvidia_production_driver": "595.71.05",
    "nvidia_production_fabric_manager": "595.71.05",
    "nvidia_lts_driver": "580.173.02",
    "nvidia_lts_fabric_manager": "580.173.02",
}


# Of versions that no row binds to a version of Kubernetes.
NO_SECRETS: dict[str, Fact] = {"external_secrets": "2.10.0", "keda": "2.22.0", "cloudnative_pg": "0.30.0"}


def flags(*names: str) -> dict[str, Fact]:
    return {"vllm_flags": frozenset(names)}


# Row -> (facts that break it alone or first, the nearest facts that it lets pass).
CASES: dict[str, tuple[dict[str, Fact], dict[str, Fact]]] = {
    "talos-contract": ({"talos": "1.14.0"}, {"talos": "1.13.9"}),
    "talos-iscsi-records": (
        {"talos": "1.13.8", **OLD_DRIVERS},
        {"talos": "1.13.8", "storage_class": "ceph", **OLD_DRIVERS},
    ),
    "longhorn-kubernetes": ({"kubernetes": "1.24.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "gpu-operator-talos-driver": ({"gpu_operator": "25.10.1"}, {"gpu_operator": "26.3.1"}),
    "gpu-operator-talos-mig": ({"gpus": "cut"}, {"gpus": "cut", "gpu_operator": "26.7.2"}),
    "network-operator-device-plugin": ({"rdma_device_plugin": "26.1.2"}, {}),
    "device-plugin-finds-the-driver": ({"device_plugin": "0.15.0"}, {"device_plugin": "0.16.0"}),
    "device-plugin-kubernetes": ({"kubernetes": "1.9.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "dcgm-exporter-runtime-class": ({"dcgm_exporter": "3.1.6"}, {"dcgm_exporter": "3.1.7"}),
    "dcgm-exporter-kubernetes": ({"kubernetes": "1.18.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "metallb-kubernetes": ({"kubernetes": "1.18.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "external-secrets-admins": ({"external_secrets": "2.7.0"}, {"external_secrets": "2.8.0"}),
    "external-secrets-2.8-kubernetes": (
        {"external_secrets": "2.8.0", "kubernetes": "1.34.9"},
        {"external_secrets": "2.8.0", "kubernetes": "1.35.0"},
    ),
    "keda-kubernetes": (
        NO_SECRETS | {"keda": "2.21.0", "kubernetes": "1.33.9"},
        NO_SECRETS | {"keda": "2.21.0", "kubernetes": "1.34.0"},
    ),
    "leader-worker-set-kubernetes": ({"kubernetes": "1.26.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "cloudnative-pg-kubernetes": (
        NO_SECRETS | {"cloudnative_pg": "0.29.0", "kubernetes": "1.33.9"},
        NO_SECRETS | {"cloudnative_pg": "0.29.0", "kubernetes": "1.34.0"},
    ),
    "external-secrets-2.9-kubernetes": ({"kubernetes": "1.35.9"}, {"kubernetes": "1.36.0"}),
    "talos-1.13-kubernetes": ({"kubernetes": "1.37.0"}, {"kubernetes": "1.36.9"}),
    "kubernetes-sleep-hook": ({"kubernetes": "1.29.4"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "nvidia-production-fabric-manager": (
        {"nvidia_production_fabric_manager": "595.71.05"},
        {"nvidia_production_fabric_manager": "595.91.7"},
    ),
    "nvidia-lts-fabric-manager": ({"nvidia_lts_fabric_manager": "595.91.07"}, {}),
    "talos-1.13.9-driver": (OLD_DRIVERS, {}),
    "talos-1.13.8-driver": ({"talos": "1.13.7"}, {"talos": "1.13.7", **OLD_DRIVERS}),
    "envoy-gateway-1.8-end-of-life": (OLD_EG, {"envoy_gateway": "1.9.0", "envoy_gateway_crds": "1.9.0"}),
    "envoy-gateway-1.8-kubernetes": ({**OLD_EG, "kubernetes": "1.36.3"}, {}),
    "envoy-gateway-1.9-kubernetes": ({"kubernetes": "1.32.9"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "envoy-gateway-1.8-gateway-api": ({**OLD_EG, "gateway_api_crds": "1.6.1"}, {}),
    "envoy-gateway-1.9-gateway-api": ({"gateway_api_crds": "1.5.1"}, {"gateway_api_crds": "1.6.0"}),
    "envoy-gateway-definitions": ({"envoy_gateway_crds": "1.9.0"}, {}),
    "envoy-gateway-1.8-envoy": ({**OLD_EG, "envoy": "1.39.1"}, {}),
    "envoy-gateway-1.9-envoy": ({"envoy": "1.38.3"}, {"envoy": "1.39.0"}),
    "ai-gateway-definitions": ({"ai_gateway_crds": "1.1.0"}, {"ai_gateway": "1.1.0", "ai_gateway_crds": "1.1.0"}),
    "ai-gateway-envoy-gateway": (OLD_EG | {"envoy_gateway": "1.8.0", "envoy_gateway_crds": "1.8.0"}, {}),
    "ai-gateway-kubernetes": ({"kubernetes": "1.31.5"}, NO_SECRETS | {"kubernetes": "1.33.0"}),
    "ai-gateway-inference-pool": ({"inference_extension_crds": "1.0.1"}, {"inference_extension_crds": "1.0.2"}),
    "inference-pool-alpha": ({"inference_extension_crds": "0.5.1"}, {"inference_extension_crds": "1.0.2"}),
    "picker-left-the-extension": (
        {"picker": "1.6.0"},
        {"picker": "1.6.0", "picker_image": "ghcr.io/llm-d/llm-d-router-endpoint-picker"},
    ),
    "picker-configuration": (
        {"picker": "1.4.0"},
        {"picker": "1.4.0", "picker_image": "ghcr.io/llm-d/llm-d-router-endpoint-picker"},
    ),
    "cert-manager-definitions": ({"cert_manager_crds": "1.21.1"}, {}),
    "cert-manager-kubernetes": (
        {"kubernetes": "1.32.9"},
        NO_SECRETS | {"kubernetes": "1.33.0"},
    ),
    "prometheus-operator-definitions": (
        {"prometheus_operator_crds": "0.84.1"},
        dict.fromkeys(("prometheus_operator", "prometheus_operator_crds", "config_reloader"), "0.84.1"),
    ),
    "prometheus-operator-reloader": ({"config_reloader": "0.84.1"}, {}),
    "prometheus-operator-prometheus": ({"prometheus": "4.0.0"}, {"prometheus": "2.55.1"}),
    "glm-5.1-engine": ({"vllm": "0.20.2"}, {"vllm": "0.20.2", "models": frozenset({"qwen3-32b-fp8"})}),
    "vllm-flag-disable-log-requests": (flags("--disable-log-requests"), flags("--enable-log-requests")),
    "vllm-flag-enable-reasoning": (flags("--enable-reasoning"), flags("--reasoning-parser")),
    "vllm-flag-guided-decoding-backend": (flags("--guided-decoding-backend"), flags("--structured-outputs-config")),
    "vllm-flag-speculative-model": (flags("--speculative-model"), flags("--speculative-config")),
    "vllm-flag-task": (flags("--task"), flags("--runner", "--convert")),
    "vllm-flag-num-scheduler-steps": (flags("--num-scheduler-steps"), flags("--async-scheduling")),
    "vllm-flag-swap-space": (flags("--swap-space"), flags("--kv-offloading-size")),
}


def speaking(changes: dict[str, Fact]) -> set[str]:
    return {row.id for row, _ in compatibility.speaking(GOOD | changes)}


@pytest.fixture(scope="module")
def prod() -> SiteConfig:
    """The reference site without accounts, with RDMA devices too."""
    site = plan_values(reference_site(), "site.yaml").site
    offered = site.cluster.rdma_devices.model_copy(update={"system": "network_operator"})
    return site.model_copy(update={"cluster": site.cluster.model_copy(update={"rdma_devices": offered})})


def test_every_row_has_a_case() -> None:
    assert {row.id for row in compatibility.table()} == set(CASES)


def test_the_good_set_is_good() -> None:
    assert speaking({}) == set()


@pytest.mark.parametrize("row", CASES)
def test_a_row_speaks_about_what_breaks_it_and_not_about_its_neighbour(row: str) -> None:
    breaking, passing = CASES[row]
    assert row in speaking(breaking)
    assert row not in speaking(passing)
    assert speaking(passing) == set()


@pytest.mark.parametrize("row", compatibility.table(), ids=lambda row: row.id)
def test_a_row_asks_for_known_facts_and_names_its_source(row: Row) -> None:
    assert set(row.when) | set(row.needs) <= set(GOOD)
    for condition in (*row.when.values(), *row.needs.values()):
        assert set(re.findall(r"\{(\w+)\}", condition)) <= set(GOOD)
    assert re.search(r"#\d+|v?\d+\.\d+|site/|matrix|charts/", row.source), row.source


def test_flags_that_a_fix_names_are_vllms() -> None:
    known = set((ROOT / "tests" / "unit" / "golden" / "vllm-0.32-flags.txt").read_text().split())
    for row in compatibility.table():
        if row.id.startswith("vllm-flag-"):
            assert row.when["vllm_flags"].removeprefix("has ") not in known
            assert set(re.findall(r"--[a-z-]+", row.fix)) <= known, row.id


def test_talos_rows_say_what_the_contracts_say() -> None:
    rows = {row.id: row for row in compatibility.table()}
    (name,) = CONTRACTS
    low, high = CONTRACTS[name].kubernetes
    assert rows["talos-1.13-kubernetes"].needs["kubernetes"] == f">=1.{low} <1.{high + 1}"
    assert rows["talos-contract"].needs["talos"].startswith(f">={name.removeprefix('v')} ")


def test_all_facts_come_from_sites_that_decide_everything(prod: SiteConfig) -> None:
    """A site has one stack for its GPUs, engines of one kind, and replicas on one node or on several."""
    lab = plan_file(ROOT / "Pulumi.lab.yaml").site
    other = plan_values(changed(reference_site(), OTHER_ADDONS), "site.yaml").site
    grouped = plan_values(alone(), "site.yaml").site
    known = [conflicts.facts(versions.load(), site) for site in (prod, lab, other, grouped)]
    assert {fact for facts in known for fact in facts} == set(GOOD) | {"ledger", "postgresql"}
    values = [value for facts in known for value in facts.values()]
    assert all(not isinstance(value, str) or not value.startswith("v") for value in values)
    assert known[0]["envoy"] == GOOD["envoy"]
    assert all(conflicts.conflicts(versions.load(), site) == [] for site in (prod, lab, other))


def test_what_others_install_is_no_fact(prod: SiteConfig) -> None:
    lab = plan_file(ROOT / "Pulumi.lab.yaml").site
    facts = conflicts.facts(versions.load(), lab)
    elsewhere = {
        "device_plugin",
        "dcgm_exporter",
        "metallb",
        "external_secrets",
        "keda",
        "leader_worker_set",
        "simulator",
        "cloudnative_pg",
        "barman_cloud",
        "grafana",
        "victoria_logs",
        "external_dns",
        "victoria_logs_collector",
    }
    assert set(GOOD) - set(facts) == (elsewhere - {"simulator"}) | {
        "node_exporter",
        "vllm",
        "vllm_flags",
        "cilium",
        "gpu_operator",
        "gpus",
        "network_operator",
        "rdma_device_plugin",
        "longhorn",
    }
    gateway = prod.gateway.model_copy(update={"controllers": "external"})
    others = conflicts.facts(versions.load(), prod.model_copy(update={"gateway": gateway}))
    assert set(GOOD) - set(others) == elsewhere | {"envoy_gateway", "ai_gateway", "envoy"}
    shared = prod.model_copy(update={"crds": prod.crds.model_copy(update={"owner": "external"})})
    assert not [name for name in conflicts.facts(versions.load(), shared) if name.endswith("_crds")]
    watched = prod.model_copy(update={"monitoring": prod.monitoring.model_copy(update={"system": "external"})})
    assert set(GOOD) - set(conflicts.facts(versions.load(), watched)) == elsewhere | {
        "node_exporter",
        "prometheus_operator",
        "prometheus_operator_crds",
        "config_reloader",
        "prometheus",
        "alertmanager",
        "kube_state_metrics",
    }


def pins(**changes: Any) -> versions.Versions:
    document = yaml.safe_load(versions.FILE.read_text())
    for path, value in changes.items():
        section = document
        *parents, last = path.split("__")
        for part in parents:
            section = section[part]
        section[last] = value
    return versions.Versions.model_validate(document)


def test_a_forbidden_set_stops_every_site_with_row_source_and_both_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pins(
        talos="v1.13.8",
        nvidia={
            "production": {"driver": "595.71.05", "fabric_manager": "595.71.05"},
            "lts": {"driver": "580.173.02", "fabric_manager": "580.173.02"},
        },
        charts__envoy_gateway__version="v1.8.3",
    )
    monkeypatch.setattr(versions, "load", lambda: broken)
    with pytest.raises(SiteError) as caught:
        plan_file(ROOT / "Pulumi.prod.yaml")
    refused = {
        problem.fix.partition("stacks/facts/compatibility.yaml: ")[2].partition(";")[0]
        for problem in caught.value.problems
    }
    assert refused == {
        "talos-iscsi-records",
        "envoy-gateway-1.8-end-of-life",
        "envoy-gateway-1.8-kubernetes",
        "envoy-gateway-1.8-gateway-api",
        "envoy-gateway-1.8-envoy",
        "envoy-gateway-definitions",
    }
    text = str(caught.value)
    assert re.search(
        r"Pulumi\.prod\.yaml:\d+:storage\.storage_class: known-bad: talos 1\.13\.8 \(stacks/facts/versions\.yaml:\d+\) "
        r"with storage_class longhorn \(\S*Pulumi\.prod\.yaml:\d+\): its open-iscsi",
        text,
    )
    assert "source: siderolabs/extensions#1182" in text
    assert re.search(
        r"stacks/facts/versions\.yaml:\d+:charts\.envoy_gateway\.version: needs: envoy_gateway 1\.8\.3", text
    )


@pytest.mark.parametrize(
    "row",
    [
        {"verdict": "needs"},
        {"needs": {"talos": ">=1"}},
        {"when": {"talos": "about 1.13"}},
        {"when": {"talos": ">= 1.13"}},
        {"when": {"models": "has "}},
        {"when": {}},
        {"source": ""},
        {"verdict": "odd"},
    ],
    ids=str,
)
def test_a_row_that_nobody_can_read_is_refused(row: dict[str, Any]) -> None:
    whole = {
        "id": "x",
        "verdict": "illegal",
        "when": {"talos": ">=1"},
        "text": "a" * 20,
        "fix": "b" * 5,
        "source": "c#12345",
    }
    assert Row.model_validate(whole)
    with pytest.raises(ValueError, match=r"validation error"):
        Row.model_validate(whole | row)


def test_a_row_that_stands_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    twice = tmp_path / "compatibility.yaml"
    rows = yaml.safe_load(compatibility.FILE.read_text())
    twice.write_text(yaml.safe_dump([*rows, rows[0]]))
    monkeypatch.setattr(compatibility, "FILE", twice)
    with pytest.raises(SiteError, match=f"written twice: {rows[0]['id']}"):
        compatibility.table.__wrapped__()
