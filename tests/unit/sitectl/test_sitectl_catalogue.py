"""The catalogue on the command line: list, show, and a new model from its config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sitectl.shell.errors import Exit
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.proof.weights import parameters
from tests.unit.proof.test_proof_import_config import CONFIGS
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = pytest.mark.row("000.40", "003.01")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout whose catalogue a test may change."""
    return make_checkout(tmp_path / "own", sites=(), copied=("stacks",))


def add(own: Path, config: object, *more: str, repository: str = "Qwen/Qwen3-32B-New") -> list[str]:
    file = own / "config.json"
    if config is not None:
        file.write_text(config if isinstance(config, str) else json.dumps(config))
    words = ["catalogue", "add", str(file), "--repository", repository, "--licence", "Apache-2.0", "--source", "hub"]
    return [*words, "--parameters", "32.8e9", "--published", "model card", *more]


def files(own: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (own / "stacks" / "facts" / "catalogue").iterdir()}


def test_list_names_every_model(checkout_folder: Path) -> None:
    result = run(checkout_folder, "catalogue", "list")
    assert result.status == Exit.OK
    assert [name for name in catalogue.names() if f"\n{name} " not in result.out] == []
    assert sorted(run(checkout_folder, "catalogue", "list", "--json").data) == catalogue.names()


def test_show_says_what_a_replica_takes(checkout_folder: Path) -> None:
    shown = run(checkout_folder, "catalogue", "show", "glm-5.1-fp8", "--json").data
    assert shown["repository"] == "zai-org/GLM-5.1-FP8"
    assert shown["replica"]["h200-sxm"].startswith("8 GPUs (TP8)")
    assert shown["replica"]["l4"] == "does not fit on a node"


def test_show_of_an_unknown_model_leads_on(checkout_folder: Path) -> None:
    near = run(checkout_folder, "catalogue", "show", "glm-5.1")
    assert (near.status, "fix: python -m sitectl catalogue show glm-5.1-fp8" in near.err) == (Exit.USAGE, True)
    far = run(checkout_folder, "catalogue", "show", "falcon-180b")
    assert "did you mean" not in far.err
    assert "fix: python -m sitectl catalogue list" in far.err


def test_add_writes_a_file_that_loads_and_says_what_is_next(own: Path) -> None:
    result = run(own, *add(own, CONFIGS["qwen3-32b-fp8"], "--flag=--reasoning-parser=qwen3"))
    assert result.status == Exit.OK, result.err
    written = own / "stacks" / "facts" / "catalogue" / "qwen3-32b-new.yaml"
    assert written.read_text().startswith("# Qwen/Qwen3-32B-New: 32.8 billion, 34.3 GB.")
    model = CatalogueModel.model_validate(yaml.safe_load(written.read_text()))
    assert parameters(model) == parameters(catalogue.load("qwen3-32b-fp8"))
    assert model.engine_flags == ("--reasoning-parser=qwen3",)
    assert "wrote stacks/facts/catalogue/qwen3-32b-new.yaml" in result.out
    assert "next: make docs" in result.out


def test_add_overwrites_nothing(own: Path) -> None:
    before = files(own)
    result = run(own, *add(own, CONFIGS["qwen3-32b-fp8"], repository="Qwen/Qwen3-32B-FP8"))
    assert result.status == Exit.REFUSED
    assert "in the catalogue already" in result.err
    assert files(own) == before


@pytest.mark.parametrize(
    ("content", "more", "status", "reason"),
    [
        (None, [], Exit.REFUSED, "fix: name the repository's config.json"),
        ("{", [], Exit.REFUSED, "not JSON"),
        ("[" * 100_000, [], Exit.REFUSED, "not JSON"),
        ("[]", [], Exit.REFUSED, "got list, allowed: a JSON object"),
        ('{"model_type": "mamba9"}', [], Exit.REFUSED, "model_type: got 'mamba9'"),
        (CONFIGS["qwen3-32b-fp8"], ["--parameters", "70e9"], Exit.REFUSED, "1 reason not to add it"),
        (CONFIGS["qwen3-32b-fp8"], ["--name", "../up"], Exit.USAGE, "is not a name for the catalogue"),
    ],
)
def test_what_is_refused_writes_no_file(own: Path, content: object, more: list[str], status: Exit, reason: str) -> None:
    """A refusal left an empty file behind, on which every command failed: the output was redirected into it."""
    before = files(own)
    result = run(own, *add(own, content, *more))
    assert result.status == status
    assert reason in result.err
    assert "Traceback" not in result.err
    assert files(own) == before
    assert not (own / "stacks" / "facts" / "up.yaml").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        *(
            (["--" + option, " "], f"--{option} is empty")
            for option in ("repository", "licence", "source", "published")
        ),
        *((["--parameters", text], "--parameters is no number of parameters\n  got: ") for text in ("nan", "inf", "0")),
        (["--active", "-1"], "--active is no number of parameters\n  got: -1.0"),
    ],
)
def test_add_refuses_figures_without_a_source_or_a_size(own: Path, more: list[str], says: str) -> None:
    before = files(own)
    result = run(own, *add(own, CONFIGS["qwen3-32b-fp8"], *more))
    assert (result.status, says in result.err, "\n  fix: " in result.err) == (Exit.USAGE, True, True), result
    assert files(own) == before
