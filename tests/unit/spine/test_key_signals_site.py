"""A site that watches keys, under the SDK's mocks: what is declared for it, and nothing where none is watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.ledger import variables
from services.ledger.signals import Thresholds
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_usage import FIRST, usage
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("004.04", "004.11")

CALLERS = {"decided_by": "gatekeeper", "database_secret": "directory-database"}
SIGNALS, SUSPENSIONS = {"KeySignal", "KeysUnwatched"}, {"KeySuspended", "SuspensionsHeld", "SignalsUnread"}


def declared(folder: Path, abuse: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The inputs of each resource."""
    folder.mkdir()
    change = usage(FIRST, **({} if abuse is None else {"abuse": abuse})) | {"callers": CALLERS}
    site = plan_values(changed(prod(), change), "site.yaml").site
    return {name: made.inputs for name, made in declare(site, folder)[0].resources.items()}


def arguments(made: dict[str, Any]) -> list[str]:
    (container,) = made["spec"]["template"]["spec"]["containers"]
    args: list[str] = container["args"]
    return args


def alerts(made: dict[str, dict[str, Any]]) -> set[str]:
    groups = made["monitoring-rules"]["spec"]["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule} & (SIGNALS | SUSPENSIONS)


@pytest.mark.slow
def test_what_watches_keys_is_declared_and_nothing_else_changes(tmp_path: Path) -> None:
    """An alert alone: no service gets a right that it had not."""
    plain, watched = declared(tmp_path / "plain", None), declared(tmp_path / "watched", {"networks": 7})
    differing = {name for name in {*plain, *watched} if plain.get(name) != watched.get(name)}
    # Its folder is that of the test.
    assert differing - {"crds-things"} == {"gateway-proxy", "gatekeeper-pods", "ledger-pods", "monitoring-rules"}
    (option,) = set(arguments(watched["ledger-pods"])) - set(arguments(plain["ledger-pods"]))
    name, _, value = option.partition("=")
    assert (name, Thresholds.model_validate_json(value).networks) == ("--watch-keys", 7)
    assert set(arguments(watched["gatekeeper-pods"])) - set(arguments(plain["gatekeeper-pods"])) == {"--networks"}
    fields = watched["gateway-proxy"]["spec"]["telemetry"]["accessLog"]["settings"][1]["format"]["json"]
    assert fields["network"] == "%DYNAMIC_METADATA(envoy.filters.http.ext_authz:network)%"
    assert "ADDRESS" not in json.dumps(fields).upper()
    assert (alerts(plain), alerts(watched)) == (set(), SIGNALS)


@pytest.mark.slow
def test_what_suspends_reads_the_ledger_and_has_a_most(tmp_path: Path) -> None:
    suspending_on = {
        "suspend_on": ["networks", "burst"],
        "most_suspended_per_hour": 2,
        "never_suspended": ["search.ci", "search.app"],
    }
    alone = declared(tmp_path / "alone", {})
    suspending = declared(tmp_path / "suspending", suspending_on)
    differing = {name for name in {*alone, *suspending} if alone.get(name) != suspending.get(name)}
    assert differing - {"crds-things"} == {"directory-pods", "monitoring-rules"}
    added = set(arguments(suspending["directory-pods"])) - set(arguments(alone["directory-pods"]))
    folder = "/etc/ledger"
    assert added == {
        "--ledger=http://ledger.inference-gateway.svc:8080",
        f"--ledger-token-file={folder}/{variables.OPERATOR_KEY}",
        "--suspend-on=networks,burst",
        "--most-suspended-per-hour=2",
        "--never-suspend=search.ci,search.app",
    }
    pod = suspending["directory-pods"]["spec"]["template"]["spec"]
    (secret,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "ledger"]
    assert [item["key"] for item in secret["items"]] == [variables.OPERATOR_KEY]
    assert folder in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert alerts(suspending) == SIGNALS | SUSPENSIONS


@pytest.mark.slow
def test_a_suspended_key_has_an_error_of_its_own_where_a_directory_runs(tmp_path: Path) -> None:
    """In front of those that would fit too: at the gatekeeper no model is known yet."""
    policy = declared(tmp_path / "site", None)["gateway-errors"]["spec"]["jsonPatches"][0]
    first = policy["operation"]["value"]["mappers"][0]
    assert first["body_format_override"]["json_format"]["error"]["code"] == "key_suspended"
