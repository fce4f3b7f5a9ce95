"""`sitectl plan`: out of recorded previews, and out of an engine that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.site.loader import KEY
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import run, stand_in_pulumi

pytestmark = pytest.mark.row("opening 3")


def test_plan_out_of_a_saved_preview(checkout_folder: Path, tmp_path: Path) -> None:
    saved = kept.file("model-removed")
    result = run(checkout_folder, "plan", "lab", "--from", str(saved), "--markdown", str(tmp_path / "plan.md"))
    assert result.status == Exit.OK
    first = result.out.index("IRREVERSIBLE")
    assert first < result.out.index("REPLACED") < result.out.index("RESTARTS") < result.out.index("LIVE")
    assert re.search(r"GPUs +-2", result.out)
    assert "tenants touched            acme, globex" in result.out
    assert "**irreversible**" in (tmp_path / "plan.md").read_text()


@pytest.mark.parametrize(
    ("name", "longest", "rows"),
    [
        ("engine-image-bump", "at most 215 min", ["215 min", "22 min"]),
        ("replica-added", "at most 106 min", ["106 min"]),
        ("gpu-family-changed", "at most 22 min", ["22 min"]),
        ("replica-cut", "none", []),
    ],
)
def test_plan_and_comment_say_how_long_a_cold_start_takes(
    checkout_folder: Path, tmp_path: Path, name: str, longest: str, rows: list[str]
) -> None:
    """Minutes, of the longest model in the summary and of each model in its row. Simulated ones promise no more."""
    saved, comment = kept.file(name), tmp_path / "comment.md"
    words = ["plan", "lab", "--from", str(saved)]
    text = run(checkout_folder, *words, "--markdown", str(comment)).out
    assert re.findall(r"^ *cold start +(.+)$", text, re.MULTILINE) == [longest]
    assert re.findall(r"; cold start at most (\d+ min)", " ".join(text.split())) == rows
    table = [line.split(" | ") for line in comment.read_text().splitlines() if line.startswith("| ")]
    head, values = table[0], table[1]
    assert values[head.index("cold start")] == longest
    seconds = run(checkout_folder, *words, "--json").data["cold_start_s"]
    assert (f"at most {-(-seconds // 60)} min" if seconds else "none") == longest


@pytest.mark.parametrize(
    ("name", "refuse", "status"),
    [
        ("model-removed", "irreversible", Exit.REFUSED),
        ("replica-cut", "irreversible", Exit.OK),
        ("replica-cut", "restarts", Exit.REFUSED),
        ("gateway-replicas", "restarts", Exit.OK),
        ("no-change", "restarts", Exit.OK),
    ],
)
def test_plan_refuses_as_severe_or_worse(checkout_folder: Path, name: str, refuse: str, status: Exit) -> None:
    result = run(checkout_folder, "plan", "lab", "--from", str(kept.file(name)), "--refuse", refuse)
    assert result.status == status


def test_plan_says_what_the_engine_refused(checkout_folder: Path) -> None:
    result = run(checkout_folder, "plan", "lab", "--from", str(kept.file("model-swapped")))
    assert result.status == Exit.REFUSED
    assert "field can not be less than" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ({}, "-14,600 NOK"),
        # Each GPU's eighth of 10.2 kW.
        ({"power_kwh": 0.2}, "-16,089 NOK"),
        ({"power_kwh": "dear"}, "no price known"),
    ],
    ids=["alone", "with power", "no number"],
)
def test_plan_takes_the_price_from_the_site(
    checkout_folder: Path, tmp_path: Path, more: dict[str, object], shown: str
) -> None:
    preview = kept.read("replica-cut")
    site = json.loads(preview["config"][KEY])
    preview["config"][KEY] = json.dumps({**site, "prices": {"gpu_hour": 2.5, "currency": "NOK", **more}})
    (tmp_path / "p.json").write_text(json.dumps(preview))
    assert shown in run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "p.json")).out
    without = run(checkout_folder, "plan", "lab", "--from", str(kept.file("replica-cut"))).out
    assert "no price known: set prices.gpu_hour" in without


@pytest.mark.row("opening 1")
def test_plan_prints_a_block_a_model(checkout_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_pulumi(tmp_path, "no-change", monkeypatch)
    result = run(checkout_folder, "plan", "prod", "--save", str(tmp_path / "saved.json"))
    assert result.status == Exit.OK
    assert "qwen3-32b: holds. Qwen/Qwen3-32B-FP8 on h200-sxm" in result.out
    again = run(checkout_folder, "plan", "prod", "--from", str(tmp_path / "saved.json"))
    assert again.out == result.out


@pytest.mark.row("C.06")
def test_a_saved_preview_of_another_stack_is_refused(checkout_folder: Path) -> None:
    result = run(checkout_folder, "plan", "prod", "--from", str(kept.file("replica-cut")))
    assert (result.status, result.out) == (Exit.USAGE, "")
    assert "is a preview of another stack than prod\n  got: lab\n  allowed: prod\n  fix: " in result.err


def test_a_preview_without_resources_fits_every_site(checkout_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"steps": []}')
    assert run(checkout_folder, "plan", "prod", "--from", str(tmp_path / "p.json")).status == Exit.OK


@pytest.mark.parametrize("option", [["--refresh"], ["--config-file", "/nonexistent"], ["--since", "nope"]])
def test_what_a_saved_preview_would_ignore_is_refused(checkout_folder: Path, option: list[str]) -> None:
    result = run(checkout_folder, "plan", "lab", "--from", str(kept.file("replica-cut")), *option)
    assert result.status == Exit.USAGE
    assert f"error: {option[0]}: not with --from" in result.err and "fix: leave out --from" in result.err


@pytest.mark.parametrize("content", ["not json", "[]", "{}"])
def test_plan_of_something_else_is_refused(checkout_folder: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    result = run(checkout_folder, "plan", "lab", "--from", str(tmp_path / "x.json"))
    assert result.status in (Exit.USAGE, Exit.UNABLE)
    assert "fix: " in result.err


def test_plan_without_an_engine_says_how_to_get_one(
    checkout_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(checkout_folder, "plan", "lab")
    assert result.status == Exit.UNABLE
    assert "there is no pulumi on PATH" in result.err
    assert "fix: https://www.pulumi.com/docs/install/" in result.err
