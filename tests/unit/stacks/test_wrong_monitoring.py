"""Monitoring whose keys its system does not read, or that lacks one without which nothing would be measured."""

from __future__ import annotations

from typing import Any

import pytest

from components.addons.longhorn import storage_classes
from components.monitoring.alerts.gateway import BURNS
from components.specs.longhorn import LonghornSpec
from components.specs.monitoring import READ_BY, MonitoringSpec
from stacks.plan.charts import optional_parts
from stacks.plan.monitoring import longhorn_copies, volume_class
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "opening 13", "002.09")

SECTION = "monitoring"
MEASURED = {"monitoring.hosts": "measured"}
EXTERNAL = {SECTION: {"system": "external", "scraper_namespace": "watch"}}


@pytest.mark.parametrize(
    ("section", "key", "what", "fixed"),
    [
        (
            {"system": "none", "retention_days": 3},
            f"{SECTION}.retention_days",
            "is set, and system none does not read it",
            {SECTION: {"system": "none"}},
        ),
        (
            {"system": "external", "scraper_namespace": "watch", "volume_gib": 3},
            f"{SECTION}.volume_gib",
            "is set, and system external does not read it",
            EXTERNAL,
        ),
        (
            {"system": "prometheus_operator", "labels": {"release": "stack"}},
            f"{SECTION}.labels",
            "is set, and system prometheus_operator does not read it",
            {SECTION: {"system": "prometheus_operator"}},
        ),
        ({"system": "external"}, SECTION, "lacks scraper_namespace", EXTERNAL),
        (
            {"system": "external", "scraper_namespace": "Watch"},
            f"{SECTION}.scraper_namespace",
            "not a name of lower-case letters",
            EXTERNAL,
        ),
        (
            {"system": "external", "scraper_namespace": "watch", "labels": {"release": "a b"}},
            f"{SECTION}.labels.release",
            "not a label, or not the value of one",
            EXTERNAL,
        ),
        (
            {"system": "prometheus_operator", "storage_class": "Fast Disks"},
            f"{SECTION}.storage_class",
            "not a name of lower-case letters, digits, dashes and dots",
            {SECTION: {"system": "prometheus_operator", "storage_class": "fast"}},
        ),
        *(
            (
                {"system": "prometheus_operator", "runbooks_url": wrong},
                f"{SECTION}.runbooks_url",
                "not the https address of a folder",
                {SECTION: {"system": "prometheus_operator", "runbooks_url": "https://pages.site.example/runbooks"}},
            )
            for wrong in ("http://pages.site.example/runbooks", "https://pages.site.example/runbooks?page=", "runbooks")
        ),
    ],
)
def test_a_key_that_would_have_no_effect_is_refused(
    section: dict[str, Any], key: str, what: str, fixed: dict[str, Any]
) -> None:
    refused_and_fixed(Wrong({SECTION: section}, key, what, fixed=fixed))


def test_a_volume_needs_a_class_where_the_program_brings_no_storage() -> None:
    own = {SECTION: {"system": "prometheus_operator"}}
    others = {"storage.system": "external", "storage.longhorn": None}
    fixed = {SECTION: {"system": "prometheus_operator", "storage_class": "fast"}}
    refused_and_fixed(Wrong(own | others, SECTION, "lacks storage_class", fixed=fixed))


def test_a_patch_moves_no_metrics_that_the_program_reads() -> None:
    patch = {"cluster": {"etcd": {"extraArgs": {"listen-metrics-urls": "http://127.0.0.1:2381"}}}}
    own = {f"{M}.roles.controlplane.patches": {"own": patch}}
    key = f"{M}.roles.controlplane.patches.own.cluster.etcd.extraArgs.listen-metrics-urls"
    refused_and_fixed(Wrong(own | MEASURED, key, "which monitoring.hosts decides", {"monitoring.hosts": "none"}))


@pytest.mark.parametrize(
    ("change", "warned"),
    [({f"{M}.firewall": None}, True), ({}, False), ({f"{M}.firewall": None, "monitoring.hosts": "none"}, False)],
)
def test_metrics_that_every_network_reaches_are_warned_of(change: dict[str, Any], warned: bool) -> None:
    fixes = {w.key: w.fix for w in plan_values(changed(prod(), MEASURED | change), "site.yaml").warnings}
    assert ("set cluster.machines.firewall" in fixes.get("monitoring.hosts", "")) is warned


@pytest.mark.parametrize("pod_network", ["none", "measured"])
def test_it_names_the_ports_of_cilium_where_they_answer(pod_network: str) -> None:
    change = {f"{M}.firewall": None, "monitoring.pod_network": pod_network}
    warned = {w.key: w.what for w in plan_values(changed(prod(), MEASURED | change), "site.yaml").warnings}
    assert ("9962 and 9965" in warned["monitoring.hosts"]) is (pod_network == "measured")


@pytest.mark.parametrize(("own", "warned"), [("longhorn-scratch", True), ("fast-scratch", False), ("nvme", False)])
def test_a_class_that_took_another_name_is_warned_of(own: str, warned: bool) -> None:
    kept = {"system": "victoria_logs", "storage_class": own}
    change = {"storage.storage_class": "fast", "monitoring.storage_class": own, "logs": kept}
    fixes = {warning.key: warning.fix for warning in plan_values(changed(prod(), change), "site.yaml").warnings}
    for section in ("monitoring", "logs"):
        assert fixes.get(f"{section}.storage_class") == ("write fast-scratch" if warned else None)


@pytest.mark.parametrize(
    ("change", "named", "own"),
    [
        ({}, "longhorn-scratch", True),
        ({"monitoring.storage_class": None}, "longhorn-scratch", True),
        ({"monitoring.storage_class": "fast"}, "fast", False),
        ({"monitoring.storage_class": "longhorn-databases"}, "longhorn-databases", True),
    ],
)
def test_volumes_are_of_longhorns_class_for_scratch_unless_another_one_is_named(
    change: dict[str, Any], named: str, own: bool
) -> None:
    site = plan_values(changed(prod(), change), "site.yaml").site
    assert (volume_class(site), longhorn_copies(site) is not None) == (named, own)


def test_measurements_are_deleted_with_their_claim_unless_another_class_is_named() -> None:
    site = plan_values(changed(prod(), {"monitoring.storage_class": None}), "site.yaml").site
    policies = {
        body["metadata"]["name"]: body["reclaimPolicy"]
        for body in storage_classes(site.storage.storage_class, LonghornSpec(), "v1")
    }
    assert policies[str(volume_class(site))] == "Delete"


def test_only_a_site_with_an_operator_of_its_own_gets_its_definitions() -> None:
    parts = {
        system: optional_parts(plan_values(changed(prod(), {SECTION: section, "certificates": {}}), "site.yaml").site)
        for system, section in (
            ("none", {}),
            ("external", EXTERNAL[SECTION]),
            ("prometheus_operator", {"system": "prometheus_operator"}),
        )
    }
    assert parts == {"none": [], "external": [], "prometheus_operator": ["prometheus_operator"]}


def test_each_key_is_read_by_some_system() -> None:
    read = {key for keys in READ_BY.values() for key in keys}
    assert read | {"system"} == set(MonitoringSpec.model_fields)


def test_each_alert_about_the_error_budget_can_fire_at_the_lowest_target() -> None:
    """No more than all requests can fail."""
    lowest = next(
        limit.ge for limit in MonitoringSpec.model_fields["availability_percent"].metadata if hasattr(limit, "ge")
    )
    assert max(burn.factor for burn in BURNS) * (1 - lowest / 100) < 1
