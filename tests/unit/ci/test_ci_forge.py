"""One comment for all sites, edited in place; one issue a site: against fakes of the forges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sitectl.forge.github import GitHub, headers
from sitectl.forge.keeping import drift_mark, keep_comment
from sitectl.forge.model import Client
from sitectl.output.markdown import MARK
from sitectl.shell.cli import main
from sitectl.shell.errors import Exit, SitectlError
from tests.unit.ci.fake_forge import GITHUB_BOT, GITLAB_BOT, TOKEN, FakeForge, fake_forge
from tests.unit.sitectl.sites_to_work_on import recording

pytestmark = pytest.mark.row("opening 3", "C.06")


@dataclass
class Ground:
    """A fake, the options that select it, and a folder of previews."""

    kind: str
    forge: FakeForge
    previews: Path
    bot: str

    def put(self, site: str, name: str) -> None:
        (self.previews / f"{site}.json").write_text(recording(name, site))

    def run(self, command: str, *words: str) -> int:
        repository = "owner/site" if self.kind == "github" else "group/sub/site"
        where = ["--forge", self.kind, "--api", self.forge.url, "--repository", repository]
        return main([command, str(self.previews), *where, "--quiet", *words])

    def comment(self) -> int:
        return self.run("comment", "--number", "7")


@pytest.fixture(params=["github", "gitlab"])
def ground(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setenv("GITHUB_TOKEN" if request.param == "github" else "GITLAB_TOKEN", TOKEN)
    with fake_forge(request.param) as forge:
        yield Ground(request.param, forge, tmp_path, GITHUB_BOT if request.param == "github" else GITLAB_BOT)
        assert forge.refusals == [], "the fake understood every request"


def test_the_first_time_it_adds_one_comment_for_all_sites(ground: Ground) -> None:
    ground.put("berlin", "replica-cut")
    ground.put("oslo", "model-removed")
    assert ground.comment() == Exit.OK
    (comment,) = ground.forge.comments
    assert comment["body"].startswith(MARK)
    assert comment["body"].index("`oslo`") < comment["body"].index("`berlin`"), "the worst site is first"


def test_later_it_edits_the_same_comment(ground: Ground) -> None:
    ground.put("berlin", "replica-cut")
    ground.comment()
    ground.put("berlin", "no-change")
    ground.comment()
    (comment,) = ground.forge.comments
    assert "no change" in comment["body"]
    assert "restarts" not in comment["body"].partition("|---|")[2]


def test_the_same_again_writes_nothing(ground: Ground) -> None:
    ground.put("berlin", "replica-cut")
    ground.comment()
    before = len(ground.forge.writes())
    ground.comment()
    assert len(ground.forge.writes()) == before


def test_a_comment_of_somebody_else_with_our_mark_is_left_alone(ground: Ground) -> None:
    """Otherwise a planted mark would make the bot write into a stranger's comment."""
    ground.forge.comment("mallory", f"{MARK}\nLGTM")
    ground.put("berlin", "replica-cut")
    assert ground.comment() == Exit.OK
    assert [comment["author"] for comment in ground.forge.comments] == ["mallory", ground.bot]
    assert ground.forge.comments[0]["body"] == f"{MARK}\nLGTM"


def test_an_own_comment_about_something_else_is_left_alone(ground: Ground) -> None:
    ground.forge.comment(ground.bot, f"coverage is fine\n{MARK}")
    ground.put("berlin", "replica-cut")
    ground.comment()
    assert len(ground.forge.comments) == 2


def test_the_comment_is_found_behind_many_others(ground: Ground) -> None:
    for number in range(250):
        ground.forge.comment("somebody", f"remark {number}")
    ground.put("berlin", "replica-cut")
    ground.comment()
    ground.put("berlin", "replica-added")
    ground.comment()
    assert len(ground.forge.comments) == 251


def test_a_preview_that_is_none_is_seen_in_the_comment(ground: Ground) -> None:
    (ground.previews / "berlin.json").write_text("<html>")
    ground.put("oslo", "no-change")
    assert ground.comment() == Exit.OK
    body = ground.forge.comments[0]["body"]
    assert "| `berlin` | **preview failed** | ? | ? | - | ? | ? | ? |" in body
    assert "**The preview failed:**" in body
    assert "cannot be read" in body
    assert "Resources: not known." in body, "it was reported as no change"


