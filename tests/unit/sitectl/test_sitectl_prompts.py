"""`prompts`: against a real directory and PostgreSQL, by a stand-in for kubectl and the API server behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, Directory
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.sitectl.sites_to_work_on import CommandResult

pytestmark = [pytest.mark.processes, pytest.mark.row("003.05")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedSite]:
    (tmp_path / "directory").mkdir()
    with directory_rig.running(tmp_path / "directory") as (_, directory):
        yield _site(tmp_path, directory, monkeypatch)


def _site(folder: Path, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> AskedSite:
    made = AskedSite(folder, "directory", directory.port, OPERATOR)
    monkeypatch.setenv("PATH", made.path)
    return made


def shown(site: AskedSite, command: list[str], status: Exit = Exit.OK) -> CommandResult:
    """A command of the page, for this site."""
    answer = site.run(*({"prod": "lab"}.get(word, word) for word in command[3:]))
    assert answer.status == status, answer.err
    return answer


def test_a_prompt_is_put_listed_compared_and_taken_back(site: AskedSite) -> None:
    put = documented.argv("python -m sitectl prompts put prod search greeting greeting.txt")
    file = site.project / "greeting.txt"
    file.write_text("Hello {{name}}.\nBe brief.\n")
    assert shown(site, put).out == "lab: greeting@1 is in use; variables: name\n"
    file.write_text("Hello {{name}} of {{team}}.\nBe brief.\n")
    assert shown(site, put).out == "lab: greeting@2 is in use; variables: name, team\n"
    changed = shown(site, documented.argv("python -m sitectl prompts diff prod search greeting 1 2")).out.splitlines()
    assert changed[:2] == ["--- greeting@1", "+++ greeting@2"]
    assert {"-Hello {{name}}.", "+Hello {{name}} of {{team}}.", " Be brief."} <= set(changed)
    show = documented.argv("python -m sitectl prompts show prod search greeting")
    assert shown(site, show).out == file.read_text()
    remove = documented.argv("python -m sitectl prompts remove prod search greeting 2")
    assert "version 2 of greeting is in use" in shown(site, remove, Exit.REFUSED).err
    assert shown(site, documented.argv("python -m sitectl prompts use prod search greeting 1")).out.endswith("in use\n")
    assert shown(site, show).out == "Hello {{name}}.\nBe brief.\n"
    listed = shown(site, documented.argv("python -m sitectl prompts list prod search")).out.splitlines()
    assert [line.split()[:3] for line in listed[1:-1]] == [["greeting", "1", "in"], ["greeting", "2", "-"]]
    shown(site, remove)
    assert shown(site, put).out.startswith("lab: greeting@3 is in use")
    assert "allowed: 1, 3" in shown(site, [*show, "--version", "2"], Exit.REFUSED).err
    acts = json.loads(site.run("audit", "lab", "--json").out)["acts"]
    assert [(act["action"], act["subject"], act["before"]) for act in acts] == [
        ("put prompt", "greeting", None),
        ("put prompt", "greeting", {"in_use": 1}),
        ("use prompt", "greeting", {"in_use": 2}),
        ("remove prompt", "greeting", {"version": 2}),
        ("put prompt", "greeting", {"in_use": 1}),
    ]


def test_what_is_no_prompt_is_refused(site: AskedSite) -> None:
    file = site.project / "p.txt"

    def refused(text: str, prompt: str = "p", tenant: str = "search") -> str:
        file.write_text(text)
        return shown(site, ["", "", "", "prompts", "put", "lab", tenant, prompt, "p.txt"], Exit.REFUSED).err

    assert "not a variable; got '{{ name }}'" in refused("Hello {{ name }}")
    assert "text: not a prompt" in refused(" ")
    assert "got 16385 bytes" in refused("x" * (16 * 1024 + 1))
    assert "id: not the id of a prompt" in refused("x", prompt="Greeting")
    assert "no tenant of the site's file, got 'finance'" in refused("x", tenant="finance")
    for number in range(16):
        file.write_text(f"{number:x}" * 16 * 1024)
        assert site.run("prompts", "put", "lab", "search", f"p{number}", "p.txt").status == Exit.OK
    assert "search has no room for another version; got 16 versions of 262144 bytes" in refused("x")
    assert "no such prompt" in site.run("prompts", "show", "lab", "sales", "p1").err
