"""`make check` leaves out no test that a change can touch, and runs everything where it does not know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import changed
from tests.changed import selection

ROOT = Path(__file__).parents[2]
OURS = {
    str(path.relative_to(ROOT)): path.read_text()
    for top in ROOT.iterdir()
    if not top.name.startswith(".")
    for path in (top.rglob("*.py") if top.is_dir() else [top] if top.suffix == ".py" else [])
}
SMALL = {
    "product/__init__.py": "",
    "product/low.py": "X = 1",
    "product/high.py": "from product.low import X",
    "product/cli/__init__.py": "",
    "product/cli/__main__.py": "import product.high",
    "product/group.py": "PLACES = {'made': ('product.made:command', 'make it')}",
    "product/made.py": "",
    "other/__init__.py": "",
    "other/alone.py": "",
    "tests/support.py": "import other.alone",
    "tests/unit/conftest.py": "",
    "tests/unit/product/conftest.py": "from tests import support",
    "tests/unit/product/test_low.py": "from product.low import X",
    "tests/unit/product/test_high.py": "def test() -> None:\n    from product import high",
    "tests/unit/product/test_cli.py": "import sys\nARGV = [sys.executable, '-m', 'product.cli', '--help']",
    "tests/unit/product/test_group.py": "from product import group",
    "tests/unit/other/test_alone.py": "import importlib\nimportlib.import_module('other.alone')",
    "tests/unit/docs/test_docs.py": "",
    "tests/lab/site/test_site.py": "import product.high",
    "tests/lab/test_single.py": "import other.alone",
}


def names(*files: str) -> set[str]:
    """The chosen modules of the small project, without those that always run."""
    return {Path(test).name for test in selection(files, SMALL).unit} - {"test_docs.py"}


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("product/low.py", {"test_low.py", "test_high.py", "test_cli.py"}),
        ("product/high.py", {"test_high.py", "test_cli.py"}),
        ("product/cli/__main__.py", {"test_cli.py"}),
        ("product/made.py", {"test_group.py"}),
        ("product/__init__.py", {"test_low.py", "test_high.py", "test_cli.py", "test_group.py"}),
        ("other/alone.py", {"test_low.py", "test_high.py", "test_cli.py", "test_group.py", "test_alone.py"}),
        ("tests/unit/conftest.py", {"test_low.py", "test_high.py", "test_cli.py", "test_group.py", "test_alone.py"}),
        ("tests/unit/product/test_low.py", {"test_low.py"}),
        ("product/cli/help.txt", {"test_cli.py"}),
        ("product/data/new/table.csv", {"test_low.py", "test_high.py", "test_cli.py", "test_group.py"}),
        ("README.md", set()),
    ],
)
def test_a_changed_file_chooses_the_tests_that_read_it(file: str, tests: set[str]) -> None:
    chosen = selection([file], SMALL)
    assert (names(file), chosen.because) == (tests, "")
    assert "tests/unit/docs/test_docs.py" in chosen.unit


@pytest.mark.parametrize(
    "file", ["pyproject.toml", "Pulumi.prod.yaml", "product/gone.py", "new-folder/x", "tests/gone.py"]
)
def test_what_nobody_knows_chooses_everything(file: str) -> None:
    chosen = selection(["README.md", file], SMALL)
    assert chosen.because == file
    assert set(chosen.unit) == {test for test in SMALL if test.startswith("tests/unit/") and "/test_" in test}
    assert chosen.lab == ("tests/lab/site", "tests/lab/test_single.py")


def test_lab_tests_are_named_by_folder() -> None:
    assert selection(["product/low.py"], SMALL).lab == ("tests/lab/site",)
    assert selection(["other/alone.py"], SMALL).lab == ("tests/lab/test_single.py",)
    assert selection([], SMALL).unit == selection([], SMALL).lab == ()


@pytest.mark.parametrize(
    ("file", "chosen", "left_out"),
    [
        ("stacks/plan/settings/start.py", "proof/test_proof_settings.py", "runner/test_runner_env.py"),
        ("components/tenants/access.py", "spine/test_builders.py", "proof/test_proof_settings.py"),
        # Through the program, which a process of its own runs.
        ("components/tenants/access.py", "sitectl/test_sitectl_diff.py", "machines/test_machines_applying.py"),
        ("stacks/facts/versions.yaml", "stacks/test_versions.py", "runner/test_runner_env.py"),
        ("stacks/facts/catalogue/qwen3-8b.yaml", "proof/test_proof_catalogue.py", "runner/test_runner_env.py"),
        ("lab/plugins/kubernetes/helm.py", "plugin_kubernetes/test_kubernetes_releases.py", "cluster/test_cli.py"),
        ("tests/unit/golden/model-vllm.yaml", "spine/test_builders.py", "runner/test_runner_env.py"),
        ("tests/fixtures/previews/replica-cut.json", "sitectl/test_sitectl_plan.py", "cluster/test_cli.py"),
        ("talos/cli/leaving.py", "talos_api/test_cli_rolling.py", "runner/test_runner_env.py"),
        ("docs/ci.md", "ci/test_ci_documented.py", "proof/test_proof_settings.py"),
    ],
)
def test_of_the_project_itself(file: str, chosen: str, left_out: str) -> None:
    chosen, left_out = f"tests/unit/{chosen}", f"tests/unit/{left_out}"
    assert {chosen, left_out} < OURS.keys(), "this test names tests that are gone"
    selected = selection([file], OURS)
    assert not selected.because
    assert chosen in selected.unit
    assert left_out not in selected.unit


def test_paths_in_the_tables_are_there() -> None:
    for file in (*changed.STARTS, *(started for files in changed.STARTS.values() for started in files)):
        assert (ROOT / file).is_file(), file
    folders = (
        *changed.READERS,
        *changed.ALWAYS,
        *(reader for readers in changed.READERS.values() for reader in readers),
    )
    for folder in folders:
        assert (ROOT / folder).exists(), folder


def test_an_unknown_revision_is_an_error_with_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"fix: make check BASE=<revision>"):
        changed.main(["no-such-revision", "--list"])


def test_the_list_names_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert changed.main(["HEAD", "--list"]) == 0
    assert "changed files: " in capsys.readouterr().out


def test_without_a_revision_it_is_since_the_branch_left_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    for branch, file in (("main", "first.py"), ("mine", "second.py"), ("mine", "third.py")):
        git("checkout", "-B", branch)
        (tmp_path / file).write_text("")
        git("add", file)
        git("commit", "-m", file)
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    assert changed.changed_files(None) == ["second.py", "third.py"]
    git("branch", "-D", "main")
    assert changed.changed_files(None) == []
    assert "no main is here, so commits do not count" in capsys.readouterr().err
    # As in a shallow clone.
    git("checkout", "--orphan", "main")
    git("commit", "--allow-empty", "-m", "another")
    git("checkout", "--force", "mine")
    with pytest.raises(SystemExit, match="no commit in common, as in a shallow clone"):
        changed.changed_files(None)
