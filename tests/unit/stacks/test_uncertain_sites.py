"""A site whose models hang on their engine's speed: a warning within the band, a refusal beyond it."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from floor.problems import Problem, SiteError
from stacks.plan.site_plan import SitePlan, plan_file, plan_site, plan_values
from stacks.site.loader import KEY

pytestmark = pytest.mark.row("opening 1")

SITES = Path(__file__).parents[2] / "fixtures" / "sites"
WITHIN, BEYOND = SITES / "valid" / "uncertain-targets.yaml", SITES / "invalid" / "targets-beyond-the-band.yaml"
VALUES = yaml.safe_load(WITHIN.read_text())["config"][KEY]
HOLDS = "holds by the computed figures, but not at the slow end of their band: "
MISSES = "does not hold by the computed figures, but does at the fast end of their band: "


def changed(model: str, **sections: dict[str, Any]) -> SitePlan:
    """The site with some keys of a model."""
    values = copy.deepcopy(VALUES)
    for section, keys in sections.items():
        values["models"][model][section] = values["models"][model].get(section, {}) | keys
    return plan_values(values, "site.yaml")


def doubts(plan: SitePlan) -> list[Problem]:
    """The warnings of speed."""
    return [warning for warning in plan.warnings if warning.path[0] == "models"]


def doubted(plan: SitePlan) -> set[str]:
    return {str(warning.path[1]) for warning in doubts(plan)}


def test_the_warnings_are_those_that_the_file_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(WITHIN.parent)
    plan = plan_file(Path(WITHIN.name))
    lines = [line for warning in doubts(plan) for line in warning.text(plan.file).splitlines()]
    head = [line.removeprefix("#   ") for line in WITHIN.read_text().splitlines() if line.startswith("#   ")]
    assert lines == head
    assert all(warning.fix for warning in doubts(plan))


def test_each_model_has_one_warning_that_says_which_end_it_hangs_on() -> None:
    plan = plan_file(WITHIN)
    whats = {warning.path[1:]: warning.what for warning in doubts(plan)}
    assert {where: what.split(": ")[0] + ": " for where, what in whats.items()} == {
        ("crowded", "load"): MISSES,
        ("keeps", "slo"): HOLDS,
        ("misses", "slo"): MISSES,
    }
    assert "TTFT p95 is " in whats["keeps", "slo"] and "ITL p95 is " in whats["keeps", "slo"]
    assert {name: proof.verdict for name, proof in plan.proofs.items()} == dict.fromkeys(plan.models, "uncertain")
    assert [proof.holds for proof in plan.proofs.values()] == [False, True, False]


def test_a_site_without_a_file_has_the_same_warnings() -> None:
    assert [warning.what for warning in plan_site(plan_file(WITHIN).site).warnings] == [
        warning.what for warning in plan_file(WITHIN).warnings
    ]


def test_each_way_of_a_warning_ends_it() -> None:
    tried = 0
    for warning in doubts(plan_file(WITHIN)):
        model = str(warning.path[1])
        ways, _, _ = warning.fix.partition("; else ")
        for way in re.split(r", or (?=raise)", ways):
            if replicas := re.search(r"server\.replicas from \d+ to (\d+)", way):
                plan = changed(model, server={"replicas": int(replicas[1])})
            else:
                plan = changed(model, slo={key: int(ms) for key, ms in re.findall(r"(\w+_ms) to (\d+)", way)})
            assert doubted(plan) == {"crowded", "keeps", "misses"} - {model}, way
            tried += 1
    assert tried >= 4


def test_beyond_the_band_is_a_refusal_with_the_range() -> None:
    with pytest.raises(SiteError) as caught:
        plan_file(BEYOND)
    refused = {str(problem.path[1]): problem.what for problem in caught.value.problems}
    # `within` has the same load, and a target inside of the range.
    assert sorted(refused) == ["beyond", "crowded"]
    for model, unit in (("beyond", "ms"), ("crowded", "requests/s")):
        assert re.search(rf"; (they carry )?[\d,.]+ to [\d,.]+ {unit} over the band$", refused[model]), refused[model]


def test_what_is_derived_follows_the_computed_figures_alone() -> None:
    """A doubt moves no argument of the engine."""

    def engine(plan: SitePlan) -> tuple[object, ...]:
        settings = plan.models["keeps"].stable.settings
        return tuple(settings[key].value for key in ("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size"))

    calm = changed("keeps", load={"requests_per_s": 0.2})
    assert "keeps" not in doubted(calm)
    assert engine(calm) == engine(plan_file(WITHIN))


def test_the_blocks_first_line_has_the_verdict() -> None:
    first = [text.splitlines()[0] for text in plan_file(WITHIN).texts]
    assert [line.split(". ")[0] for line in first[:3]] == [
        "crowded: uncertain",
        "keeps: uncertain",
        "misses: uncertain",
    ]
    lines = plan_file(WITHIN).texts[2].splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["uncertain", "uncertain"]


def test_an_answer_that_its_time_may_end_is_a_warning() -> None:
    """No answer is faster than the steps of a replica that has nothing else to do."""
    key = ("models", "keeps", "request_timeout_s")
    long = {"answer_tokens": {"p50": 1000, "p95": 6000}, "requests_per_s": 0.1}
    values = copy.deepcopy(VALUES)
    values["models"]["keeps"] |= {"load": long, "slo": {"ttft_p95_ms": 60_000}}
    values["models"]["keeps"]["server"]["longest_stream_s"] = 60

    def asked(seconds: int) -> SitePlan:
        values["models"]["keeps"]["request_timeout_s"] = seconds
        return plan_values(values, "site.yaml")

    case = asked(3600).proofs["keeps"]
    alone = 6000 * case.case.decode_s(1)
    fast, slow = alone * case.ends.band.low, alone * case.ends.band.high
    for seconds in (fast * 1.05, alone, slow * 0.95):
        (warning,) = [warning for warning in asked(int(seconds)).warnings if warning.path == key]
        assert warning.what.startswith("may end answers that the declared load has: 6,000 tokens take ")
        enough = int(re.findall(r"write (\d+) or more", warning.fix)[0])
        assert key not in {warning.path for warning in asked(enough).warnings}
    assert key not in {warning.path for warning in asked(int(slow * 1.05)).warnings}
    with pytest.raises(SiteError, match="request_timeout_s: ends answers that the declared load has"):
        asked(int(fast * 0.95))
