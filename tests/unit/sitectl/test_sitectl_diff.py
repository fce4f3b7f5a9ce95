"""Two revisions or folders compared without a cluster: objects, fields as text, and the effect."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sitectl.change.changes import Change
from sitectl.live import engine
from sitectl.output.words import field_words
from sitectl.shell.errors import Exit
from stacks.facts.hardware import GPUS
from tests.unit.sitectl.sites_to_work_on import PROGRAM, git, make_checkout, run

pytestmark = [pytest.mark.processes, pytest.mark.row("C.06")]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the platform: `before`, and a commit with fewer replicas and a new site."""
    folder = make_checkout(tmp_path_factory.mktemp("history"), sites=("prod",), copied=PROGRAM)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "before")
    git(folder, "tag", "before")
    file = folder / "Pulumi.prod.yaml"
    file.write_text(file.read_text().replace("          replicas: 4\n", "          replicas: 3\n"))
    shutil.copy(file, folder / "Pulumi.oslo.yaml")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "after")
    return folder


def test_two_revisions_say_what_changes_on_each_site(history: Path, tmp_path: Path) -> None:
    def there() -> list[Path]:
        return sorted(path for path in history.rglob("*") if not {".git", "__pycache__"} & set(path.parts))

    before = there()
    result = run(history, "diff", "before", "HEAD", "--markdown", str(tmp_path / "diff.md"))
    assert result.status == Exit.OK, result.err
    assert "changed   Deployment inference-models/qwen3-32b" in result.out
    assert "spec.replicas: 4 -> 3" in result.out
    assert "4 -> 3 replicas" in result.out
    assert "Site oslo (a new site)" in result.out
    assert "added     Deployment inference-models/qwen3-32b" in result.out
    assert "| `prod` |" in (tmp_path / "diff.md").read_text()
    assert there() == before, "the checkout is left as it was"
    assert not (history / ".git" / "worktrees").exists()


@pytest.mark.row("001.34")
def test_price_and_targets_are_those_of_the_sites_own_files(history: Path, tmp_path: Path) -> None:
    """The reference site has both; `diff` reported that no price is known and no target declared."""
    result = run(history, "diff", "before", "HEAD", "--site", "prod", "--markdown", str(tmp_path / "diff.md"))
    data = run(history, "diff", "before", "HEAD", "--site", "prod", "--json").data["prod"]
    power = GPUS["h200-sxm"].billed_power_w / 1000 * 0.25
    assert (data["cost_per_month"], data["currency"]) == (round(-1 * (3.5 + power) * 730, 2), "EUR")
    assert "-2,788 EUR" in result.out
    assert "no price known" not in result.out
    (moved,) = [row for row in data["headroom"] if (row["model"], row["figure"]) == ("qwen3-32b", "TTFT p95")]
    assert (moved["before_target_ms"], moved["after_target_ms"]) == (2000, 2000)
    assert moved["after_ms"] >= moved["before_ms"] > 0
    assert "SLO headroom, least" in result.out
    assert "declares a target" not in result.out
    posted = (tmp_path / "diff.md").read_text()
    assert "-2,788 EUR" in posted
    assert "TTFT p95 | " in posted


def test_a_target_alone_is_a_change(history: Path) -> None:
    file = history / "Pulumi.prod.yaml"
    text = file.read_text()
    file.write_text(text.replace("slo: {ttft_p95_ms: 2000, itl_p95_ms: 60}", "slo: {ttft_p95_ms: 900, itl_p95_ms: 60}"))
    try:
        result = run(history, "diff", "HEAD", "--site", "prod")
    finally:
        file.write_text(text)
    assert "of 2,000 ->" in result.out
    assert "of 900" in result.out


def test_the_files_as_they_are_are_the_default(history: Path) -> None:
    result = run(history, "diff", "HEAD")
    assert (result.status, result.out) == (Exit.OK, "Site oslo: no change\nSite prod: no change\n")


def test_a_key_of_the_machines_alone_is_a_change(history: Path) -> None:
    """Their configs are secrets, so that no resource differs."""
    file = history / "Pulumi.prod.yaml"
    text = file.read_text()
    file.write_text(text.replace("mtu: 9000", "mtu: 9100"))
    try:
        result = run(history, "diff", "HEAD", "--site", "prod")
        data = run(history, "diff", "HEAD", "--site", "prod", "--json").data["prod"]
    finally:
        file.write_text(text)
    assert "bonds.bond0.mtu" in result.out and "9000 -> 9100" in result.out
    assert data["objects"] == []
    (bond,) = [change for change in data["machines"] if change["key"] == "bonds.bond0.mtu"]
    assert (bond["machines"][0], bond["before"], bond["after"], bond["effect"]) == ("cp-1", "9000", "9100", "live")


def test_one_site_alone_as_data(history: Path) -> None:
    data = run(history, "diff", "before", "--site", "prod", "--json").data
    assert list(data) == ["prod"]
    assert data["prod"]["gpus"] == -1
    (changed,) = [
        changed_object
        for changed_object in data["prod"]["objects"]
        if changed_object["object"].startswith("Deployment inference-models/")
    ]
    assert (changed["op"], changed["fields"]) == ("update", ["spec.replicas: 4 -> 3"])


@pytest.mark.row("001.30")
def test_a_cold_start_is_expected_by_the_plan_of_the_later_side(history: Path) -> None:
    """One replica more, of whose block the cold start is 177 s."""
    data = run(history, "diff", "HEAD", "before", "--site", "prod", "--json").data["prod"]
    assert (data["gpus"], data["expected_start_s"]) == (1, 177)


