"""What a shell is offered after `sitectl bundle`, whose first word may be left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from sitectl.shell.cli import COMMAND_LINE
from sitectl.shell.command import COMPLETE

pytestmark = pytest.mark.row("opening 14")


@pytest.mark.parametrize(
    ("words", "incomplete", "offered", "not_offered"),
    [
        (["bundle"], "", {"fetch", "lock", "pack", "verify", "push", "berlin"}, set()),
        (["bundle"], "p", {"pack", "push"}, {"lock", "berlin"}),
        (["bundle"], "--ch", {"--charts"}, {"pack"}),
        (["bundle", "--charts"], "", {"berlin"}, {"pack"}),
        (["bundle", "pack"], "--o", {"--out"}, {"--charts"}),
    ],
)
def test_commands_sites_and_options_of_fetch_are_offered(
    words: list[str],
    incomplete: str,
    offered: set[str],
    not_offered: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "Pulumi.berlin.yaml").touch()
    monkeypatch.chdir(tmp_path)
    items = ShellComplete(COMMAND_LINE, {}, "sitectl", COMPLETE).get_completions(words, incomplete)
    values = [item.value for item in items]
    assert offered <= {*values}
    assert not not_offered & {*values}
    assert len(values) == len({*values})
