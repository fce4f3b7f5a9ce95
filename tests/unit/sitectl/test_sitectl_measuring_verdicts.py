"""Verdicts on the volume of what measures a site: a claim that exists takes no other size, and no cluster is asked."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from components.monitoring.alertmanager import alertmanager
from components.monitoring.prometheus import prometheus
from components.placing import Placing
from components.specs.monitoring import MonitoringSpec
from sitectl.change.changes import Change
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity, Verdict

pytestmark = pytest.mark.row("opening 3")


def declared(gib: int, days: int = 15) -> dict[str, Any]:
    """Prometheus as the program declares it."""
    spec = MonitoringSpec(volume_gib=gib, retention_days=days)
    anywhere = Placing(node_selector={}, tolerations=())
    return prometheus("space", spec, site="own", image="p:v3.0", storage_class="scratch", placing=anywhere)


def verdicts(before: dict[str, Any], after: dict[str, Any], kind: str = "Prometheus") -> list[Verdict]:
    type_ = f"kubernetes:monitoring.coreos.com/v1:{kind}"
    return classify(Change(op="update", type=type_, name="own", before=before, after=after))


def test_a_smaller_volume_keeps_its_claim_and_loses_measurements_and_the_fix_is_named() -> None:
    first, second = verdicts(declared(50), declared(20))
    assert (first.severity, second.severity) == (Severity.IRREVERSIBLE, Severity.RESTARTS)
    assert first.what == "the claim keeps its 50Gi instead of 20Gi, and measurements beyond 16384MiB are deleted"
    assert "keep monitoring.volume_gib, or delete claim and pod after `up`" in first.reason


def test_a_larger_volume_keeps_its_claim_which_is_increased_first() -> None:
    first, second = verdicts(declared(1000), declared(2048))
    assert (first.severity, second.severity) == (Severity.RESTARTS, Severity.RESTARTS)
    assert first.what.startswith("the claim keeps its 1000Gi instead of 2048Gi")
    assert "unless the claim is increased first" in first.reason


def test_the_volume_of_silences_is_no_measurements_and_has_no_key() -> None:
    """An upgrade of the program alone changes its size."""
    anywhere = Placing(node_selector={}, tolerations=())
    after = alertmanager("space", image="p:v0.30", secret=None, storage_class="scratch", placing=anywhere)
    before = copy.deepcopy(after)
    before["spec"]["storage"]["volumeClaimTemplate"]["spec"]["resources"]["requests"]["storage"] = "50Gi"
    (only,) = verdicts(before, after, kind="Alertmanager")
    assert only.what.startswith("may restart: ")


def test_a_first_volume_has_no_claim_that_keeps_its_size() -> None:
    before = declared(50)
    del before["spec"]["storage"]
    (only,) = verdicts(before, declared(50))
    assert only.what.startswith("may restart: ")


def test_the_same_size_is_no_matter_of_the_claim() -> None:
    (only,) = verdicts(declared(50), declared(50, days=9))
    assert only.what.startswith("may restart: ")
