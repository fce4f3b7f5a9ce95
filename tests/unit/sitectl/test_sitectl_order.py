"""`order`: from the asking to the branch with the change, against a real directory, git and fakes of forges."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.forge import gitlab
from sitectl.forge.model import Client, MergeRequest
from sitectl.offline.ordered_file import with_order
from sitectl.offline.proposal import propose
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.orderable import offer, ordered, takes
from stacks.plan.site_plan import plan_file
from stacks.site.loader import KEY
from tests import documented
from tests.unit.ci.fake_forge import TOKEN, FakeForge, fake_forge
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, Directory
from tests.unit.services.postgres_rig import Server, setting
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.sitectl.sites_to_work_on import CommandResult, git
from tests.unit.stacks.site_examples import prod, text_without_accounts

pytestmark = [pytest.mark.row("000.01"), pytest.mark.row("000.37", "opening 11"), pytest.mark.row("003.01")]

MODEL, TOO_LARGE, SERVED = "llama-3-3", "glm-large", "glm-5-1"
PORTAL = """\
    callers: {decided_by: gatekeeper, database_secret: directory-database}
    portal:
      hostname: portal.site.example
      certificate_secret: portal-tls
      issuer: https://login.site.example
      client_secret: portal-login

    # What people may order.
    orderable:
      llama-3-3:
        # For long documents.
        catalogue: llama-3.3-70b-fp8
        load: {requests_per_s: 0.5}
      glm-large:
        catalogue: glm-5.1-fp8
        server: {replicas: 3}

    tenants:
      # A team."""

HEAD = "config:\n  inference-platform:site:\n    name: x\n"
FORMS = {
    "sections with comments": """    models:
      a:
        catalogue: a  # why

    # What can be ordered.
    orderable:
      m:
        # Of this one.
        catalogue: m
        server:
          extra_args:
            - --seed=7

      n: {catalogue: n}
    tenants: {t: {models: [a, b]}}  # both
""",
    "the only one": """    orderable:
          m:
              catalogue: m
    models:
        a:
            catalogue: a
    tenants:
      t:
        models:
        - a  # one
        keys: {}
""",
    "one line": """    models: {}
    orderable: {m: {catalogue: m}, n: {catalogue: n}}
    tenants: {t: {models: [z,]}}
""",
    "one line, the only one": """    tenants: {t: {models: [z]}}
    orderable: {m: {catalogue: m}}
    models:
      a: {catalogue: a}""",
    "served to others": """    models:
      m: {catalogue: a}
    tenants: {t: {models: [z]}}
""",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_order_is_the_least_change_of_a_file(form: str) -> None:
    before = HEAD + FORMS[form]
    after = with_order(before, "m", "t")
    assert yaml.safe_load(after)["config"][KEY] == ordered(yaml.safe_load(before)["config"][KEY], "m", "t")
    kept = [line for line in before.splitlines() if "#" in line]
    assert [line.strip() for line in kept if line.strip() not in map(str.strip, after.splitlines())] in (
        [],
        # Whose list is longer.
        ["tenants: {t: {models: [a, b]}}  # both"],
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as both:
        yield both


class Site(AskedSite):
    """The annotated site with a portal, in a repository of its own."""

    def order(self, *words: str) -> CommandResult:
        return self.run("order", *words)

    @property
    def file(self) -> Path:
        return self.project / "Pulumi.prod.yaml"

    def orders(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.order("list", "prod", "--all", "--json").out)["orders"]
        return listed

    def place(self, model: str = MODEL, tenant: str = "search") -> str:
        made = self.order("place", "prod", tenant, model, "--json")
        assert made.status == Exit.OK, made.err
        return str(json.loads(made.out)["order"]["id"])

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> None:
        git(self.project, "add", "-A")
        git(self.project, "commit", "-qm", "site")


@pytest.fixture
def site(tmp_path: Path, directory: tuple[Server, Directory], monkeypatch: pytest.MonkeyPatch) -> Site:
    server, service = directory
    server.sql("DELETE FROM model_orders")
    tenants = {name: {"models": spec["models"]} for name, spec in prod()["tenants"].items()}
    setting(service.folder, "--tenants-file").write_text(json.dumps({"tenants": tenants}))
    made = Site(tmp_path, "directory", service.port, OPERATOR)
    monkeypatch.setenv("PATH", made.path)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "test")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "test@example.org")
    made.file.write_text(text_without_accounts().replace("    tenants:\n      # A team.", PORTAL))
    git(made.project, "init", "-q", "-b", "main")
    made.commit()
    return made


