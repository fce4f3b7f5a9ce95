"""The site's own Prometheus computes its rules, is silent about a healthy site, and notices a model that is slow."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from components.monitoring import queries, rules
from components.monitoring.alerts.alert import Alert
from components.monitoring.alerts.models import SlowModelTimes, slow_model
from components.monitoring.prometheus import SELECTED
from components.monitoring.rules import Measured
from lab import session
from tests.alert_site import PROMISE
from tests.lab.site.measured import MONITORING, Prometheus
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat, fresh_prompt

pytestmark = pytest.mark.row("002.09", "003.19")

MODEL = "qwen3-32b"
# As the platform's own alert, but over four scrapes instead of a quarter of an hour, and at once.
SLOW = replace(slow_model(SlowModelTimes(window="1m", minutes=0)), name="SlowInTheLab")
TOKENS = 30
# Of the parts that alerts are about, those that this site has.
_HERE = Measured(parts=("certificates", "credentials"), servers=True)


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Prometheus:
    return Prometheus(cluster)


@pytest.fixture(scope="module")
def quick_alert(site: Site) -> Iterator[Alert]:
    """The alert on slow models with short times, beside the site's own rules."""
    name = "slow-in-the-lab"
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": MONITORING, "labels": dict(SELECTED)},
        "spec": {"groups": [{"name": name, "interval": "5s", "rules": [SLOW.rule()]}]},
    }
    kubectl = ["kubectl", "-n", MONITORING]
    environment = session.environment(site.lab)
    subprocess.run([*kubectl, "apply", "-f", "-"], input=json.dumps(body), text=True, env=environment, check=True)
    yield SLOW
    subprocess.run([*kubectl, "delete", "prometheusrule", name], env=environment, check=True)


def rules_of(prometheus: Prometheus) -> dict[str, dict[str, str]]:
    """Every rule that Prometheus computes, by name, with the health of its last evaluation."""
    groups = prometheus.ask("rules")["groups"]
    return {rule["name"]: rule for group in groups for rule in group["rules"]}


def firing(prometheus: Prometheus) -> set[str]:
    return {sample["metric"]["alertname"] for sample in prometheus.query('ALERTS{alertstate="firing"}')}


def ask(site: Site) -> None:
    with site.http() as client:
        body = chat(MODEL, fresh_prompt(50), tokens=TOKENS)
        client.post("/chat/completions", json=body).raise_for_status()


def test_every_rule_is_computed(prometheus: Prometheus) -> None:
    wanted = {alert.name for alerts in rules.alerts(PROMISE, _HERE).values() for alert in alerts}
    wanted |= {queries.PROMISED_ITL, queries.gpus_by_model()}
    until(lambda: wanted <= set(rules_of(prometheus)), what="every rule loaded")
    until(lambda: {rule["health"] for rule in rules_of(prometheus).values()} == {"ok"}, what="every rule computed")


def test_nothing_is_wrong_with_a_healthy_site(site: Site, prometheus: Prometheus) -> None:
    ask(site)
    until(lambda: "Watchdog" in firing(prometheus), what="the watchdog fires")
    assert firing(prometheus) == {"Watchdog"}


def test_prometheus_knows_when_each_credential_of_the_cluster_ends(prometheus: Prometheus) -> None:
    """Of real certificates: the emulated machines give out a kubeconfig for a year, as Talos does."""
    samples = prometheus.first(f"floor(({queries.CREDENTIAL_END} - time()) / 86400)")
    days = {sample["metric"]["credential"]: int(sample["value"][1]) for sample in samples}
    assert set(days) == {"kubeconfig", "talosconfig", "etcd", "k8s", "k8saggregator", "os"}
    for name, left in days.items():
        assert left in (range(300, 366) if name.endswith("config") else range(3500, 3651)), days


def test_a_slow_model_is_noticed_and_a_usual_one_is_not(
    site: Site, cluster: Cluster, prometheus: Prometheus, quick_alert: Alert
) -> None:
    """Slowed by the simulator's own pace: every request is answered, with 250 ms between its tokens."""

    def alarms() -> list[str]:
        ask(site)
        fires = prometheus.query(f'ALERTS{{alertname="{quick_alert.name}", alertstate="firing"}}')
        return [sample["metric"]["model"] for sample in fires]

    def measured() -> bool:
        ask(site)
        rule = rules_of(prometheus).get(quick_alert.name, {})
        mean = queries.itl_mean_s(f'{queries.ENGINES}, model="{MODEL}"', window="1m")
        return rule.get("health") == "ok" and bool(prometheus.query(mean))

    until(measured, what="the usual pace measured")
    assert alarms() == []
    with cluster.pace(MODEL, inter_token_latency="250ms"):
        assert until(alarms, what="an alert on the slow model") == [MODEL]
    until(lambda: not alarms(), what="the alert ends with its cause")