@pytest.mark.parametrize("revision", ["nowhere", "--output=x", "HEAD:stacks"])
def test_what_is_no_revision_is_refused(history: Path, revision: str) -> None:
    """A branch's name comes from a pull request and must not become an option of git."""
    result = run(history, "diff", "--", revision)
    assert result.status == Exit.USAGE
    assert "revision" in result.err
    assert f"got: {revision}" in result.err
    assert not (history / "x").exists()


@pytest.mark.parametrize("command", [["diff", "HEAD"], ["plan", "lab", "--since", "HEAD"]])
def test_a_copy_without_git_says_to_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    folder = make_checkout(tmp_path / "copy", sites=("lab",))
    monkeypatch.setattr(engine, "preview", lambda *_, **__: {"steps": []})
    result = run(folder, *command)
    assert result.status == Exit.UNABLE
    assert f"git reads no revision of {folder}: fatal: not a git repository" in result.err
    assert "fix: clone the repository" in result.err


def test_a_checkout_of_another_owner_says_how_to_trust_it(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git refuses it in a container, by the variable of git's own tests."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    result = run(history, "diff", "HEAD")
    assert result.status == Exit.UNABLE
    assert "detected dubious ownership" in result.err
    assert f"git config --global --add safe.directory {history}" in result.err


def test_a_link_out_of_the_checkout_is_refused(tmp_path: Path) -> None:
    """The author of a revision must not make us read or write elsewhere."""
    folder = make_checkout(tmp_path / "linked", sites=("prod",), copied=PROGRAM)
    (folder / "stacks" / "outside").symlink_to("/etc")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "link")
    result = run(folder, "diff", "HEAD")
    assert result.status == Exit.REFUSED
    assert "is a link to an absolute path" in result.err
    assert "Traceback" not in result.err


def test_a_revision_with_a_broken_site_says_so(history: Path) -> None:
    file = history / "Pulumi.oslo.yaml"
    text = file.read_text()
    file.write_text(text.replace("      port: 443\n", "      port: lots\n"))
    try:
        result = run(history, "diff", "HEAD")
    finally:
        file.write_text(text)
    assert result.status == Exit.REFUSED
    assert "the files as they are cannot be rendered" in result.err
    assert "gateway.port" in result.err


def test_a_rendered_folder_and_something_else_are_not_compared(history: Path, tmp_path: Path) -> None:
    assert run(history, "render", "prod", "--out", str(tmp_path)).status == Exit.OK
    for folder in (tmp_path, tmp_path / "prod"):
        for words in ([str(folder)], ["HEAD", str(folder)], [str(folder), "HEAD"]):
            result = run(history, "diff", *words)
            assert (result.status, "a rendered folder is compared with a rendered folder alone" in result.err) == (
                Exit.USAGE,
                True,
            ), result
            assert "fix: render the other side too" in result.err


def test_two_folders(history: Path, tmp_path: Path) -> None:
    run(history, "render", "prod", "--out", str(tmp_path / "a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    changed = tmp_path / "b" / "prod" / "inference-models" / "deployment.apps_glm-5-1.yaml"
    changed.write_text(changed.read_text().replace("replicas: 2", "replicas: 1"))
    (tmp_path / "b" / "prod" / "inference-models" / "service_glm-5-1-epp.yaml").unlink()
    result = run(history, "diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert "spec.replicas: 2 -> 1" in result.out
    assert "removed   Service inference-models/glm-5-1-epp" in result.out
    assert "cost per month             not known: a rendered folder holds no prices" in result.out
    (tmp_path / "empty").mkdir()
    result = run(history, "diff", str(tmp_path / "a"), str(tmp_path / "empty"))
    assert result.status == Exit.USAGE
    assert "holds no rendered site" in result.err


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 2, ["p: 1 -> 2"]),
        (None, "a", ["p: set to a"]),
        ("a", None, ["p: no longer set (was a)"]),
        (["--a=1", "--b"], ["--a=2", "--b"], ["p: without --a=1", "p: with --a=2"]),
        (["a", "b"], ["b", "a"], ["p: in another order"]),
        ("x: 1\ny: 2", "x: 1\ny: 3", ["p: - y: 2", "p: + y: 3"]),
    ],
)
def test_a_field_in_words(before: object, after: object, words: list[str]) -> None:
    assert field_words("p", before, after) == words


def listed(*names: str, limit: int = 1) -> dict[str, object]:
    return {"spec": {"rules": [{"name": name, "values": [name], "limit": limit} for name in names]}}


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (listed("chat", "code"), listed("big", "chat", "code"), ["spec.rules[0]"]),
        (listed("big", "chat", "code"), listed("chat", "code"), ["spec.rules[0]"]),
        (listed("chat", "code"), listed("chat", "dev", "code", "end"), ["spec.rules[1]", "spec.rules[3]"]),
        (listed("chat"), listed("chat", limit=2), ["spec.rules[0].limit"]),
        (
            listed("chat", "code"),
            listed("big", "chat", "code", limit=2),
            [
                *("spec.rules[0].limit", "spec.rules[0].name", "spec.rules[0].values"),
                *("spec.rules[1].limit", "spec.rules[1].name", "spec.rules[1].values", "spec.rules[2]"),
            ],
        ),
    ],
)
def test_an_item_of_a_list_that_comes_or_goes_is_one_change(before: object, after: object, paths: list[str]) -> None:
    """A model whose name comes first moved every item behind it, and each was reported as changed."""
    change = Change(op="update", type="kubernetes:v1:Thing", name="a", before=before, after=after)  # type: ignore[arg-type]
    assert [field.path for field in change.fields()] == paths