@pytest.mark.processes
def test_an_order_becomes_a_branch_whose_site_is_as_the_portal_showed(site: Site) -> None:
    """By the commands of the page."""
    shown = offer(plan_file(site.file), MODEL)
    assert shown.revision and shown.ready
    placed = site.run(*documented.argv("python -m sitectl order place prod search llama-3-3 --note agents")[3:])
    assert placed.status == Exit.OK, placed.err
    assert f"takes {takes(shown.revision)}; once its change is applied, it answers {shown.ready.text()}" in placed.out
    (order,) = site.orders()
    assert (order["state"], order["note"]) == ("asked", "agents")
    listed = site.run(*documented.argv("python -m sitectl order list prod")[3:])
    assert (order["id"] in listed.out, "prod: 1 order" in listed.out) == (True, True)
    command = documented.argv("python -m sitectl order propose prod 3f2a9c01bd")[3:]
    proposed = site.run(*command[:-1], order["id"])
    assert proposed.status == Exit.OK, proposed.err
    branch = f"order/{order['id']}"
    assert f"next: git push origin {branch}" in proposed.out
    assert (site.orders()[0]["state"], site.orders()[0]["why"]) == ("proposed", f"branch {branch}")
    # Nothing of the user's is touched.
    assert (site.git("status", "--porcelain"), site.git("branch", "--show-current")) == ("", "main")
    assert len(site.git("worktree", "list").splitlines()) == 1
    message = site.git("log", "-1", "--format=%B", branch)
    assert message.startswith(f"prod: serve {MODEL} for search\n")
    assert f"It takes {takes(shown.revision)}. From `pulumi up` on it answers {shown.ready.text()}." in message
    for line in shown.revision.text().splitlines():
        assert f"    {line}" in message
    # A forge reads commands out of it.
    assert "agents" not in message
    changed = site.git("diff", "--stat", "main", branch)
    assert "Pulumi.prod.yaml" in changed and "1 file changed" in changed
    site.git("checkout", "-q", branch)
    assert "        # For long documents.\n        catalogue: llama-3.3-70b-fp8\n" in site.file.read_text()
    served = plan_file(site.file).models[MODEL].stable
    assert served.proof.figures() == shown.revision.proof.figures()
    assert served.settings == shown.revision.settings


@pytest.mark.processes
def test_what_the_site_could_not_work_with_is_not_ordered_or_proposed(
    site: Site, directory: tuple[Server, Directory]
) -> None:
    refused = site.order("place", "prod", "search", TOO_LARGE)
    assert (refused.status, "1 of 3 replicas find no room" in refused.err) == (Exit.REFUSED, True)
    assert site.order("place", "prod", "search", "lama-3-3").status == Exit.USAGE
    # The site may have changed since the order was placed.
    with directory[1].client() as client:
        body = {"tenant": "search", "model": TOO_LARGE}
        order_id = client.post("/v1/orders", json=body).json()["id"]
    other = site.place()
    done = site.order("propose", "prod")
    assert done.status == Exit.REFUSED
    assert f"{order_id}: {TOO_LARGE} does not fit: " in done.out
    assert {order["id"]: order["state"] for order in site.orders()} == {order_id: "asked", other: "proposed"}
    assert site.git("branch", "--format=%(refname:short)").split() == ["main", f"order/{other}"]
    reason = documented.argv("python -m sitectl order decline prod 3f2a9c01bd 'no GPU is free'")[-1]
    assert site.order("decline", "prod", order_id, reason).status == Exit.OK
    assert site.order("propose", "prod", order_id).status == Exit.USAGE
    assert {order["state"] for order in site.orders()} == {"declined", "proposed"}


@pytest.mark.processes
def test_a_model_of_others_is_a_change_of_one_list(site: Site) -> None:
    placed = site.order("place", "prod", "archive", SERVED)
    assert (placed.status, "takes no more GPUs" in placed.out) == (Exit.OK, True)
    assert site.order("propose", "prod").status == Exit.OK
    branch = f"order/{site.orders()[0]['id']}"
    assert "it takes no more GPUs" in site.git("log", "-1", "--format=%B", branch)
    lines = site.git("diff", "--unified=0", "main", branch).splitlines()
    assert [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        "-        models: [qwen3-32b]",
        "+        models: [qwen3-32b, glm-5-1]",
    ]


@pytest.mark.processes
def test_a_proposal_names_what_is_still_to_do(site: Site) -> None:
    site.file.write_text(site.file.read_text().replace("    charts:\n", "    images: {locked: true}\n    charts:\n", 1))
    site.commit()
    order = {
        "id": "3f2a9c01bd",
        "tenant": "search",
        "model": MODEL,
        "note": "[skip ci] closes #1",
        "asked_by": "a `b`",
        "asked": 0,
    }
    body = propose(site.project, "prod", order).body
    assert body.startswith("Order 3f2a9c01bd, asked by `a 'b'` on 1970-01-01.\n\n    (skip ci) closes  1\n\nIt takes ")
    assert "\nBefore it is merged: sitectl bundle services, then sitectl bundle lock prod" in body


@pytest.mark.processes
def test_an_anchor_is_for_a_person_to_change(site: Site) -> None:
    text = site.file.read_text().replace("models: [glm-5-1, qwen3-32b]", "models: &all [glm-5-1, qwen3-32b]")
    site.file.write_text(text.replace("        models: [qwen3-32b]\n", "        models: *all\n"))
    site.commit()
    done = site.order("propose", "prod", site.place())
    assert done.status == Exit.REFUSED
    assert "by hand" in done.err
    assert site.git("branch", "--format=%(refname:short)").split() == ["main"]


