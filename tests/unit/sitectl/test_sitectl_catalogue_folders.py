"""`catalogue add` with a repository's folder: what it takes from there, what it compares, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.shell.errors import Exit
from stacks.facts.catalogue import CatalogueModel
from tests.unit.proof.test_proof_import_config import CONFIGS
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run

pytestmark = pytest.mark.row("000.40", "003.01", "000.07")

COMMIT = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"
# 32.76 billion parameters, all but the embeddings in FP8.
SIZE = 34_325_200_896
CARD = "---\nlicense: apache-2.0\nlibrary_name: transformers\n---\n# A model\n"
GIVEN = ("--source", "hub", "--parameters", "32.8e9", "--published", "model card")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout whose catalogue a test may change."""
    return make_checkout(tmp_path / "own", sites=(), copied=("stacks",))


def snapshot(folder: Path, *, config: object = None, card: str = CARD, size: int | None = SIZE) -> Path:
    """A model in the hub's cache, as `hf download` leaves it."""
    path = folder / "hub" / "models--Qwen--Qwen3-32B-New" / "snapshots" / COMMIT
    fill(path, config=config, card=card, size=size)
    return path


def clone(folder: Path, *, head: str = "ref: refs/heads/main", packed: bool = False) -> Path:
    path = folder / "Qwen3-32B-New"
    fill(path)
    git = path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(f"{head}\n")
    (git / "config").write_text('[remote "origin"]\n\turl = https://huggingface.co/Qwen/Qwen3-32B-New\n')
    if packed:
        (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    else:
        (git / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    return path


def fill(path: Path, *, config: object = None, card: str = CARD, size: int | None = SIZE) -> None:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config or CONFIGS["qwen3-32b-fp8"]))
    if card:
        (path / "README.md").write_text(card)
    if size is not None:
        index = {"metadata": {"total_size": size}, "weight_map": {}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))


def add(own: Path, path: Path, *more: str) -> CommandResult:
    return run(own, "catalogue", "add", str(path), *GIVEN, *more)


def entry(own: Path, name: str = "qwen3-32b-new") -> CatalogueModel:
    return CatalogueModel.model_validate(yaml.safe_load(path_of(own, name).read_text()))


def path_of(own: Path, name: str = "qwen3-32b-new") -> Path:
    return own / "stacks" / "facts" / "catalogue" / f"{name}.yaml"


def listed(own: Path) -> list[str]:
    return sorted(path.name for path in (own / "stacks" / "facts" / "catalogue").iterdir())


def test_a_snapshot_of_the_hub_s_cache_tells_name_commit_and_licence(own: Path, tmp_path: Path) -> None:
    outcome = add(own, snapshot(tmp_path))
    assert outcome.status == Exit.OK, outcome.err
    model = entry(own)
    assert (model.repository, model.revision, model.licence) == ("Qwen/Qwen3-32B-New", COMMIT, "Apache-2.0")
    assert model.sources["revision"].startswith("models--Qwen--Qwen3-32B-New/snapshots/")
    assert model.sources["licence"] == "license of the model card's front matter"
    assert model.sources["engine_version"].startswith("not looked up: ")


@pytest.mark.parametrize("packed", [False, True])
def test_a_clone_of_the_hub_tells_its_name_and_commit(own: Path, tmp_path: Path, packed: bool) -> None:
    assert add(own, clone(tmp_path, packed=packed)).status == Exit.OK
    assert (entry(own).repository, entry(own).revision) == ("Qwen/Qwen3-32B-New", COMMIT)
    assert ".git/HEAD" in entry(own).sources["revision"]


def test_a_detached_clone_tells_its_commit(own: Path, tmp_path: Path) -> None:
    assert add(own, clone(tmp_path, head=COMMIT)).status == Exit.OK
    assert entry(own).revision == COMMIT


