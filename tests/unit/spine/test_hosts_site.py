"""Nodes and the control plane are measured where a site sets it: what that declares and opens, and nothing else."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.monitoring import host_scrapes
from floor import node_ports
from stacks.plan.cluster import placeholder_bundle
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.program.monitoring import host_jobs
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("002.09")

OFF: dict[str, Any] = {"monitoring.hosts": None}
PODS = {"subnet": prod()["cluster"]["machines"]["networks"]["pods"]}


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def declared(folder: Path, change: dict[str, Any]) -> dict[str, Any]:
    """The inputs of each resource, by name."""
    recorder = Recorder()
    folder.mkdir()
    requested(planned(change).site, folder, recorder)
    return {name: made.inputs for name, made in recorder.resources.items()}


def test_a_site_that_does_not_ask_has_nothing_of_it(tmp_path: Path) -> None:
    on, off = declared(tmp_path / "on", {}), declared(tmp_path / "off", OFF)
    assert off.keys() < on.keys()
    assert {name for name in on.keys() - off.keys() if "host" not in name} == set()
    # Definitions are read from another folder. What changes of machines: below.
    rest = {name for name in off if not name.startswith(("machines-", "crds-"))}
    assert {name for name in rest if on[name] != off[name]} == {"monitoring-prometheus", "monitoring-rules"}
    assert "additionalScrapeConfigs" not in off["monitoring-prometheus"]["spec"]


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
