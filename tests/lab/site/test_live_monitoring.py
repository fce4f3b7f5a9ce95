"""The checks of `tests/live` on a site that measures itself: all pass, and those of monitoring turn red."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.prometheus import SELECTED
from components.monitoring.scraping import own_targets
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.measured import MONITORING, Prometheus
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.skipped_checks import IN_MONITORING, OF_MONITORING, SKIPPED, UNCERTIFIED, UNMEASURED
from tests.lab.site.test_live_checks import PSA, checked, red

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 5", "002.09", "002.16")]

OPERATOR = "deployment/prometheus-operator"
ALERTMANAGER = "statefulset/alertmanager-inference"
PLANTED = {
    "what rules and dashboards ask for is measured[alertmanager]": "alertmanager measures no alertmanager_alerts",
    "what rules and dashboards ask for is measured[prometheus operator]": "measures no prometheus_operator_ready",
    "what measures is ready with the pinned images": "no pod runs quay.io/prometheus/alertmanager",
    "every pod that is measured answers": "kube-state-metrics: 1 of 2 Pods are up",
    "every rule is loaded and computed": "not computed: planted:rule: ",
    "prometheus sends alerts to every alertmanager": "there is no Alertmanager",
    "the watchdog fires as far as alertmanager": "alertmanager-operated does not answer",
    "pods refuse what no policy lets in[inference-monitoring]": "does not deny by default",
    "a namespace admits no pod with more rights[inference-monitoring]": "enforces baseline",
}
# Two series on each side of a match for one.
RULE: dict[str, Any] = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "planted", "namespace": MONITORING, "labels": dict(SELECTED)},
    "spec": {
        "groups": [{"name": "planted", "interval": "5s", "rules": [{"record": "planted:rule", "expr": "up * on() up"}]}]
    },
}


def mute(image: str) -> dict[str, Any]:
    """A Pod that is measured as kube-state-metrics is, and does not answer."""
    (target,) = (target for target in own_targets() if target.name == "kube-state-metrics")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mute", "namespace": MONITORING, "labels": dict(target.pods)},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "mute",
                    "image": image,
                    "command": ["python3", "-c", "import signal; signal.pause()"],
                    "ports": [{"containerPort": target.port}],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def test_every_check_passes_on_a_site_that_measures_itself(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    prometheus = Prometheus(cluster)
    until(lambda: prometheus.query("up") and not prometheus.query("up == 0"), what="nothing down")
    findings = checked(site, tmp_path)
    assert red(findings) == {}
    skipped = {check for check, finding in findings.items() if finding["outcome"] == "skipped"}
    assert skipped == SKIPPED.keys() - UNMEASURED.keys() - UNCERTIFIED.keys()
    assert PLANTED.keys() == OF_MONITORING | IN_MONITORING == UNMEASURED.keys()


def plant(site: Site, cluster: Cluster, folder: Path) -> None:
    for body in (RULE, mute("docker.io/library/python:3.13.1")):
        file = folder / f"{body['kind']}.json"
        file.write_text(json.dumps(body))
        kubectl(site.lab, "create", "-f", str(file))
    prometheus = Prometheus(cluster)
    until(lambda: prometheus.query('up{pod="mute"} == 0'), what="a target that is down")
    until(lambda: "planted:rule" in failing(prometheus), what="a rule that fails")
    # What would repair the rest goes first.
    for part in (OPERATOR, ALERTMANAGER):
        kubectl(site.lab, "scale", "-n", MONITORING, part, "--replicas=0")
    kubectl(site.lab, "delete", "-n", MONITORING, "networkpolicy/deny-ingress")
    kubectl(site.lab, "label", "namespace", MONITORING, f"{PSA}=baseline", "--overwrite")
    gone = "app.kubernetes.io/name=alertmanager"
    until(lambda: not cluster.pods(MONITORING, gone), what="no Alertmanager")
    # Samples of a target that is gone stay for some scrapes.
    until(lambda: not measured_still(prometheus), what="neither is measured")


def measured_still(prometheus: Prometheus) -> list[dict[str, Any]]:
    """Samples of the two. An alert that one of them is missing has its job as a label too, and comes to stay."""
    return prometheus.query('{job=~"alertmanager|prometheus-operator", __name__!~"ALERTS|ALERTS_FOR_STATE"}')


def failing(prometheus: Prometheus) -> list[str]:
    groups = prometheus.ask("rules")["groups"]
    return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]


def undo(site: Site, cluster: Cluster, folder: Path) -> None:
    kubectl(site.lab, "delete", "-n", MONITORING, "prometheusrule/planted")
    kubectl(site.lab, "delete", "-n", MONITORING, "pod/mute", "--force", "--grace-period=0")
    kubectl(site.lab, "scale", "-n", MONITORING, OPERATOR, "--replicas=1")
    Pulumi(site.lab, folder)("up", "--yes", "--refresh", "--skip-preview")
    prometheus = Prometheus(cluster)
    until(lambda: not failing(prometheus), what="the rule is gone")
    until(lambda: prometheus.up()["alertmanager"], what="Alertmanager is back")
    until(lambda: prometheus.query("up") and not prometheus.query("up == 0"), what="nothing down")
    arrived = "increase(prometheus_notifications_sent_total[1m]) > 0"
    until(lambda: prometheus.query(arrived), what="alerts arrive")


def test_each_check_of_monitoring_turns_red_with_its_fault(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    try:
        plant(site, cluster, tmp_path)
        findings = checked(site, tmp_path / "planted", "-k", "monitoring or isolation")
    finally:
        undo(site, cluster, tmp_path)
    reasons = red(findings)
    silent = {check for check, reason in PLANTED.items() if reason not in reasons.get(check, "")}
    assert not silent, {check: findings[check] for check in silent}
    assert red(checked(site, tmp_path / "undone", "-k", "monitoring or isolation")) == {}