@pytest.mark.row("opening 13")
def test_drift_opens_updates_and_closes_one_issue_a_site(ground: Ground) -> None:
    """One drift report a site."""
    ground.put("berlin", "drift-replicas")
    ground.put("oslo", "no-change")
    assert ground.run("drift") == Exit.OK
    (issue,) = ground.forge.issues
    assert issue["body"].startswith(drift_mark("berlin"))
    assert "3 " in issue["body"] and "replicas" in issue["body"]

    assert ground.run("drift") == Exit.OK
    assert len(ground.forge.issues) == 1
    unchanged = issue["body"]

    ground.put("berlin", "tenant-removed")
    ground.put("oslo", "drift-replicas")
    ground.run("drift")
    assert [issue["body"].partition("\n")[0] for issue in ground.forge.issues] == [
        drift_mark("berlin"),
        drift_mark("oslo"),
    ]
    assert ground.forge.issues[0]["body"] != unchanged

    ground.put("berlin", "no-change")
    ground.run("drift")
    assert [issue["open"] for issue in ground.forge.issues] == [False, True]
    assert len(ground.forge.closing_words) == 1


def test_an_issue_of_somebody_else_is_not_closed(ground: Ground) -> None:
    ground.forge.issue("mallory", f"{drift_mark('berlin')}\nmine")
    ground.put("berlin", "no-change")
    ground.run("drift")
    assert ground.forge.issues[0]["open"]
    assert ground.forge.writes() == []


def test_a_site_that_could_not_be_looked_at_is_an_issue_and_a_failure(ground: Ground) -> None:
    ground.put("berlin", "model-swapped")
    assert ground.run("drift") == Exit.REFUSED
    assert "whether it has drifted is not known" in ground.forge.issues[0]["body"]


def test_dry_run_asks_nobody(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    ground.put("berlin", "replica-cut")
    assert ground.run("comment", "--number", "7", "--dry-run") == Exit.OK
    assert ground.run("drift", "--dry-run") == Exit.OK
    assert MARK in capsys.readouterr().out
    assert ground.forge.requests == []


@pytest.mark.slow
def test_the_whole_is_kept_beside_a_cut_comment(ground: Ground, tmp_path: Path) -> None:
    for number in range(40):
        ground.put(f"site-{number}", "provider-identity-changed")
    whole = tmp_path / "whole.md"
    ground.run("comment", "--number", "7", "--whole", str(whole), "--rest", "the artifact whole-comment")
    body = ground.forge.comments[0]["body"]
    assert len(body) < 65_000
    assert "Cut here" in body and "the artifact whole\\-comment" in body
    assert len(whole.read_text()) > 100_000


def test_a_wrong_token_says_so_and_is_not_shown(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.setenv(variable, "another-token")
    ground.put("berlin", "replica-cut")
    assert ground.comment() == Exit.UNABLE
    errors = capsys.readouterr().err
    assert "the forge answered 401" in errors and "fix: the token is missing, wrong or expired" in errors
    assert "another-token" not in errors


def test_without_a_token_nobody_is_asked(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    ground.put("berlin", "replica-cut")
    assert ground.comment() == Exit.UNABLE
    assert "_TOKEN is not set" in capsys.readouterr().err
    assert ground.forge.requests == []


def test_a_busy_forge_is_asked_again_after_the_time_it_says() -> None:
    waits: list[float] = []
    with fake_forge("github") as forge:
        forge.busy = 2
        client = Client(forge.url, headers(TOKEN), sleep=waits.append)
        assert keep_comment(GitHub(client, "owner/site"), 7, f"{MARK}\nhello", MARK) == "added"
    assert waits == [3.0, 3.0]


def test_a_write_that_may_have_been_done_is_not_repeated() -> None:
    """A second comment would be worse than an error."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        return httpx.Response(502)

    client = Client("https://forge.example.org", {}, transport=httpx.MockTransport(answer), sleep=lambda _: None)
    with pytest.raises(SitectlError, match="502"):
        client.call("POST", "/x", json={})
    assert asked == ["POST"]
    with pytest.raises(SitectlError, match="502"):
        client.call("GET", "/x")
    assert asked[1:] == ["GET"] * 4


def test_a_token_goes_over_https_alone() -> None:
    with pytest.raises(SitectlError, match="https alone"):
        Client("http://forge.example.org", {})


@pytest.mark.parametrize("repository", ["", "owner", "../../user", "owner/site?x=1", "owner/site/../.."])
def test_a_strange_repository_is_refused(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    (tmp_path / "berlin.json").write_text(recording("no-change", "berlin"))
    words = ["comment", str(tmp_path), "--forge", "github", "--number", "7", "--repository", repository]
    assert main(words) == Exit.USAGE
    assert "which repository?" in capsys.readouterr().err
