"""SLO headroom in a plan: the proof's percentiles against each target, before and after."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import previews
from sitectl.change.headroom import Headroom, between, least, of_records, plan_of
from sitectl.change.report import of_preview_document
from sitectl.output.markdown import document
from sitectl.output.words import targets, tightest
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts.image_lock import FILE
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from stacks.site.loader import KEY
from tests.unit.sitectl.sites_to_work_on import ROOT, git, make_checkout, run, stand_in_pulumi
from tests.unit.stacks.test_site_images import lock_of

pytestmark = pytest.mark.row("opening 3")


def words(rate: float, **slo: float) -> dict[str, Any]:
    """A site with one model on one H200 per replica, asked this many times per second."""
    model: dict[str, Any] = {"catalogue": "qwen3-32b-fp8", "server": {"replicas": 2}, "load": {"requests_per_s": rate}}
    if slo:
        model["slo"] = slo
    return {
        "name": "berlin",
        "cluster": {"kubeconfig": "k"},
        "gateway": {"port": 80},
        "models": {"chat": model},
        "tenants": {},
    }


def site(rate: float, **slo: float) -> SitePlan:
    return plan_values(words(rate, **slo), "berlin")


def test_more_load_takes_headroom_and_less_gives_it_back() -> None:
    """Both percentiles are those of the proof; a target that stays is compared with itself."""
    (ttft, itl) = between(site(0.5, ttft_p95_ms=4000, itl_p95_ms=80), site(1.5, ttft_p95_ms=4000, itl_p95_ms=80))
    assert [(row.model, row.figure) for row in (ttft, itl)] == [("chat", "TTFT p95"), ("chat", "ITL p95")]
    for row in (ttft, itl):
        assert row.before is not None and row.after is not None and row.change is not None
        assert 0 < row.after < row.before < 100
        assert row.change == row.after - row.before < 0
        assert row.after_ms and row.after_target_ms
        assert row.after == pytest.approx(100 * (1 - row.after_ms / row.after_target_ms), abs=0.06)
    back = between(site(1.5, itl_p95_ms=80), site(0.5, itl_p95_ms=80))
    assert [(row.figure, (row.change or 0) > 0) for row in back] == [("ITL p95", True)]


def test_a_site_with_locks_is_compared_as_any(tmp_path: Path) -> None:
    """What was committed is read without the files beside it."""
    text = (ROOT / "Pulumi.prod.yaml").read_text()
    locked = text.replace("    cluster:\n", "    images: {locked: true}\n    cluster:\n", 1)
    assert plan_of(locked, "Pulumi.prod.yaml", tmp_path) is None
    (tmp_path / FILE).write_text(lock_of(plan_file(ROOT / "Pulumi.prod.yaml")).text())
    plan = plan_of(locked, "Pulumi.prod.yaml", tmp_path)
    assert plan is not None and plan.image_lock is not None


def test_every_percentile_and_the_mean_gap_of_requests_have_headroom() -> None:
    rows = between(None, site(1, ttft_p50_ms=2000, itl_p99_ms=2000, tpot_p95_ms=200))
    assert [row.figure for row in rows] == ["TTFT p50", "ITL p99", "TPOT p95"]
    assert all(row.after is not None and 0 < row.after < 100 for row in rows)


def test_a_tighter_target_takes_headroom_without_any_change_of_speed() -> None:
    (row,) = between(site(1, ttft_p95_ms=6000), site(1, ttft_p95_ms=4000))
    assert row.before_ms == row.after_ms
    assert (row.before_target_ms, row.after_target_ms) == (6000, 4000)
    assert (row.change or 0) < 0


def test_new_models_and_targets_that_come_and_go() -> None:
    (new,) = between(None, site(1, ttft_p95_ms=4000))
    assert (new.before, new.change) == (None, None)
    assert new.after is not None
    (gone,) = between(site(1, ttft_p95_ms=4000), site(1))
    assert (gone.after, gone.after_target_ms) == (None, None)
    assert gone.before is not None
    assert between(site(1), site(2)) == [], "nobody asked for anything"
    ((_, latency, left),) = targets([gone])
    assert latency.endswith(f"of 4,000 -> {gone.after_ms:,.0f} ms, no target")
    assert left == "unknown"


def row(after_ms: float | None, before_ms: float | None = 50, model: str = "chat") -> Headroom:
    return Headroom(
        model=model,
        figure="TTFT p95",
        before_ms=before_ms,
        before_target_ms=None if before_ms is None else 100,
        after_ms=after_ms,
        after_target_ms=100,
    )


def test_words_of_the_tightest() -> None:
    assert least([row(None)]) is None
    assert tightest([]) == "no model declares a target: set its slo"
    assert tightest([row(None)]) == "not known: a model with a target declares no load"
    assert tightest([row(30), row(80, model="docs")]) == "20 % (-30 points), docs TTFT p95"
    assert tightest([row(50)]) == "50 % (unchanged), chat TTFT p95"
    assert tightest([row(50, None)]) == "50 %, chat TTFT p95"
    assert targets([row(80)]) == [("chat TTFT p95", "50 ms of 100 -> 80 ms of 100", "20 % (-30 points)")]


@pytest.mark.parametrize("records", [7, [7], [{}], [{**row(1).record(), "after_ms": "soon"}], {"a": 1}])
def test_a_saved_preview_of_another_form_is_refused(records: Any) -> None:
    with pytest.raises(SitectlError, match="has not the form"):
        of_records(records)


def test_a_records_way_through_a_saved_preview() -> None:
    assert of_records(json.loads(json.dumps([row(30).record()]))) == [row(30)]
    assert of_records(None) == []


@pytest.fixture
def berlin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout under git whose site has more load than its last commit; `pulumi` prints a recording."""
    folder = make_checkout(tmp_path / "own", sites=())
    file = folder / "Pulumi.berlin.yaml"
    git(folder, "init", "-q", "-b", "main")
    for rate in (0.5, 1.5):
        if file.exists():
            git(folder, "add", "Pulumi.berlin.yaml")
            git(folder, "commit", "-qm", "less load")
        file.write_text(yaml.safe_dump({"config": {KEY: words(rate, ttft_p95_ms=4000)}}))
    stand_in_pulumi(tmp_path, "replica-added", monkeypatch)
    return folder


