"""Pods of charts through a drain: several replicas have a budget where their chart has one, and a single has none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from components.addons.cert_manager import cert_manager_values
from stacks.facts import chart_values, versions
from stacks.program.addons import charts_of, values_of
from tests.unit.components.test_chart_values import EVERY_ADDON, site

pytestmark = pytest.mark.row("000.20")

_LIMITS = "config.envoyGateway.provider.kubernetes"

# Chart -> value that sets replicas -> how many there are without it, and the budget that the chart has for them.
REPLICAS: dict[str, dict[str, tuple[int, str]]] = {
    "envoy_gateway": {
        "deployment.replicas": (1, "podDisruptionBudget"),
        # None without a tenant that has a limit.
        f"{_LIMITS}.rateLimitDeployment.replicas": (0, f"{_LIMITS}.rateLimitPDB"),
    },
    # Its chart has no budget.
    "ai_gateway": {"controller.replicaCount": (1, "")},
    "cert_manager": {
        "replicaCount": (1, "podDisruptionBudget"),
        "webhook.replicaCount": (1, "webhook.podDisruptionBudget"),
        "cainjector.replicaCount": (1, "cainjector.podDisruptionBudget"),
    },
    "external_secrets": {
        "replicaCount": (1, "podDisruptionBudget"),
        "webhook.replicaCount": (1, "webhook.podDisruptionBudget"),
        "certController.replicaCount": (1, "certController.podDisruptionBudget"),
    },
    # A restart of either stops no PostgreSQL server.
    "cloudnative_pg": {"replicaCount": (1, "")},
    "barman_cloud": {"replicaCount": (1, "")},
    "keda": {
        "operator.replicaCount": (1, "podDisruptionBudget.operator"),
        "metricsServer.replicaCount": (1, "podDisruptionBudget.metricServer"),
        # The program leaves them out.
        "webhooks.replicaCount": (1, "podDisruptionBudget.webhooks"),
    },
    # It keeps nothing that a second pod could share.
    "grafana": {"replicas": (1, "podDisruptionBudget")},
    # Its volume is mounted once.
    "victoria_logs": {"server.replicaCount": (1, "")},
    # Its chart has no budget.
    "leader_worker_set": {"replicaCount": (1, "")},
    # Three each, on different nodes where there are so many; they elect one that works.
    "longhorn": {
        "longhornUI.replicas": (2, ""),
        "csi.attacherReplicaCount": (3, ""),
        "csi.provisionerReplicaCount": (3, ""),
        "csi.resizerReplicaCount": (3, ""),
        "csi.snapshotterReplicaCount": (3, ""),
    },
}
# Copies of a volume.
OF_VOLUMES = "persistence.defaultClassReplicaCount"


def at(values: Mapping[str, Any], key: str, default: Any) -> Any:
    value: Any = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return default if value is None else value


def wrong(chart: str, values: Mapping[str, Any]) -> Iterator[str]:
    for key, (default, budget) in REPLICAS.get(chart, {}).items():
        runs = at(values, key, default)
        given = budget and (at(values, f"{budget}.enabled", False) or at(values, f"{budget}.maxUnavailable", 0))
        if runs > 1 and budget and not given:
            yield f"{chart}: {key} is {runs}, and {budget} gives them no budget: a drain may take all of them at once"
        if runs == 1 and given:
            yield f"{chart}: {budget} is a budget of one Pod: it would block every drain of its node"


def test_every_value_that_sets_replicas_is_known() -> None:
    listed = {
        name: {key for key in chart_values.load(name).kinds if re.search(r"(\breplicas|[rR]eplicaCount)$", key)}
        for name in versions.load().charts
    }
    assert {name: keys - {OF_VOLUMES} for name, keys in listed.items() if keys} == {
        name: set(keys) for name, keys in REPLICAS.items()
    }


def test_budgets_are_values_that_their_charts_have() -> None:
    for name, keys in REPLICAS.items():
        kinds = chart_values.load(name).kinds
        for _, budget in keys.values():
            known = {f"{budget}.enabled", f"{budget}.maxUnavailable", budget}
            assert not budget or known & kinds.keys(), (name, budget)


@pytest.mark.parametrize("change", EVERY_ADDON, ids=str)
def test_what_the_program_installs_can_be_drained(change: dict[str, Any]) -> None:
    plan = site(change)
    for name, values in values_of(plan, charts_of(plan)).items():
        assert list(wrong(name, values)) == []


def test_replicas_without_a_budget_and_a_budget_of_one_are_found() -> None:
    values = cert_manager_values()
    more = {**values, "webhook": {**values["webhook"], "replicaCount": 2}}
    assert [text.partition(",")[0] for text in wrong("cert_manager", more)] == [
        "cert_manager: webhook.replicaCount is 2"
    ]
    more["webhook"]["podDisruptionBudget"] = {"enabled": True}
    assert list(wrong("cert_manager", more)) == []
    assert len(list(wrong("cert_manager", {**values, "podDisruptionBudget": {"enabled": True}}))) == 1
    assert len(list(wrong("envoy_gateway", {"deployment": {"replicas": 2}}))) == 1
    given = {"deployment": {"replicas": 2}, "podDisruptionBudget": {"maxUnavailable": 1}}
    assert list(wrong("envoy_gateway", given)) == []
