"""Locks of models: written from a hub's metadata by its own client, or from a folder, and compared with folders."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hub import made_up
from lab.hub.server import EmulatedHubServer, Hub
from services.weights.manifest import file_name, parse
from sitectl.shell.errors import Exit
from stacks.facts import catalogue
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, run

pytestmark = pytest.mark.row("000.07", "000.40", "opening 10")

MODEL, ENTRY = "qwen3-32b", catalogue.load("qwen3-32b-fp8")
NAME = file_name(ENTRY.repository, ENTRY.revision)
FILES = made_up.files(ENTRY.repository, ENTRY.revision)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub, and a client that has no token and no cache of the machine's own."""
    emulated = Hub()
    server = EmulatedHubServer(emulated)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "client"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield emulated
    server.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=("prod",), accounts=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files as a person has them, under the name of their commit."""
    folder = tmp_path / ENTRY.revision
    folder.mkdir()
    for path, data in FILES.items():
        (folder / path).write_bytes(data)
    return folder


def test_a_lock_comes_from_metadata_and_small_files_and_the_plan_uses_it(hub: Hub, project: Path, files: Path) -> None:
    assert "no lock lists the files of glm-5-1, qwen3-32b" in run(project, "validate", "prod").out
    result = run(project, "weights", "lock", "prod", MODEL)
    assert result.status == Exit.OK, result.out
    assert f"weights/{NAME}: 8 files, 787 kB" in result.out
    lock = project / "weights" / NAME
    assert {path: entry.size for path, entry in parse(lock.read_text(), NAME).files.items()} == {
        path: len(data) for path, data in FILES.items()
    }
    assert not [path for path, _ in hub.requests if path.endswith(".safetensors")]
    check = ["sha256sum", "--check", "--strict", "--quiet", str(lock)]
    assert subprocess.run(check, cwd=files, check=False).returncode == 0
    assert "no lock lists the files of glm-5-1, so" in run(project, "validate", "prod").out
    again = run(project, "weights", "lock", "prod", MODEL)
    assert "as locked" in again.out and "all locked" in again.out


def test_all_models_of_a_site_are_locked_at_once(hub: Hub, project: Path) -> None:
    assert len(run(project, "weights", "lock", "prod", "--json").data["written"]) == 2
    assert "storage.weights" not in run(project, "validate", "prod").out


@pytest.mark.parametrize("source", ["bucket", "oci"])
def test_a_site_of_locked_models_alone_gets_their_locks_before_its_images_are_locked(
    hub: Hub, project: Path, source: str
) -> None:
    weights = {"source": source, source: {"address": "https://files.site.example/models"}}
    edit(project, "prod", images={"locked": True}, storage={"weights": weights})
    images = run(project, "bundle", "lock", "prod")
    assert "sitectl weights lock" in images.err and "is not locked" not in images.err
    assert len(run(project, "weights", "lock", "prod", "--json").data["written"]) == 2
    assert "no lock of" not in run(project, "validate", "prod").out


def test_a_folder_gives_the_same_lock_without_a_hub(hub: Hub, project: Path, files: Path) -> None:
    assert run(project, "weights", "lock", "prod", MODEL).status == Exit.OK
    from_hub = (project / "weights" / NAME).read_text()
    (project / "weights" / NAME).unlink()
    result = run(project, "weights", "lock", "prod", MODEL, "--from", str(files))
    assert result.status == Exit.OK, result.out
    assert (project / "weights" / NAME).read_text() == from_hub
    (files / "config.json").unlink()
    assert "it has no config.json" in run(project, "weights", "lock", "prod", MODEL, "--from", str(files)).err


DRAFT = catalogue.load("llama-3.2-1b")
DRAFTED = catalogue.load("llama-3.3-70b")


@pytest.fixture
def drafting(tmp_path: Path) -> Path:
    """A project whose site has the model `llama`, for which another one drafts; and no hub."""
    folder = make_checkout(tmp_path / "drafting", sites=())
    shutil.copy(ROOT / "tests/fixtures/sites/valid/optimisations.yaml", folder / "Pulumi.optimisations.yaml")
    for entry in (DRAFT, DRAFTED):
        (folder / entry.revision).mkdir()
        for path, data in made_up.files(entry.repository, entry.revision).items():
            (folder / entry.revision / path).write_bytes(data)
    return folder


def test_a_model_and_its_draft_are_locked_from_two_folders(drafting: Path) -> None:
    asked = ("weights", "lock", "optimisations", "llama")
    own, draft = ("--from", str(drafting / DRAFTED.revision)), ("--draft-from", str(drafting / DRAFT.revision))
    both = run(drafting, *asked, *own, *draft, "--json")
    names = [f"weights/{file_name(entry.repository, entry.revision)}" for entry in (DRAFTED, DRAFT)]
    assert both.data["written"] == names, both.err
    for name, entry in zip(names, (DRAFTED, DRAFT), strict=True):
        lock = parse((drafting / name).read_text(), Path(name).name)
        assert (lock.repository, lock.revision) == (entry.repository, entry.revision)
    assert "all locked" in run(drafting, *asked, *draft).out


@pytest.mark.parametrize(
    ("here", "lacking", "option"),
    [(DRAFTED, DRAFT, "--draft-from"), (DRAFT, DRAFTED, "--from")],
    ids=["draft", "model"],
)
def test_what_is_still_to_be_locked_is_named_with_what_to_call(
    drafting: Path, here: catalogue.CatalogueModel, lacking: catalogue.CatalogueModel, option: str
) -> None:
    given = {"--draft-from": "--from", "--from": "--draft-from"}[option]
    out = run(drafting, "weights", "lock", "optimisations", "llama", given, str(drafting / here.revision)).out
    assert f"not locked yet: {lacking.repository} at {lacking.revision}" in out and "all locked" not in out
    words = out[out.index("sitectl weights lock") :].split()[:7]
    assert words == ["sitectl", "weights", "lock", "optimisations", "llama", option, "FOLDER"]
    last = run(drafting, *words[1:-1], str(drafting / lacking.revision))
    assert last.status == Exit.OK and "commit weights; next: python -m sitectl plan optimisations" in last.out, last.err


def test_what_is_still_to_be_locked_is_in_the_data_with_its_reason(drafting: Path) -> None:
    asked = ("weights", "lock", "optimisations", "llama", "--json")
    first = run(drafting, *asked, "--from", str(drafting / DRAFTED.revision)).data
    (lacking,) = first["not_locked"]
    assert (lacking["repository"], lacking["revision"]) == (DRAFT.repository, DRAFT.revision)
    assert lacking["reason"] == "--draft-from is not given"
    assert "sitectl weights lock optimisations llama --draft-from FOLDER" in lacking["next"]
    assert run(drafting, *asked, "--draft-from", str(drafting / DRAFT.revision)).data["not_locked"] == []


@pytest.mark.parametrize("option", ["--from", "--draft-from"])
def test_a_folder_named_by_another_commit_is_refused(drafting: Path, option: str) -> None:
    """So folders that change places lock nothing."""
    other = {"--from": DRAFT, "--draft-from": DRAFTED}[option].revision
    (drafting / "files").symlink_to(drafting / other)
    for folder in (drafting / other, drafting / "files"):
        result = run(drafting, "weights", "lock", "optimisations", "llama", option, str(folder))
        assert result.status == Exit.USAGE
        assert f"{option} is the folder of another commit" in result.err
        assert f"got: {other}" in result.err
    assert not [*drafting.glob("weights/*.sha256")]


def test_one_folder_is_not_that_of_two_models(drafting: Path) -> None:
    folder = (drafting / DRAFTED.revision).rename(drafting / "files")
    given = ("--from", str(folder), "--draft-from", f"{folder}/.")
    result = run(drafting, "weights", "lock", "optimisations", "llama", *given)
    assert result.status == Exit.USAGE
    assert "--from and --draft-from are one folder" in result.err
    assert not [*drafting.glob("weights/*.sha256")]


def test_a_model_that_drafts_for_itself_is_one_folder(drafting: Path) -> None:
    site = drafting / "Pulumi.optimisations.yaml"
    site.write_text(site.read_text().replace("catalogue: llama-3.2-1b", "catalogue: llama-3.3-70b"))
    given = ("--from", str(drafting / DRAFTED.revision))
    result = run(drafting, "weights", "lock", "optimisations", "llama", *given, "--json")
    assert result.data["written"] == [f"weights/{file_name(DRAFTED.repository, DRAFTED.revision)}"], result.err
    assert result.data["not_locked"] == []


def test_a_draft_of_a_model_that_has_none_is_refused(drafting: Path) -> None:
    result = run(drafting, "weights", "lock", "optimisations", "qwen", "--draft-from", str(drafting / DRAFT.revision))
    assert result.status == Exit.USAGE
    assert "no model drafts for qwen" in result.err
    several = run(drafting, "weights", "lock", "optimisations", "--draft-from", str(drafting / DRAFT.revision))
    assert "--draft-from is of one model" in several.err


def test_a_lock_is_not_overwritten_by_another_list(hub: Hub, project: Path, files: Path) -> None:
    assert run(project, "weights", "lock", "prod", MODEL).status == Exit.OK
    before = (project / "weights" / NAME).read_text()
    (files / "config.json").write_text("{}")
    result = run(project, "weights", "lock", "prod", MODEL, "--from", str(files))
    assert result.status == Exit.REFUSED
    assert "lists other files: config.json" in result.err
    assert (project / "weights" / NAME).read_text() == before


@pytest.mark.parametrize(
    ("revision", "token", "says"),
    [
        ("0" * 40, "", "has no revision"),
        (ENTRY.revision, "hf_secret", "is gated, and there is no token that opens it"),
    ],
)
def test_what_a_hub_refuses_is_reported_with_a_fix(
    hub: Hub, project: Path, revision: str, token: str, says: str
) -> None:
    hub.token = token
    site = project / "Pulumi.prod.yaml"
    before, key, after = site.read_text().partition("        catalogue: qwen3-32b-fp8\n")
    server, own, rest = after.partition("        server:\n")
    site.write_text(f'{before}{key}{server}{own}          revision: "{revision}"\n{rest}')
    result = run(project, "weights", "lock", "prod", MODEL)
    assert result.status == Exit.UNABLE, result.err
    assert says in result.err
    assert "fix: " in result.err
    assert "Traceback" not in result.err


def test_a_hub_that_is_not_there_is_reported_with_a_fix(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "client"))
    result = run(project, "weights", "lock", "prod", MODEL)
    assert result.status == Exit.UNABLE
    assert "http://127.0.0.1:1 cannot be asked" in result.err
    assert "--from FOLDER" in result.err


def test_a_model_of_another_name_is_guessed(hub: Hub, project: Path) -> None:
    result = run(project, "weights", "lock", "prod", "qwen3-32")
    assert result.status == Exit.USAGE
    assert "did you mean 'qwen3-32b'?" in result.err


def test_a_folder_is_compared_with_its_lock_file_by_file(hub: Hub, project: Path, files: Path) -> None:
    assert run(project, "weights", "lock", "prod", MODEL).status == Exit.OK
    verify = ("weights", "verify", str(files))
    result = run(project, *verify)
    assert result.status == Exit.OK, result.err
    assert "8 files, 787 kB, as" in result.out
    (files / "config.json").write_text("{}")
    (files / "tokenizer.json").unlink()
    shard = files / "model-00001-of-00004.safetensors"
    shard.write_bytes(bytes(shard.stat().st_size))
    refused = run(project, *verify)
    assert refused.status == Exit.REFUSED
    for reported in ("3 files of 8 not as locked", "config.json: 2 bytes, expected", "tokenizer.json: missing"):
        assert reported in refused.err
    assert "model-00001-of-00004.safetensors: sha256 " in refused.err
    other = files.rename(files.with_name("elsewhere"))
    assert "no lock is of elsewhere" in run(project, "weights", "verify", str(other)).err
    lock = str(project / "weights" / NAME)
    assert run(project, "weights", "verify", str(other), "--lock", lock).status == Exit.REFUSED