def test_commits_of_another_forge_are_not_the_hub_s(own: Path, tmp_path: Path) -> None:
    path = clone(tmp_path)
    (path / ".git" / "config").write_text('[remote "origin"]\n\turl = https://github.com/QwenLM/Qwen3\n')
    outcome = add(own, path)
    assert outcome.status == Exit.USAGE
    assert "--repository is missing" in outcome.err
    outcome = add(own, path, "--repository", "Qwen/Qwen3-32B-New")
    assert entry(own).revision == ""
    assert entry(own).sources["revision"].startswith("not looked up: ")
    assert "it has no revision: a production site that downloads it names one" in outcome.out


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (CARD, "Apache-2.0"),
        ("---\nlicense: MIT\n---\n", "MIT"),
        ("---\nlicense: gemma\n---\n", "LicenseRef-gemma"),
        ("---\nlicense: other\nlicense_name: modified-mit\n---\n", "LicenseRef-modified-mit"),
    ],
)
def test_the_licence_is_the_model_card_s(own: Path, tmp_path: Path, card: str, licence: str) -> None:
    assert add(own, snapshot(tmp_path, card=card)).status == Exit.OK
    assert entry(own).licence == licence


@pytest.mark.parametrize("card", ["", "# no front matter\n", "---\nlicense: [\n---\n", "---\nlicense: other\n---\n"])
def test_a_card_that_tells_no_licence_needs_one_by_hand(own: Path, tmp_path: Path, card: str) -> None:
    before = listed(own)
    outcome = add(own, snapshot(tmp_path, card=card))
    assert (outcome.status, listed(own)) == (Exit.USAGE, before)
    assert "--licence is missing" in outcome.err
    assert "\n  got: " in outcome.err
    assert "fix: add --licence" in outcome.err


def test_a_licence_file_tells_it_too(own: Path, tmp_path: Path) -> None:
    path = snapshot(tmp_path, card="")
    (path / "LICENSE").write_text("\n   Apache License\n  Version 2.0, January 2004\n")
    assert add(own, path).status == Exit.OK
    assert entry(own).licence == "Apache-2.0"


def test_what_is_given_by_hand_wins_and_says_so(own: Path, tmp_path: Path) -> None:
    other = "0" * 40
    outcome = add(own, snapshot(tmp_path), "--revision", other, "--licence", "MIT", "--repository", "Me/Fine-Tune")
    assert outcome.status == Exit.OK, outcome.err
    model = entry(own, "fine-tune")
    assert (model.repository, model.revision, model.licence) == ("Me/Fine-Tune", other, "MIT")
    assert model.sources["revision"] == model.sources["licence"] == "given by hand: hub"


@pytest.mark.parametrize(("size", "status"), [(SIZE, Exit.OK), (round(SIZE * 1.02), Exit.OK), (None, Exit.OK)])
def test_weights_of_the_derived_size_are_accepted(own: Path, tmp_path: Path, size: int | None, status: Exit) -> None:
    assert add(own, snapshot(tmp_path, size=size)).status == status


def test_weights_of_another_size_are_refused(own: Path, tmp_path: Path) -> None:
    """The files are bfloat16, and the config says FP8: twice the memory that the proof would count."""
    before = listed(own)
    outcome = add(own, snapshot(tmp_path, size=65_500_000_000))
    assert (outcome.status, listed(own)) == (Exit.REFUSED, before)
    assert (
        "model.safetensors.index.json: got 65.5 GB of weights, but geometry and quantisation give 34.3" in outcome.err
    )
    assert "fix: " in outcome.err


