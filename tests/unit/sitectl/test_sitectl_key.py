"""`key`: against a real directory, by a stand-in for kubectl and the API server behind it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.specs.access import KeySpec
from components.tenants.callers import digest_of
from sitectl.shell import cli
from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import OPERATOR, READER, Directory
from tests.unit.services.postgres_rig import setting
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.sitectl.sites_to_work_on import CommandResult, run
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as (_, directory):
        yield directory


class Site(AskedSite):
    """One with a directory."""

    def key(self, *words: str) -> CommandResult:
        return self.run("key", *words)

    def shown(self, command: list[str], key_id: str = "") -> CommandResult:
        """A command of a page, for this site and key."""
        return self.key(*({"prod": "lab", "q7xk2mzp4d": key_id}.get(word, word) for word in command[4:]))


@pytest.fixture
def site(tmp_path: Path, directory: Directory, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path, "directory", directory.port, OPERATOR)
    monkeypatch.setenv("PATH", made.path)
    return made


def test_a_key_is_made_listed_rotated_and_revoked(site: Site, directory: Directory) -> None:
    """By the commands of the page, whose models are those of the reference site."""
    assert prod()["tenants"]["search"]["models"] == directory_rig.TENANTS["search"]
    made = site.shown(documented.argv("python -m sitectl key create prod search ci --models qwen3-32b --expires 90d"))
    assert made.status == Exit.OK, made.err
    (text,) = made.out.splitlines()
    key_id = text[3:13]
    assert text.startswith("sk-") and len(text) == 66
    assert f"key {key_id} of search.ci: opens qwen3-32b; expires: 20" in made.err
    assert text[14:] not in made.err
    rotated = site.shown(documented.argv("python -m sitectl key rotate prod q7xk2mzp4d --overlap 24h"), key_id)
    (second,) = rotated.out.splitlines()
    assert f"{key_id} works until the overlap ends" in rotated.err
    keys = {key["id"]: key for key in json.loads(site.key("list", "lab", "--json").out)["keys"]}
    assert keys[key_id]["expires"] - keys[second[3:13]]["created"] == 86400
    assert keys[second[3:13]]["expires"] - keys[second[3:13]]["created"] == 90 * 86400
    revoked = site.shown(documented.argv("python -m sitectl key revoke prod q7xk2mzp4d"), key_id)
    assert (revoked.status, revoked.out.startswith(f"lab: {key_id} of search.ci is revoked since 20")) == (
        Exit.OK,
        True,
    )
    listed = site.shown(documented.argv("python -m sitectl key list prod --tenant search"))
    assert {tuple(line.split()[:3]) for line in listed.out.splitlines()[1:-1]} == {
        (key_id, "search.ci", "revoked"),
        (second[3:13], "search.ci", "works"),
    }
    assert "lab: 2 keys, 1 in use" in listed.out
    assert site.key("list", "lab", "--tenant", "sales").out.splitlines()[-1] == "lab: 0 keys, 0 in use"
    with_json = json.loads(site.key("create", "lab", "sales", "ci", "--json").out)
    assert with_json["key"].startswith(f"sk-{with_json['id']}-")
    assert "@" in directory.log.read_text().splitlines()[-1].split(" created ")[0], "the audit has user@host"


def test_what_the_directory_refuses_is_shown_with_its_fix(site: Site) -> None:
    refused = site.key("create", "lab", "finance", "ci")
    assert (refused.status, refused.out) == (Exit.REFUSED, "")
    assert "error: tenant: no tenant of the site's file, got 'finance', allowed: sales, search" in refused.err
    assert "\n  fix: correct what is named, or add the tenant" in refused.err
    assert site.key("revoke", "lab", "aaaaaaaaaa").err.count("no key has this id") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "lab", "search", "ci", "--expires", "90"), "got '90'; allowed: a whole number with s, m, h or d"),
        (("rotate", "lab", "nonesuch"), "allowed: 10 lower-case letters and digits"),
        (("revoke", "lab", f"sk-abcdefghij-{'a' * 52}"), "fix: write abcdefghij"),
        (("list", "nonesuch"), "nonesuch"),
    ],
)
def test_a_wrong_command_line_asks_nothing(site: Site, words: tuple[str, ...], says: str) -> None:
    site.set(refuses="asked")
    wrong = site.key(*words)
    assert wrong.status in {Exit.USAGE, Exit.REFUSED}
    assert says in wrong.err
    assert "asked" not in wrong.err


@pytest.mark.parametrize(
    ("settings", "status", "says"),
    [
        ({"refuses": "You must be logged in"}, Exit.UNABLE, "kubectl does not reach lab: error: You must be logged in"),
        ({"token": ""}, Exit.REFUSED, "lab has no directory of keys: not found\n  fix: set callers.database_secret"),
        ({"port": 0}, Exit.UNABLE, "the directory of lab does not answer: no endpoints available"),
        ({"token": READER}, Exit.REFUSED, "the reader's token only reads changes"),
    ],
)
def test_what_is_missing_is_named(site: Site, settings: dict[str, object], status: Exit, says: str) -> None:
    site.set(**settings)
    failed = site.key("list", "lab")
    assert (failed.status, failed.out) == (status, "")
    assert says in failed.err


def test_a_key_that_cannot_be_printed_is_to_be_revoked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it fails too
    words = ["key", "--project", str(site.project), "create", "lab", "sales", "lost"]
    assert cli.main(words, out=full) == Exit.UNABLE
    with pytest.raises(OSError, match="No space"):
        full.close()
    (lost,) = (key for key in json.loads(site.key("list", "lab", "--json").out)["keys"] if key["name"] == "lost")
    assert f"fix: end it (sitectl key revoke lab {lost['id']}" in capsys.readouterr().err


def test_a_key_for_the_sites_file_is_printed_beside_its_digest(tmp_path: Path) -> None:
    """Of the key on stdout, and in a form that the file takes; it needs no site."""
    made = run(tmp_path, "key", "new")
    (text,) = made.out.splitlines()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert (made.status, text[:3], f"{{sha256: {digest}}}" in made.err) == (Exit.OK, "sk-", True)
    assert KeySpec(sha256=digest).sha256 == digest_of(text)


@pytest.mark.row("000.05", "004.13")
def test_a_tenant_that_left_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with directory_rig.running(tmp_path) as (_, directory):
        site = AskedSite(tmp_path, "directory", directory.port, directory_rig.OPERATOR)
        monkeypatch.setenv("PATH", site.path)
        site.run("key", "create", "lab", "search", "ci")
        command = documented.argv("python -m sitectl key forget prod search")
        forget = [{"prod": "lab"}.get(word, word) for word in command[3:]]
        refused = site.run(*forget)
        assert refused.status == Exit.REFUSED
        assert "remove it from the file and run pulumi up first" in refused.err
        setting(directory.folder, "--tenants-file").write_text('{"tenants": {}}')
        assert site.run(*forget).out == "lab: forgotten of search: 1 key\n"
        assert site.run(*forget).out == "lab: forgotten of search: nothing was left\n"
