"""A wrong command line is reported as every other error; `docs` accepts the names that people and links use."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from sitectl.shell.cli import main
from sitectl.shell.errors import Exit
from tests.unit.sitectl.sites_to_work_on import run

pytestmark = pytest.mark.row("C.05")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["validate", "--jsno"], ["error: validate has no option --jsno; did you mean '--json'?", "validate --help"]),
        (["versions", "now"], ["error: got unexpected extra argument (now)", "versions --help"]),
        (["init", "oslo", "--replicas", "two"], ["error: --replicas: 'two' is not a valid integer"]),
        (["init", "oslo", "--gpu-hour", "3,5"], ["error: --gpu-hour: '3,5' is not a valid float", "init --help"]),
        (
            ["validate", "--format", "jso"],
            [
                "error: --format: 'jso' is not one of its values\n",
                "  allowed: text, sarif, github\n  fix: ",
                "validate --help",
            ],
        ),
        (
            ["completion", "bsh"],
            ["error: SHELL: 'bsh' is not one of its values; did you mean 'bash'?\n  allowed: bash, zsh, fish"],
        ),
        (["validate", "prdo"], ["did you mean 'prod'?", "got: prdo", "allowed: lab, prod"]),
        (["init", "oslo", "--gpu"], ["error: option '--gpu' requires an argument", "fix: --gpu VALUE"]),
        (["catalogue", "lst"], ["error: no command 'lst'; did you mean 'list'?", "catalogue --help"]),
        (["catalogue", "show", "x", "--debgu"], ["catalogue show has no option --debgu; did you mean '--debug'?"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_wrong_command_line_is_reported_in_the_form_of_every_error(
    words: list[str], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(words)
    answer = capsys.readouterr()
    assert (status, answer.out) == (Exit.USAGE, "")
    assert [part for part in says if part not in answer.err] == [], answer.err


@pytest.mark.parametrize(
    "words", [["--json", "catalogue", "list"], ["catalogue", "--json", "list"], ["catalogue", "list", "--json"]]
)
def test_options_of_all_commands_are_accepted_at_any_place(words: list[str]) -> None:
    out = io.StringIO()
    assert main(words, out=out) == Exit.OK
    assert json.loads(out.getvalue())


def test_docs_lists_pages_and_prints_one(checkout_folder: Path) -> None:
    assert "add-a-model" in run(checkout_folder, "docs").out
    assert run(checkout_folder, "docs", "add-a-model").out.startswith("# Add a model")
    assert "did you mean 'add-a-model'?" in run(checkout_folder, "docs", "add-a-modell").err


def test_docs_lists_the_index_first_and_the_decisions_last(checkout_folder: Path) -> None:
    """A newcomer saw 29 decisions before anything to do, and no index at all."""
    lines = run(checkout_folder, "docs").out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "docs",
        "docs/how-to",
        "docs/runbooks",
        "docs/adr",
        "one of them: python -m sitectl docs NAME",
    ]
    assert lines[1].split() == ["README", "Documentation"]
    assert set(run(checkout_folder, "docs", "--json").data) >= {"README", "add-a-gpu", "runbooks", "adr", "0023-tiers"}


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("README", "# Documentation"),
        ("runbooks", "# Runbooks"),
        ("runbooks/README.md", "# Runbooks"),
        ("docs/ci.md", "# Sites in CI"),
        ("how-to/add-a-model.md#how-far-the-figures-can-be-trusted", "# Add a model"),
        ("../adr/0023-tiers.md", "# 23. A tier"),
        ("0023", "# 23. A tier"),
    ],
)
def test_docs_takes_a_page_as_links_and_people_name_it(checkout_folder: Path, page: str, title: str) -> None:
    assert run(checkout_folder, "docs", page).out.startswith(title)


def test_docs_with_a_beginning_of_several_pages_names_them(checkout_folder: Path) -> None:
    result = run(checkout_folder, "docs", "add-a")
    assert result.status == Exit.USAGE
    assert "error: several pages begin with 'add-a'" in result.err
    assert "allowed: add-a-component, add-a-gpu, add-a-model, add-a-site, add-a-tenant, add-an-adapter" in result.err