def at_a_forge(site: Site, kind: str, forge: FakeForge) -> CommandResult:
    words = documented.argv("python -m sitectl order propose prod --forge github --into main")[3:]
    where = ["--forge", kind, "--repository", "owner/site" if kind == "github" else "group/sub/site"]
    return site.run(*words, *where, "--api", forge.url)


def with_a_remote(site: Site, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    remote = folder / "remote.git"
    site.git("init", "-q", "--bare", str(remote))
    site.git("remote", "add", "origin", str(remote))
    monkeypatch.setenv(f"{kind.upper()}_TOKEN", TOKEN)
    site.git("push", "-q", "origin", "main")
    return remote


@pytest.mark.processes
@pytest.mark.parametrize(("kind", "checks"), [("github", True), ("github", False), ("gitlab", True)])
def test_the_policy_has_an_order_merged_once_it_is_checked(
    site: Site, kind: str, checks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing checks it, the request stays open for a person: no order is merged unseen."""
    with_a_remote(site, kind, tmp_path, monkeypatch)
    policy = "    order_policy: {most_gpus: 4, keep_free_gpus: 2}\n    tenants:\n      # A team."
    site.file.write_text(site.file.read_text().replace("    tenants:\n      # A team.", policy))
    site.commit()
    site.git("push", "-q", "origin", "main")
    order_id = site.place()
    with fake_forge(kind) as forge:
        forge.checks = checks
        done = at_a_forge(site, kind, forge)
        assert done.status == Exit.OK, done.err
        assert forge.refusals == []
        (change,) = forge.changes
    assert forge.merging == ([site.git("rev-parse", f"order/{order_id}")] if checks else [])
    assert "`order_policy` approves it: it is merged once checked." in change["body"]
    assert ("it is merged once it is checked" in done.out) is checks
    assert ("next: a person merges it: " in done.out) is not checks
    assert site.orders()[0]["state"] == "proposed"


@pytest.mark.processes
def test_what_the_policy_has_not_judged_is_for_a_person(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second order, while the GPUs of the first are in no file; and an order on top of commits of this checkout."""
    with_a_remote(site, "github", tmp_path, monkeypatch)
    policy = "    order_policy: {most_gpus: 64}\n    tenants:\n      # A team."
    site.file.write_text(site.file.read_text().replace("    tenants:\n      # A team.", policy))
    site.commit()
    with fake_forge("github") as forge:
        site.place()
        done = at_a_forge(site, "github", forge)
        assert "a person merges it: the last commit here is not that of origin's main" in done.out, done.err
        site.git("push", "-q", "origin", "main")
        site.place(MODEL, "archive")
        done = at_a_forge(site, "github", forge)
        assert f"a person merges it: {MODEL} for search is proposed too, and its GPUs are not counted" in done.out
        # It takes none.
        third = site.place(SERVED, "archive")
        assert "it is merged once it is checked" in at_a_forge(site, "github", forge).out
    assert forge.merging == [site.git("rev-parse", f"order/{third}")]
    assert f"A person merges it: {MODEL} for search" in forge.changes[1]["body"]


@pytest.mark.parametrize("checks", [True, False])
def test_gitlab_is_asked_once_the_pipeline_of_a_request_has_begun(checks: bool) -> None:
    """Before, it merges what no job has seen."""
    waits = list[float]()
    with fake_forge("gitlab") as forge:
        forge.checks, forge.pipeline_after = checks, 3
        client = Client(forge.url, gitlab.headers(TOKEN), sleep=waits.append)
        asked = gitlab.GitLab(client, "group/sub/site")
        request = MergeRequest(address="https://forge.example", number=7)
        with contextlib.nullcontext() if checks else pytest.raises(SitectlError, match="has begun no pipeline for it"):
            asked.merge_once_checked(request, "a" * 40)
    assert (forge.merging, forge.refusals) == (["a" * 40] if checks else [], [])
    assert waits == [5.0] * (3 if checks else 12)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_an_order_becomes_a_request_to_merge_at_a_forge(
    site: Site, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = with_a_remote(site, kind, tmp_path, monkeypatch)
    order_id = site.place()
    with fake_forge(kind) as forge:
        done = at_a_forge(site, kind, forge)
        assert done.status == Exit.OK, done.err
        assert forge.refusals == []
        (change,) = forge.changes
    branch = f"order/{order_id}"
    assert (change["title"], change["head"], change["base"]) == (f"prod: serve {MODEL} for search", branch, "main")
    # But for who asked.
    of_commit = site.git("log", "-1", "--format=%b", branch)
    assert of_commit.splitlines()[2:] == change["body"].strip().splitlines()[2:]
    pushed = site.git("--git-dir", str(remote), "rev-parse", branch)
    assert pushed == site.git("rev-parse", branch)
    (order,) = site.orders()
    assert order["state"] == "proposed"
    assert order["why"].startswith("https://forge.example/")
