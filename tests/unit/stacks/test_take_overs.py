"""What a site carries while another one is away, out of both sites' files, and what tenants miss there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from floor.problems import SiteError
from stacks.plan.orders import load_of
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.plan.take_overs import describe_take_overs
from stacks.site.loader import KEY, read_site_file
from tests.documented import ROOT
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("004.10", "004.21", "opening 13", "opening 26")

MODEL = "qwen3-32b"
OTHER = "takes_over.bergen"
PAGE = ROOT / "docs" / "how-to" / "take-over-from-another-site.md"


def planned(folder: Path, here: dict[str, Any], there: dict[str, Any] | None) -> SitePlan:
    """The plan of `oslo`, beside a file of `bergen` where that is given."""
    sites = {"oslo": here} if there is None else {"oslo": here, "bergen": there}
    for name, changes in sites.items():
        values = changed(prod(), {"name": name, **changes})
        document = {"config": {KEY: values}}
        (folder / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return plan_file(folder / "Pulumi.oslo.yaml")


def elsewhere(**changes: Any) -> dict[str, Any]:
    """A site with addresses of its own, so that both may be in one checkout."""
    return {"cluster": {"kubeconfig": "kubeconfig.bergen"}, "addresses": {}, **changes}


def test_requests_of_both_sites_are_proven_together(tmp_path: Path) -> None:
    """By tokens: half of requests that are twice as long are as many as are declared there."""
    longer = {f"models.{MODEL}.load": {"requests_per_s": 1.0, "prompt_tokens": {"p50": 2000, "p95": 12_000}}}
    plan = planned(tmp_path, {OTHER: {"share": 0.5}}, elsewhere(**longer))
    (other,) = plan.taken
    (model,) = [model for model in other.models or () if model.name == MODEL]
    bergen = read_site_file(tmp_path / "Pulumi.bergen.yaml").site
    assert bergen is not None
    own, theirs = load_of(plan.site.models[MODEL]), load_of(bergen.models[MODEL])
    assert own is not None
    assert theirs is not None
    assert theirs.request_tokens > 1.5 * own.request_tokens
    assert model.more * own.request_tokens == pytest.approx(0.5 * 1.0 * theirs.request_tokens)
    assert model.proof is not None
    assert model.proof.case.replicas == plan.models[MODEL].stable.proof.case.replicas
    assert model.proof.order.load is not None
    assert model.proof.order.load.requests_per_s == pytest.approx(4.0 + model.more)


@pytest.mark.parametrize(
    ("rate", "verdict"), [(0.2, "HOLDS"), (2.0, "MAY MISS ITS TARGETS"), (40.0, "MISSES ITS TARGETS")]
)
def test_the_verdict_is_that_of_the_proof_over_its_band(tmp_path: Path, rate: float, verdict: str) -> None:
    there = elsewhere(**{f"models.{MODEL}.load.requests_per_s": rate, "models.glm-5-1.load.requests_per_s": 0.01})
    plan = planned(tmp_path, {OTHER: {}}, there)
    text = describe_take_overs(plan.taken)
    assert text in plan.texts
    (line,) = [line for line in text.splitlines() if line.startswith(f"  bergen, {MODEL}: ")]
    assert line.startswith(f"  bergen, {MODEL}: 4 + {rate:g} requests/s of ")
    assert line.endswith(f": {verdict}  [estimated]")
    warned = [problem for problem in plan.warnings if problem.key == OTHER]
    assert bool(warned) == (verdict == "MISSES ITS TARGETS")


def test_what_is_not_served_here_is_warned_of(tmp_path: Path) -> None:
    here: dict[str, Any] = {OTHER: {}, "models.glm-5-1": None, "tenants.search.models": [MODEL]}
    plan = planned(tmp_path, here, elsewhere(**{f"models.{MODEL}.load.requests_per_s": 0.1}))
    (warned,) = [problem for problem in plan.warnings if problem.key == OTHER]
    assert warned.got == "glm-5-1: not served here"
    assert "bergen, glm-5-1: not served here" in describe_take_overs(plan.taken)


def test_a_tenants_keys_models_and_limits_on_both_sides_are_compared(tmp_path: Path) -> None:
    here = {OTHER: {}, "tenants.archive": None, "tenants.search.limits": {"tokens_per_minute": 500}}
    there = elsewhere(**{"tenants.search.limits": {"tokens_per_minute": 900, "tokens_per_day": 10_000}})
    text = describe_take_overs(planned(tmp_path, here, there).taken)
    assert (
        "bergen, tenants: no keys here have archive; search has lower limits here: tokens_per_minute 500, not 900"
        in (text)
    )


def test_a_site_takes_no_load_of_its_own_over(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"takes_over\.oslo: is this site itself"):
        planned(tmp_path, {"takes_over.oslo": {}}, None)


def test_the_page_shows_what_preview_prints(tmp_path: Path) -> None:
    limits = "tenants.search.limits"
    here = {OTHER: {"share": 0.5}, "tenants.archive": None, limits: {"tokens_per_minute": 500_000}}
    there = elsewhere(**{limits: {"tokens_per_minute": 600_000}})
    text = describe_take_overs(planned(tmp_path, here, there).taken)
    assert f"```text\n{text}\n```" in PAGE.read_text()


@pytest.mark.parametrize("there", [None, elsewhere(**{"gateway.port": "eighty"})])
def test_a_site_whose_file_is_missing_or_wrong_is_warned_of(tmp_path: Path, there: dict[str, Any] | None) -> None:
    plan = planned(tmp_path, {OTHER: {}}, there)
    (warned,) = [problem for problem in plan.warnings if problem.key == OTHER]
    assert warned.what == "nothing is proven of it: Pulumi.bergen.yaml is missing or wrong"
    assert "bergen: not known" in describe_take_overs(plan.taken)