def test_code_is_run_only_with_a_reason(own: Path, tmp_path: Path) -> None:
    path = snapshot(tmp_path, config=CONFIGS["qwen3-32b-fp8"] | {"auto_map": {"AutoConfig": "configuration_x.Config"}})
    (path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["tokenization_x.Tokenizer", None]}})
    )
    outcome = add(own, path)
    assert entry(own).remote_code is None
    assert "its auto_map names configuration_x.py, tokenization_x.py, which is not run" in outcome.out
    assert add(own, path, "--force", "--remote-code", "its tokenizer needs its own class").status == Exit.OK
    code = entry(own).remote_code
    assert code is not None
    assert code.files == ("configuration_x.py", "tokenization_x.py")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--remote-code", "because it wants to"], "--remote-code without code"),
        (["--revision", "main"], "--revision is none\n  got: main"),
        (["--engine-version", "nightly", "--engine-source", "x"], "--engine-version is none\n  got: nightly"),
        (["--engine-version", "0.19.1"], "--engine-version and --engine-source go together"),
        (["--engine-source", "recipes"], "--engine-version and --engine-source go together"),
    ],
)
def test_options_that_tell_nothing_are_refused(own: Path, tmp_path: Path, more: list[str], says: str) -> None:
    before = listed(own)
    outcome = add(own, snapshot(tmp_path), *more)
    assert (outcome.status, listed(own)) == (Exit.USAGE, before)
    assert says in outcome.err
    assert "\n  allowed: " in outcome.err
    assert "\n  fix: " in outcome.err


def test_flags_with_a_key_of_their_own_are_refused(own: Path, tmp_path: Path) -> None:
    before = listed(own)
    outcome = add(own, snapshot(tmp_path), "--flag=--trust-remote-code")
    assert (outcome.status, listed(own)) == (Exit.REFUSED, before)
    assert "--trust-remote-code has a key of its own" in outcome.err


def test_an_entry_is_overwritten_by_force_alone_and_whole(own: Path, tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    assert add(own, path).status == Exit.OK
    first = path_of(own).read_text()
    again = add(own, path, "--engine-version", "0.8.5", "--engine-source", "recipes")
    assert (again.status, path_of(own).read_text()) == (Exit.REFUSED, first)
    assert "--force to overwrite it" in again.err
    assert add(own, path, "--force", "--engine-version", "0.8.5", "--engine-source", "recipes").status == Exit.OK
    assert entry(own).engine_version == "0.8.5"
    (path / "config.json").write_text("{")
    second = path_of(own).read_text()
    assert add(own, path, "--force").status == Exit.REFUSED
    assert path_of(own).read_text() == second


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", None, "no such file; fix: name the repository's config.json, or the folder that has it"),
        ("model.safetensors.index.json", "[]", "got list, allowed: a JSON object"),
        ("tokenizer_config.json", "{", "not JSON"),
        ("hf_quant_config.json", '{"quantization": {"quant_algo": "W4A8"}}', "quant_algo: got 'W4A8'"),
    ],
)
def test_files_of_the_folder_that_are_none_are_refused(
    own: Path, tmp_path: Path, file: str, content: str | None, says: str
) -> None:
    before, path = listed(own), snapshot(tmp_path)
    (path / file).unlink(missing_ok=True)
    if content is not None:
        (path / file).write_text(content)
    outcome = add(own, path)
    assert (outcome.status, listed(own)) == (Exit.REFUSED, before)
    assert says in outcome.err
    assert "Traceback" not in outcome.err


def test_the_answer_s_default_length_is_reported(own: Path, tmp_path: Path) -> None:
    path = snapshot(tmp_path)
    (path / "generation_config.json").write_text(json.dumps({"max_new_tokens": 2048}))
    assert "ends answers at 2,048 tokens" in add(own, path).out


def test_show_has_what_was_looked_up(own: Path, tmp_path: Path) -> None:
    add(own, snapshot(tmp_path), "--engine-version", "0.8.5", "--engine-source", "recipes")
    shown: dict[str, Any] = run(own, "catalogue", "show", "kimi-k2.5", "--json").data
    assert shown["remote code"] == "tokenization_kimi.py, kimi_k25_vision_processing.py"
    assert shown["vLLM"] == "0.19.1 or later"
    assert len(shown["revision"]) == 40