def test_a_plan_says_headroom_against_the_last_commit(berlin: Path, tmp_path: Path) -> None:
    """In the table, in a block of its own, as data, as Markdown, and out of a saved preview."""
    saved, posted = tmp_path / "saved.json", tmp_path / "plan.md"
    result = run(berlin, "plan", "berlin", "--save", str(saved), "--markdown", str(posted))
    assert result.status == Exit.OK, result.err
    (reported,) = run(berlin, "plan", "berlin", "--from", str(saved), "--json").data["headroom"]
    assert reported["before_percent"] > reported["after_percent"] > 0 > reported["change"]
    left = f"{reported['after_percent']:.3g} % ({reported['change']:+.3g} points)"
    assert f"SLO headroom, least        {left}, chat TTFT p95" in result.out
    assert "SLO HEADROOM: what the proof leaves to each target, estimated" in result.out
    latency = f"{reported['before_ms']:,.0f} ms of 4,000 -> {reported['after_ms']:,.0f} ms of 4,000"
    assert f"  chat TTFT p95  {latency}  left {left}" in result.out
    assert "SLO headroom, least" in posted.read_text()
    assert "chat TTFT p95" in posted.read_text()
    assert run(berlin, "plan", "berlin", "--from", str(saved)).out == result.out


def test_a_revision_that_is_not_there_is_refused_and_no_git_is_fine(berlin: Path, tmp_path: Path) -> None:
    result = run(berlin, "plan", "berlin", "--since", "nowhere")
    assert (result.status, "got: nowhere" in result.err) == (Exit.USAGE, True)
    (berlin / ".git").rename(tmp_path / "git")
    (reported,) = run(berlin, "plan", "berlin", "--json").data["headroom"]
    assert (reported["before_ms"], reported["change"]) == (None, None)


def test_the_comment_of_ci_says_headroom_against_the_target_branch(berlin: Path, tmp_path: Path) -> None:
    """And nothing of a name in a saved preview becomes Markdown."""
    out = tmp_path / "out"
    assert previews.main(["--project", str(berlin), "--out", str(out), "--base", "HEAD"], {}) == Exit.OK
    saved = json.loads((out / "berlin.json").read_text())
    assert saved["headroom"][0]["change"] < 0
    saved["headroom"][0]["model"] = "@all [x](http://y)"
    text = document([of_preview_document("berlin", saved)])
    assert "SLO headroom, least" in text
    assert "[x](" not in text and "@all" not in text
    assert previews.main(["--project", str(berlin), "--out", str(out), "--base", "nowhere"], {}) == Exit.USAGE
