"""A model that tenants may count on until a day: plan and diff name what takes it from them before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.portal.catalogue import Catalogue
from sitectl.change.support import between, verdicts
from sitectl.shell.errors import Exit
from stacks.plan.portal import portal_catalogue
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.site.loader import KEY
from tests.unit.sitectl.sites_to_work_on import git, make_checkout, run, stand_in_pulumi
from tests.unit.sitectl.test_sitectl_headroom import words

pytestmark = pytest.mark.row("000.07", "001.32")

UNTIL, BEFORE, AFTER = "2099-06-30", "2099-01-01", "2099-07-01"


def values(**model: Any) -> dict[str, Any]:
    """The site of these tests with its model changed; one tenant may call it."""
    site: dict[str, Any] = words(1.0)
    site["models"]["chat"] |= {"served_until": UNTIL} | model
    site["tenants"] = {"acme": {"models": ["chat"], "keys": {"a": {}}}}
    return site


def plan(**model: Any) -> SitePlan:
    return plan_values(values(**model), "berlin")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param({"catalogue": "qwen3-30b-a3b-fp8"}, "is served by Qwen/Qwen3-30B-A3B-FP8 at ", id="checkpoint"),
        pytest.param({"served_until": "2099-03-01"}, "is promised until 2099-03-01 alone", id="an earlier day"),
        pytest.param({"served_until": None}, "is promised for no time any more", id="no day"),
    ],
)
def test_what_breaks_a_promise_is_named_until_its_day_is_over(change: dict[str, Any], what: str) -> None:
    ((model, until, shown),) = between(plan(), plan(**change), BEFORE)
    assert (model, until) == ("chat", UNTIL)
    assert shown.startswith(what)
    assert between(plan(), plan(**change), UNTIL), "its last day"
    assert between(plan(), plan(**change), AFTER) == []


@pytest.mark.parametrize(
    ("after", "what"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"served_until": "2099-01-31"}, "", id="a day after the notice"),
        pytest.param({"served_until": "2099-01-30"}, "is promised until 2099-01-30 alone", id="a day before it"),
        pytest.param({"catalogue": "qwen3-30b-a3b-fp8"}, "is served by Qwen/Qwen3-30B-A3B-FP8", id="checkpoint"),
    ],
)
def test_a_model_without_a_day_ends_after_the_portals_notice(after: dict[str, Any], what: str) -> None:
    def planned(**model: Any) -> SitePlan:
        site = values(**{"served_until": None} | model)
        site["callers"] = {"decided_by": "gatekeeper", "database_secret": "keys", "pepper": "disposable"}
        site["portal"] = {
            "hostname": "p.example",
            "port": 80,
            "issuer": "https://i.example",
            "client_secret": "p",
            "notice_days": 30,
        }
        return plan_values(site, "berlin")

    broken = between(planned(), planned(**after), BEFORE)
    assert [(model, until) for model, until, _ in broken] == [("chat", "2099-01-31")] * bool(what)
    assert all(shown.startswith(what) for *_, shown in broken)


def test_other_settings_and_later_days_break_none() -> None:
    for change in ({"server": {"replicas": 3}}, {"served_until": "2100-01-01"}, {"aliases": ["smart"]}):
        assert between(plan(), plan(**change), BEFORE) == []


def test_tenants_with_dedicated_replicas_are_among_those_of_a_promise() -> None:
    (row,) = verdicts([("chat", UNTIL, "is removed")], {"acme": ["chat--for-acme"], "beta": ["chat"], "other": []})
    assert row.tenants == ("acme", "beta")


def test_the_portal_shows_the_day() -> None:
    for until in (UNTIL, None):
        site = plan_values(values(served_until=until), "berlin")
        assert Catalogue.model_validate_json(portal_catalogue(site)).models["chat"].served_until == until


def test_a_plan_names_the_model_its_day_and_its_tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also out of a saved preview; a pipeline that refuses what users notice refuses it."""
    folder, saved = make_checkout(tmp_path / "own", sites=()), tmp_path / "saved.json"
    file = folder / "Pulumi.berlin.yaml"
    git(folder, "init", "-q", "-b", "main")
    file.write_text(yaml.safe_dump({"config": {KEY: values()}}))
    git(folder, "add", file.name)
    git(folder, "commit", "-qm", "promise")
    without = values()
    other = {key: value for key, value in without["models"].pop("chat").items() if key != "served_until"}
    without["models"]["other"] = other
    without["tenants"]["acme"]["models"] = ["other"]
    file.write_text(yaml.safe_dump({"config": {KEY: without}}))
    stand_in_pulumi(tmp_path, "replica-added", monkeypatch)
    result = run(folder, "plan", "berlin", "--save", str(saved), "--refuse", "replaced")
    assert result.status == Exit.REFUSED
    assert f"model chat is removed, and tenants may count on it until {UNTIL}" in result.out
    assert json.loads(saved.read_text())["support"] == [["chat", UNTIL, "is removed"]]
    rows = run(folder, "plan", "berlin", "--from", str(saved), "--json").data["rows"]
    (row,) = (row for row in rows if row["resource"] == "promise chat")
    assert (row["severity"], row["model"]) == ("replaced", "chat")
