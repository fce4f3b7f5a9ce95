"""`audit`, and the check of a running site: against a real directory and PostgreSQL, by a stand-in for kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_values
from tests import documented
from tests.live import test_live_gateway as live
from tests.live.running import RunningSite
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, Directory, created
from tests.unit.services.postgres_rig import Server
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.stacks.site_examples import prod

pytestmark = [pytest.mark.processes, pytest.mark.row("000.05")]


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as both:
        yield both


@pytest.fixture
def site(tmp_path: Path, both: tuple[Server, Directory], monkeypatch: pytest.MonkeyPatch) -> AskedSite:
    made = AskedSite(tmp_path, "directory", both[1].port, OPERATOR)
    monkeypatch.setenv("PATH", made.path)
    return made


def test_acts_are_listed_and_their_chain_is_checked(site: AskedSite, both: tuple[Server, Directory]) -> None:
    server, directory = both
    with directory.client() as client:
        key = created(client, models=["qwen3-32b"])["id"]
    site.run("key", "revoke", "lab", key)
    words = documented.argv("python -m sitectl audit prod --since 2026-11-01")[3:]
    listed = site.run(*({"prod": "lab"}.get(word, word) for word in words))
    assert listed.status == Exit.OK, listed.err
    _, made, revoked, last = listed.out.splitlines()
    assert "  a-test  " in made and f'-        create  {key}  search  models: ["qwen3-32b"], name: "ci"' in made
    assert f"sitectl  revoke  {key}  search  revoked: 1" in revoked
    head = last.removeprefix("lab: 2 acts, each row fits, head ")
    assert site.run("audit", "lab", "--since", "2999-01-01").out.splitlines()[-1].startswith("lab: 0 acts, each row")
    assert json.loads(site.run("audit", "lab", "--json", "--check", head).out)["head"] == head
    # As who has the password can.
    cut = "ALTER TABLE audit DISABLE TRIGGER append_only; DELETE FROM audit WHERE number = 2"
    server.sql(cut)
    assert site.run("audit", "lab").status == Exit.OK
    answer = site.run("audit", "lab", "--check", head)
    assert (answer.status, "row 2 is missing: there were 2 rows, and 1 are left" in answer.err) == (Exit.REFUSED, True)
    server.sql("UPDATE audit SET actor = 'another'")
    answer = site.run("audit", "lab", "--json")
    assert (answer.status, json.loads(answer.out)["head"]) == (Exit.REFUSED, None)
    assert "row 1 does not fit" in json.loads(answer.out)["wrong"]


def test_a_head_has_one_form(site: AskedSite) -> None:
    wrong = site.run("audit", "lab", "--check", "2:abc")
    assert (wrong.status, "allowed: COUNT:HASH" in wrong.err) == (Exit.USAGE, True)


@pytest.mark.usefixtures("site")
def test_the_evidence_of_a_running_site_has_the_head(both: tuple[Server, Directory]) -> None:
    server, directory = both
    callers = {"decided_by": "gatekeeper", "database_secret": "directory-database"}
    plan = plan_values(prod() | {"callers": callers}, "Pulumi.prod.yaml")
    running = RunningSite(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={"clusters": []})
    with directory.client() as client:
        created(client)
        head = client.get("/v1/audit").json()["head"]
    seen: list[str] = []
    live.test_the_audit_of_keys_is_whole(running, seen.append)
    assert seen == [f"head 1:{head['hash']}"]
    server.sql("ALTER TABLE audit DISABLE TRIGGER append_only; UPDATE audit SET at = 1")
    with pytest.raises(AssertionError, match="row 1 does not fit"):
        live.test_the_audit_of_keys_is_whole(running, seen.append)
