"""`key signals`, `suspend`, `lift` and `suspended`: against a real ledger and a real directory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sitectl.shell import cli
from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.services import directory_rig, ledger_rig
from tests.unit.services.ledger_rig import line
from tests.unit.services.test_key_signals import MOST, look, network
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.sitectl.sites_to_work_on import CommandResult

pytestmark = [pytest.mark.processes, pytest.mark.row("004.04", "004.11")]


def shown(site: AskedSite, command: list[str]) -> CommandResult:
    """A command of a page, for this site."""
    return site.run(*({"prod": "lab"}.get(word, word) for word in command[3:]))


def test_signals_are_listed_with_their_figures_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ledger_rig.running(tmp_path, "--watch-keys", MOST.model_dump_json()) as (server, ledger):
        now = f"{time.time() - 5:.6f}"
        roams = [line(client="search.ci", started=now, network=network(number)) for number in range(4)]
        refused = [line(client="sales.app", started=now, status=404) for _ in range(5)]
        ledger.send(*roams, *refused)
        look(server)
        server.sql("UPDATE key_signals SET seen = seen - interval '1 hour' WHERE tenant = 'sales'")
        site = AskedSite(tmp_path, "ledger", ledger.port, ledger_rig.OPERATOR)
        monkeypatch.setenv("PATH", site.path)
        listed = shown(site, documented.argv("python -m sitectl key signals prod"))
        with_json = site.run("key", "signals", "lab", "--json")
    assert listed.status == Exit.OK, listed.err
    heads, first, second, *to_do, last = listed.out.splitlines()
    assert heads.split() == ["KEY", "SIGNAL", "NOW", "BEGAN", "LAST", "FIGURES"]
    assert first.split()[:3] == ["search.ci", "networks", "yes"]
    assert first.endswith("networks 4")
    assert second.split()[:3] == ["sales.app", "refusals", "no"]
    assert second.endswith("refused 5, requests 5, 404: 5")
    assert [row.partition(":")[0] for row in to_do] == ["networks", "refusals"]
    assert last == "lab: 2 signals, 1 of them now"
    assert json.loads(with_json.out)["thresholds"] == MOST.model_dump()


def test_a_site_that_watches_no_keys_names_the_setting_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger_rig.running(tmp_path) as (_, ledger):
        site = AskedSite(tmp_path, "ledger", ledger.port, ledger_rig.OPERATOR)
        monkeypatch.setenv("PATH", site.path)
        refused = site.run("key", "signals", "lab")
    assert refused.status == Exit.REFUSED
    assert "no key is watched" in refused.err
    assert "set usage.abuse in the site's file" in refused.err


def test_a_key_is_suspended_listed_and_lifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, with a reason that the audit keeps."""
    with directory_rig.running(tmp_path) as (_, directory):
        site = AskedSite(tmp_path, "directory", directory.port, directory_rig.OPERATOR)
        monkeypatch.setenv("PATH", site.path)
        site.run("key", "create", "lab", "search", "ci")
        made = shown(
            site, documented.argv('python -m sitectl key suspend prod search.ci "seen in a public repository"')
        )
        assert made.status == Exit.OK, made.err
        assert made.out.startswith("lab: search.ci has been suspended since 20")
        assert "the name is wrong" not in made.err
        wrong = site.run("key", "suspend", "lab", "search.cl", "a slip")
        assert "the directory has no key search.cl: it is one of the site's file, or the name is wrong" in wrong.err
        site.run("key", "lift", "lab", "search.cl")
        listed = site.run("key", "list", "lab").out.splitlines()
        assert listed[1].split()[1:3] == ["search.ci", "suspended"]
        assert listed[-1] == "lab: 1 key, 0 in use"
        held = shown(site, documented.argv("python -m sitectl key suspended prod")).out.splitlines()
        assert held[1].startswith("search.ci")
        assert held[1].endswith("seen in a public repository")
        assert held[-1] == "lab: 1 key suspended"
        lifted = shown(site, documented.argv("python -m sitectl key lift prod search.ci"))
        assert (lifted.status, lifted.out) == (Exit.OK, "lab: search.ci is not suspended any more\n")
        assert site.run("key", "lift", "lab", "search.ci").status == Exit.REFUSED
        assert site.run("key", "suspended", "lab").out == "lab: 0 keys suspended\n"
        assert "seen in a public repository" in site.run("audit", "lab").out


@pytest.mark.parametrize("client", ["search", ".ci", "search.", f"sk-{'a' * 10}-{'b' * 52}.x"])
def test_what_is_no_name_of_a_key_is_refused(client: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["key", "lift", "prod", client]) == Exit.USAGE
    answer = capsys.readouterr().err
    assert "this is no name of a key" in answer
    assert "bbbb" not in answer
