"""Nodes and the control plane are measured where a site sets it: what that declares and opens, and nothing else."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.monitoring import host_scrapes
from floor import node_ports
from stacks.facts import metrics, versions
from stacks.plan.charts import cilium_digest, cilium_manifest
from stacks.plan.cluster import placeholder_bundle
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.monitoring import host_jobs
from talos.cni import cilium_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_bgp import site as by_bgp
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("002.09")

OFF: dict[str, Any] = {"monitoring.hosts": None}
POD_NETWORK: dict[str, Any] = {"monitoring.pod_network": "measured"}
PODS = {"subnet": prod()["cluster"]["machines"]["networks"]["pods"]}


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def declared(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    """The inputs of each resource, by name."""
    recorder = Recorder()
    folder.mkdir()
    requested(planned(change).site, folder, recorder)
    return {name: made.inputs for name, made in recorder.resources.items()}


@pytest.mark.slow
def test_a_site_that_does_not_ask_has_nothing_of_it(tmp_path: Path) -> None:
    on, off = declared(tmp_path / "on", {}), declared(tmp_path / "off", OFF)
    assert off.keys() < on.keys()
    assert {name for name in on.keys() - off.keys() if "host" not in name} == set()
    # Definitions are read from another folder. What changes of machines: below.
    rest = {name for name in off if not name.startswith(("machines-", "crds-"))}
    assert {name for name in rest if on[name] != off[name]} == {"monitoring-prometheus", "monitoring-rules"}
    assert "additionalScrapeConfigs" not in off["monitoring-prometheus"]["spec"]


@pytest.mark.slow
def test_prometheus_reads_what_the_secret_lists_and_may(tmp_path: Path) -> None:
    made = declared(tmp_path / "on", {})
    named = made["monitoring-prometheus"]["spec"]["additionalScrapeConfigs"]
    assert made["monitoring-host-scrapes"]["metadata"]["name"] == named["name"]
    secret = host_scrapes.host_scrapes("watch", etcd=True)
    scrapes = yaml.safe_load(base64.b64decode(secret["data"][named["key"]]))
    assert {scrape["job_name"] for scrape in scrapes} == set(host_jobs(planned({}).site))
    assert all(scrape["sample_limit"] and scrape["body_size_limit"] for scrape in scrapes)
    assert made["inference-hosts-namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    # Nothing but reading, and no Secret.
    roles = [body for body in made.values() if body.get("kind") in {"Role", "ClusterRole"}]
    for body in [body for body in roles if body["metadata"]["name"].endswith("-hosts")]:
        for rule in body["rules"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "secrets" not in rule.get("resources", [])


@pytest.mark.row("004.11")
def test_the_firewall_lets_pods_read_metrics_of_machines_and_no_one_else() -> None:
    """Talos's firewall knows subnets: that of pods, and of nodes, from whose address some of them come."""
    on, off = rules(planned({})), rules(planned(OFF))
    assert on.keys() - off.keys() == {("cp", "etcd-metrics")}
    changed_too = {key for key in off if on[key] != off[key]}
    assert changed_too == {
        ("cp", "kubelet"),
        ("cp", "node-metrics"),
        ("cp", "kubernetes-api"),
        ("worker", "kubelet"),
        ("worker", "node-metrics"),
    }
    for key in changed_too:
        assert [source for source in on[key]["ingress"] if source not in off[key]["ingress"]] == [PODS], key
    opened = on["cp", "etcd-metrics"]
    assert opened["portSelector"] == {"ports": [node_ports.ETCD], "protocol": "tcp"}
    assert opened["ingress"] == on["cp", "kubelet"]["ingress"]


@pytest.mark.slow
def test_the_pod_network_is_read_where_a_site_asks_for_it_and_nothing_else_changes(tmp_path: Path) -> None:
    on, off = declared(tmp_path / "on", POD_NETWORK), declared(tmp_path / "off", {})
    assert on.keys() == off.keys()
    changed_too = {name for name in on if on[name] != off[name] and not name.startswith(("machines-", "crds-"))}
    assert changed_too == {"monitoring-host-scrapes", "monitoring-rules"}
    before, after = (host_scrapes.scrapes(etcd=True, pod_network=measured) for measured in (False, True))
    added = {scrape["job_name"]: scrape for scrape in after if scrape not in before}
    assert added.keys() == set(host_jobs(planned(POD_NETWORK).site)) - set(host_jobs(planned({}).site))
    values = cilium_values(measured=True)
    ports = {"cilium-agent": values["prometheus"]["port"], "hubble": values["hubble"]["metrics"]["port"]}
    for job, port in ports.items():
        # Each node, so that one without an agent is seen, and of thousands of series what rules ask for.
        assert added[job]["kubernetes_sd_configs"] == [{"role": "node"}]
        assert added[job]["relabel_configs"][0]["replacement"] == f"$1:{port}"
        (kept,) = added[job]["metric_relabel_configs"]
        (part,) = [part for part in metrics.load().values() if part.job == job]
        assert (kept["action"], set(kept["regex"].split("|"))) == ("keep", set(part.series))


