"""What all command lines share: a wrong one is an error in our form, and only what is called is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from floor.command_line import Command, Context, Group, invoke, run
from tests.command_lines import help_text, refusal

pytestmark = pytest.mark.row("C.05")

MODULE = """\
import click
from floor.command_line import Command, Several

@click.command(cls=Command)
@click.argument("site", metavar="SITE")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="data or text")
@click.option("--count", type=int)
def command(site, form, count):
    return 3 if site == "bad" else 0

@click.command(cls=Command)
@click.option("--sizes", type=int, cls=Several)
@click.option("--name")
@click.option("--unit", type=click.Choice(["ms", "s"]), required=True)
@click.argument("places", nargs=-1)
def measure(sizes, name, unit, places):
    print(sizes, name, places)
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    for name in ("check", "broken"):
        (tmp_path / "made" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "made" / f"{name}.py").write_text(MODULE if name == "check" else "raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("made", "made.check"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    meanings = {"check": "look at a site", "broken": f"end, {'by a-long-name ' * 9}"}
    meanings["measure"] = "measure it"
    top = Group("program", package="made", meanings=meanings, places={"measure": "made.check:measure"})

    @top.group()
    def models() -> None:
        """Models that exist."""

    @models.command()
    @click.argument("name")
    def show(name: str) -> None:
        """Show one."""

    return top


@pytest.mark.parametrize(
    ("words", "error", "fix"),
    [
        ("", "missing command", "program --help"),
        ("chekc", "no command 'chekc'; did you mean 'check'?", "program --help"),
        ("zzz", "no command 'zzz'; allowed: check, broken, measure, models", "program --help"),
        ("--formt", "program has no option --formt", "program --help"),
        ("check", "missing argument 'SITE'", "program check --help"),
        ("measure", "missing option '--unit'; allowed: ms, s", "program measure --help"),
        ("check a b", "got unexpected extra argument (b)", "program check --help"),
        ("check a --formt", "check has no option --formt; did you mean '--format'?", "program check --help"),
        (
            "check a --format jsn",
            "--format: 'jsn' is not one of its values; did you mean 'json'? allowed: text, json",
            "program check --help",
        ),
        ("measure --unit zz", "--unit: 'zz' is not one of its values; allowed: ms, s", "program measure --help"),
        ("check a --format", "option '--format' requires an argument", "--format VALUE"),
        ("check a --count two", "--count: 'two' is not a valid integer", "program check --help"),
        ("models shw x", "no command 'shw'; did you mean 'show'?", "program models --help"),
        ("models show --x", "models show has no option --x", "program models show --help"),
    ],
)
def test_a_wrong_command_line_is_one_of_our_errors(
    group: Group, words: str, error: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group, words.split(), name="program") == 2
    assert capsys.readouterr().err == f"error: {error}\n  fix: {fix}\n"
    assert refusal(group, words.split()) == error


def test_a_command_gives_the_exit_status(group: Group) -> None:
    assert [invoke(group, words.split(), name="program") for words in ("check good", "check bad", "--help")] == [
        0,
        3,
        0,
    ]


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("--sizes 10 100", "(10, 100) None ()"),
        ("here there --sizes 10 100 --name x", "(10, 100) x ('here', 'there')"),
        ("--sizes 10 --name x there", "(10,) x ('there',)"),
        ("", "() None ()"),
    ],
)
def test_an_option_of_several_takes_words_up_to_the_next_option(
    group: Group, words: str, taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(group, ["measure", "--unit", "s", *words.split()], name="program") == 0
    assert capsys.readouterr().out == f"{taken}\n"
    assert refusal(group, ["measure", "--sizes"]) == "option '--sizes' requires an argument"
    assert refusal(group, ["measure", "--sizes", "1", "x"]) == "--sizes: 'x' is not a valid integer"


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("above", ["", "check", "models", "models show"])
def test_help_has_two_names(group: Group, above: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(group, [*above.split(), option], name="program") == 0
    assert capsys.readouterr().out.startswith(f"Usage: program {above}".strip())


def test_the_help_of_a_group_imports_no_command(group: Group) -> None:
    shown = help_text(group)
    assert "made.check" not in sys.modules
    assert "check    look at a site" in shown
    assert "models   Models that exist." in shown
    assert shown.count("a-long-name") == 9, "no name is cut behind a dash"


def test_completion_of_a_name_imports_no_command(group: Group) -> None:
    offered = {item.value: item.help for item in group.shell_complete(Context(group), "")}
    assert "made.check" not in sys.modules
    assert offered == group.descriptions()
    assert [item.value for item in group.shell_complete(Context(group), "--h")] == ["--help"]


def test_a_command_has_the_meaning_that_its_group_names(group: Group) -> None:
    assert "Look at a site." in help_text(group, "check")
    assert isinstance(group.get_command(click.Context(group), "check"), Command)
