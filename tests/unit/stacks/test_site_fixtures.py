"""Every kind of mistake and every form of a right site, as files.

`tests/fixtures/sites/invalid/*.yaml` begin with the whole error that they must give, as a comment. In it `{a.b}` means
the words that the model allows at that key, and `{pin}` for a version and its line, so that a new key, model or
version does not change every text.
`tests/fixtures/sites/engine/*.json` hold what Pulumi's engine 3.246 hands to the program for the valid files, which
test_engine_config.py sees by running it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from floor.problems import SiteError
from floor.reading.document import read
from floor.reading.scalars import meaning, trap
from floor.secret_texts import looks_secret
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.program import engine_config
from stacks.site import loader
from stacks.site.reading import validation
from stacks.site.reading.fields import place

pytestmark = pytest.mark.row("opening 13")

SITES = Path(__file__).parents[2] / "fixtures" / "sites"
INVALID = sorted((SITES / "invalid").glob("*.yaml"))
VALID = sorted((SITES / "valid").glob("*.yaml"))
ENGINE = SITES / "engine"


def passed_on(path: Path) -> bool:
    """Whether the engine hands over what the file says: it refuses some files, and has its own mind on some words."""
    document = read(path.read_text())
    section = document.section("config", loader.KEY)
    return not document.problems and section.values is not None


SEEN_BY_ENGINE = [path for path in INVALID if passed_on(path)]


def named(path: Path) -> str:
    return path.stem


def expected(text: str) -> list[str]:
    """Lines of the error in the file's first comment."""
    head = re.match(r"(#.*\n)+", text)
    lines = [line.removeprefix("#").removeprefix(" ") for line in head[0].splitlines()] if head else []

    def words(match: re.Match[str]) -> str:
        below = place([] if match[1] == "the site" else match[1].split("."))
        assert below, match[0]
        return ", ".join(below.words())

    return [re.sub(r"(?<= )\{([a-z_.<> -]+)\}", words, line) if "allowed:" in line else line for line in lines]


def refusal(path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteError:
    monkeypatch.chdir(path.parent)
    with pytest.raises(SiteError) as caught:
        plan_file(Path(path.name))
    return caught.value


def of_engine(stack: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SitePlan:
    """The site of a program that the engine has started with this configuration."""
    monkeypatch.chdir(folder)
    # As the engine's language host hands it to the program.
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps({loader.KEY: text.strip()}))
    return engine_config.plan_stack(stack)


def test_there_are_fixtures_enough() -> None:
    assert len(INVALID) >= 60
    assert len(VALID) >= 12
    assert {path.stem for path in ENGINE.glob("*.json")} == {*map(named, VALID), "words"}


@pytest.mark.parametrize("path", INVALID, ids=named)
def test_an_invalid_site_gives_the_error_that_it_begins_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()
    wanted = expected(text)
    assert re.fullmatch(rf"{re.escape(path.name)}: \d+ errors? in the site", wanted[0] if wanted else "")
    error = refusal(path, monkeypatch)
    message = re.sub(r"[0-9.]+ \(stacks/facts/versions\.yaml:\d+\)", "{pin}", str(error))
    assert message.splitlines() == wanted
    assert len(error.problems) == int(re.findall(r": (\d+) error", wanted[0])[0])
    assert all(problem.fix for problem in error.problems)


@pytest.mark.parametrize("path", INVALID, ids=named)
def test_no_error_shows_a_secret(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not looks_secret(str(refusal(path, monkeypatch)))
    assert "hunter2" not in str(refusal(path, monkeypatch))


@pytest.mark.parametrize("path", SEEN_BY_ENGINE, ids=named)
def test_the_engines_configuration_gives_the_same_problems(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    section = read(path.read_text()).section("config", loader.KEY)
    offline = refusal(path, monkeypatch)
    with pytest.raises(SiteError) as caught:
        of_engine("x", json.dumps(section.values), tmp_path, monkeypatch)

    def reported(error: SiteError) -> list[tuple[str, str, str, str]]:
        # `what` may name lines, which are known offline alone.
        return sorted((problem.key, problem.got, problem.allowed, problem.fix) for problem in error.problems)

    assert reported(caught.value) == reported(offline)


@pytest.mark.parametrize("path", VALID, ids=named)
def test_a_valid_site_loads_offline_as_out_of_the_engine(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offline = plan_file(path)
    engine = of_engine("x", (ENGINE / f"{path.stem}.json").read_text(), tmp_path, monkeypatch)
    assert engine.site == offline.site
    assert engine.site.model_dump_json() == offline.site.model_dump_json()
    assert {key: origin.layer for key, origin in engine.origins.items()} == {
        key: origin.layer for key, origin in offline.origins.items()
    }


def test_words_mean_what_they_mean_to_the_engine() -> None:
    words = [line.strip().removeprefix("- ") for line in (SITES / "words.yaml").read_text().splitlines()[3:]]
    theirs = json.loads((ENGINE / "words.json").read_text())
    assert len(words) > 100
    ours = [meaning(word) for word in words]
    differ = [
        word
        for word, ours_value, other in zip(words, ours, theirs, strict=True)
        if (ours_value, isinstance(ours_value, bool)) != (other, isinstance(other, bool))
    ]
    # A point in time is refused by both ways into the program, so its exact wording does not matter.
    assert differ == ["2026-11-21T10:00:00Z"]
    assert trap(differ[0])


def test_a_word_that_readers_differ_on_is_refused_by_the_program_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (SITES / "valid" / "one-gpu.yaml").read_text()
    for word, value in (("0755", 493), ("0x50", 80)):
        (tmp_path / "Pulumi.x.yaml").write_text(text.replace("port: 80", f"port: {word}"))
        values = read(text).section("config", loader.KEY).values
        values["gateway"]["port"] = value
        with pytest.raises(SiteError, match=rf"Pulumi\.x\.yaml:6:gateway\.port: {word} "):
            of_engine("x", json.dumps(values), tmp_path, monkeypatch)


@pytest.mark.parametrize(("text", "got"), [("rack", "'rack'"), ("5", "5"), ("[1]", "a list")])
def test_a_word_in_the_place_of_the_site_is_no_crash(
    text: str, got: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(SiteError, match=rf"config\.{loader.KEY} is not a section of keys; got {re.escape(got)}\n"):
        of_engine("x", text, tmp_path, monkeypatch)


def test_lines_of_the_stack_file_are_named_where_the_engine_read_that_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (SITES / "valid" / "one-gpu.yaml").read_text().replace("port: 80", "port: 80000")
    (tmp_path / "Pulumi.x.yaml").write_text(text)
    values = read(text).section("config", loader.KEY).values
    with pytest.raises(SiteError, match=r"Pulumi\.x\.yaml:6:gateway\.port: out of range"):
        of_engine("x", json.dumps(values), tmp_path, monkeypatch)
    values["name"] = "other"
    with pytest.raises(SiteError, match=r"Pulumi\.x\.yaml:gateway\.port: out of range"):
        of_engine("x", json.dumps(values), tmp_path, monkeypatch)


def test_a_word_in_quotes_is_never_a_number() -> None:
    site = plan_file(SITES / "valid" / "names-in-quotes.yaml").site
    assert set(site.models) == {"32", "1e3", "2026-11-21"}
    assert set(site.tenants["no"].keys) == {"yes", "0815"}


def test_plain_values_are_those_of_json() -> None:
    assert validation.plain({1: (2.0, 2.5, True, None)}) == {"1": [2, 2.5, True, None]}
    assert isinstance(validation.plain(2.0), int)