@pytest.mark.row("004.11")
def test_the_firewall_lets_pods_read_the_pod_networks_metrics_only_where_they_are_served() -> None:
    on, off = rules(planned(POD_NETWORK)), rules(planned({}))
    assert {key: rule for key, rule in on.items() if key in off} == off
    assert on.keys() - off.keys() == {("cp", "cilium-metrics"), ("worker", "cilium-metrics")}
    opened = on["worker", "cilium-metrics"]
    assert opened["portSelector"] == {"ports": [node_ports.CILIUM_AGENT, node_ports.HUBBLE], "protocol": "tcp"}
    assert opened["ingress"] == on["worker", "kubelet"]["ingress"]


@pytest.mark.parametrize("bgp", [False, True])
def test_each_choice_of_cilium_has_a_file_and_a_digest_of_its_own(bgp: bool) -> None:
    base = {} if bgp else {"cluster.machines.cilium_manifest": None}
    sites = [(by_bgp if bgp else planned)(base | more).site for more in ({}, POD_NETWORK)]
    stem, suffix = ("cilium-bgp", "_with_bgp") if bgp else ("cilium", "")
    assert [str(cilium_manifest(site)) for site in sites] == [
        f".bundle/cilium/{stem}.yaml",
        f".bundle/cilium/{stem}-measured.yaml",
    ]
    pin = versions.load().cilium
    digests = {pin.manifest, pin.manifest_with_bgp, pin.manifest_measured, pin.manifest_with_bgp_measured}
    assert len(digests) == 4
    assert [cilium_digest(site, pin) for site in sites] == [
        getattr(pin, f"manifest{suffix}{choice}") for choice in ("", "_measured")
    ]


def test_hubble_counts_by_namespace_and_makes_no_certificate() -> None:
    """Text of the chart's values, as no test has the chart: its manifest with them is pinned by digest."""
    hubble = cilium_values(measured=True)["hubble"]
    assert not hubble["tls"]["enabled"] and hubble["listenAddress"] == ""
    labels = set(",".join(hubble["metrics"]["enabled"]).split("=")[1].split(" ")[0].split(",")) - {"flow"}
    assert labels == {"source_namespace", "destination_namespace"}
    assert labels < set(metrics.load()["hubble"].series["hubble_drop_total"])
    assert cilium_values()["hubble"] == {"enabled": False} and "prometheus" not in cilium_values()


@pytest.mark.parametrize(
    ("change", "what", "fixed"),
    [
        ({"monitoring.hosts": "none"}, "is measured, and nodes are not", {"monitoring.hosts": "measured"}),
        (
            {"cluster.machines.cni": "external", "addresses": None},
            "is measured, and the pod network is not this program's Cilium",
            {"monitoring.pod_network": "none"},
        ),
    ],
)
def test_the_pod_network_is_measured_with_nodes_and_where_it_is_the_programs(
    change: dict[str, Any], what: str, fixed: dict[str, Any]
) -> None:
    refused_and_fixed(Wrong(POD_NETWORK | change, "monitoring.pod_network", what, fixed))


def rules(plan: SitePlan) -> dict[tuple[str, str], dict[str, Any]]:
    """Rules of a control plane's firewall and of a worker's, by name; etcd serves metrics where there is one for it."""
    assert plan.machines is not None
    texts = dict.fromkeys(plan.machines.secret_names, "x")
    documents = plan.machines.documents(placeholder_bundle("x"), texts, None)
    listed = {}
    for node in plan.machines.nodes:
        role = "cp" if node.is_control_plane else "worker"
        for document in documents[node.name]:
            if document.get("kind") == "NetworkRuleConfig":
                listed[role, document["name"]] = document
            if role == "cp" and "cluster" in document:
                arguments = document["cluster"]["etcd"].get("extraArgs", {})
                expected = {"listen-metrics-urls": "http://0.0.0.0:2381"} if plan.site.measures_hosts else {}
                assert arguments == expected
    return listed


def test_an_existing_cluster_shows_no_etcd() -> None:
    """Its machines are not the program's, and by itself etcd answers to its own certificates alone."""
    assert set(host_jobs(planned({}).site)) - {"etcd"} == {
        "apiserver",
        "cadvisor",
        "coredns",
        "kubelet",
        "node-exporter",
    }
    site = planned({}).site
    cluster = site.cluster.model_copy(update={"machines": None})
    assert "etcd" not in host_jobs(site.model_copy(update={"cluster": cluster}))


@pytest.mark.parametrize("system", ["none", "external"])
def test_hosts_are_for_the_programs_own_prometheus(system: str) -> None:
    section = {"system": system, **({"scraper_namespace": "watch"} if system == "external" else {})}
    what = f"is set, and system {system} does not read it"
    fixed = {"monitoring": section}
    refused_and_fixed(Wrong({"monitoring": {**section, "hosts": "measured"}}, "monitoring.hosts", what, fixed=fixed))
