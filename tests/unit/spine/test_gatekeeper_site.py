"""A site whose callers a gatekeeper decides about, under the SDK's mocks: tenants are data, and keys are digests."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from stacks.site.model import SiteConfig
from tests.unit.spine.test_platform import Recorder, declare, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.34", "001.14")

PARTS = {"gatekeeper", "directory"}
ALERTS = {
    *("GatekeepersDown", "GatekeeperMissing", "GatekeeperFilesRefused"),
    *("DirectoryKeysUnknown", "DirectoryNotHeard"),
}
MINTED = hashlib.sha256(b"sk-canary").hexdigest()


def site(tenants: int = 1, **more: Any) -> SiteConfig:
    """prod with a gatekeeper, and so many tenants of keys that they made themselves beside its own."""
    made = {
        f"t{number}": {"models": ["qwen3-32b"], "keys": {"k": {"sha256": f"{number:064x}"}}}
        for number in range(tenants)
    }
    values = changed(prod(), {"callers": {"decided_by": "gatekeeper", **more}})
    values["tenants"] |= made
    return plan_values(values, "site.yaml").site


@pytest.mark.slow
def test_a_tenant_is_no_resource(tmp_path: Path) -> None:
    names = []
    for count in (1, 200):
        folder = tmp_path / str(count)
        folder.mkdir()
        names.append(set(declare(site(count), folder)[0].resources))
    assert names[0] == names[1]


@pytest.mark.slow
def test_a_change_of_tenants_or_keys_is_one_of_content_alone(tmp_path: Path) -> None:
    """An `up` that is killed has no second object to delete, so the next one may be the change back.

    Pods that read what changes are replaced, so that it is in force when `up` ends.
    """
    made = []
    for name, digit in (("before", "a"), ("other-key", "b"), ("tenant-more", "a")):
        given = site(2 if name == "tenant-more" else 1, database_secret="directory-database")
        given.tenants["t0"].keys["k"] = given.tenants["t0"].keys["k"].model_copy(update={"sha256": digit * 64})
        folder = tmp_path / name
        folder.mkdir()
        made.append(declare(given, folder)[0].resources)

    def changed_by(more: int, part: str) -> bool:
        before, after = (made[index][part].inputs["spec"]["template"] for index in (0, more))
        return bool(before != after)

    for mounted in ("callers-tenants", "callers-keys"):
        assert {resources[mounted].inputs["metadata"]["name"] for resources in made} == {mounted}
        assert not any(resources[mounted].inputs.get("immutable") for resources in made)
    assert changed_by(1, "gatekeeper-pods")
    assert changed_by(2, "gatekeeper-pods")
    assert changed_by(2, "directory-pods")
    assert not changed_by(1, "directory-pods"), "it reads no digests of the file"


@pytest.mark.slow
def test_the_gatekeeper_has_digests_alone(tmp_path: Path) -> None:
    """Of the keys that the program makes, and of those that it never had."""
    recorder, _ = declare(site(), tmp_path)
    keys = str(recorder.resources["callers-keys"].inputs)
    assert {digest for digest in (MINTED, f"{0:064x}") if digest in keys} == {MINTED, f"{0:064x}"}
    ours = [made for name, made in recorder.resources.items() if name.startswith(("callers", "gatekeeper", "access"))]
    # Every random value is the same one here; the salt is none of a key.
    assert [made.name for made in ours if "sk-canary" in str(made.inputs)] == ["gatekeeper-salt"]


@pytest.mark.slow
def test_keys_are_checked_at_every_moment(tmp_path: Path) -> None:
    """The next check is there before the filter asks it, and the earlier one goes after that."""
    _, requests = requested(site(), tmp_path, Recorder())

    def before(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in requests[name].dependencies}

    assert "gatekeeper-pods" in before("front-door-filters")
    assert "front-door-filters" in before("access-policy")
    assert "access-policy" in before("gateway-class")


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_the_pepper_goes_by_the_sites_permission_alone(tmp_path: Path, kept: bool) -> None:
    """No key of the directory works without it; tokens are made again by the next `up`."""
    given = site(database_secret="directory-database", pepper="protected" if kept else "disposable")
    _, requests = requested(given, tmp_path, Recorder())
    protected = {name: requests[f"directory-{name}"].protect for name in ("pepper", "operator-token", "reader-token")}
    assert protected == {"pepper": kept, "operator-token": False, "reader-token": False}


@pytest.mark.slow
def test_the_directory_and_its_readers_share_a_pepper(tmp_path: Path) -> None:
    recorder, _ = declare(site(database_secret="directory-database"), tmp_path)
    pods = {
        name: recorder.resources[name].inputs["spec"]["template"]["spec"]
        for name in ("gatekeeper-pods", "directory-pods")
    }
    mounted = {
        name: {item["path"] for volume in pod["volumes"] for item in volume.get("secret", {}).get("items", ())}
        for name, pod in pods.items()
    }
    assert mounted == {
        "gatekeeper-pods": {"pepper", "reader-token"},
        "directory-pods": {"pepper", "reader-token", "operator-token"},
    }


@pytest.mark.slow
@pytest.mark.row("002.09")
def test_what_decides_is_measured_where_it_runs(tmp_path: Path) -> None:
    """Each part under its job, with its alerts; on other sites nothing of them is declared."""

    def measured(name: str, given: SiteConfig) -> tuple[set[str], set[str]]:
        folder = tmp_path / name
        folder.mkdir()
        resources = declare(given, folder)[0].resources
        groups = resources["monitoring-rules"].inputs["spec"]["groups"]
        rules = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"] if "alert" in rule}
        jobs = {job for job in PARTS if f'absent(up{{job="{job}"}})' in rules["TargetsMissing"]}
        assert jobs == {job for job in PARTS if f"monitoring-monitor-{job}" in resources}
        return jobs, ALERTS & rules.keys()

    none = measured("none", plan_values(prod(), "site.yaml").site)
    gatekeepers = measured("gatekeepers", site())
    both = measured("both", site(database_secret="directory-database"))
    assert none == (set(), set())
    assert gatekeepers == ({"gatekeeper"}, ALERTS - {"DirectoryNotHeard"})
    assert both == (PARTS, ALERTS)


@pytest.mark.slow
def test_prometheus_reaches_what_it_reads_of_a_gatekeeper(tmp_path: Path) -> None:
    resources = declare(site(), tmp_path)[0].resources
    (endpoint,) = resources["monitoring-monitor-gatekeeper"].inputs["spec"]["podMetricsEndpoints"]
    (container,) = resources["gatekeeper-pods"].inputs["spec"]["template"]["spec"]["containers"]
    assert endpoint["portNumber"] in {port["containerPort"] for port in container["ports"]}
    opened = [
        rule
        for rule in resources["gatekeeper-network-policy"].inputs["spec"]["ingress"]
        if endpoint["portNumber"] in {port["port"] for port in rule["ports"]}
    ]
    names = [
        peer["podSelector"]["matchLabels"].get("app.kubernetes.io/name") for rule in opened for peer in rule["from"]
    ]
    assert "prometheus" in names
