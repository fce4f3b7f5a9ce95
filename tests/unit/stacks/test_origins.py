"""Each value of a site knows its layer, file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.facts import catalogue, versions
from stacks.facts.catalogue import CatalogueModel
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.site.reading.fields import place
from stacks.site.reading.origins import FROM_CATALOGUE

pytestmark = pytest.mark.row("opening 13")

ROOT = Path(__file__).parents[3]
SITES = ROOT / "tests" / "fixtures" / "sites" / "valid"


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def prod() -> SitePlan:
    return plan_file(ROOT / "Pulumi.prod.yaml")


@pytest.fixture
def anchors(monkeypatch: pytest.MonkeyPatch) -> SitePlan:
    monkeypatch.chdir(SITES)
    return plan_file(Path("anchors.yaml"))


def test_a_written_value_has_the_line_of_its_key(prod: SitePlan) -> None:
    file = ROOT / "Pulumi.prod.yaml"
    origin = prod.origins["gateway.max_body_mib"]
    assert (origin.layer, origin.file, origin.line) == ("site", str(file), line_of(file, "max_body_mib:"))
    assert str(origin) == f"{file}:{origin.line}"
    assert prod.origins["tenants.search.models"].line == line_of(file, "models: [glm")


def test_a_default_has_the_file_of_the_class_that_declares_it(prod: SitePlan) -> None:
    for key, file in {
        "gateway.load_balancer_class": "components/specs/gateway.py",
        "models.qwen3-32b.request_timeout_s": "components/specs/model.py",
        "models.qwen3-32b.overrides.max_num_seqs": "stacks/site/demand.py",
        "models.qwen3-32b.server.longest_stream_s": "components/specs/model_server.py",
        "tenants.search.keys.assistant.rotation": "components/specs/access.py",
        "cluster.kubeconfig": "stacks/site/model.py",
    }.items():
        assert str(prod.origins[key]) == f"default of {file}", key
        assert (ROOT / file).is_file()


def test_what_a_site_leaves_to_the_catalogue_comes_from_there(prod: SitePlan) -> None:
    assert prod.origins["models.glm-5-1.server.gpus"].layer == "site"
    assert prod.origins["catalogue.qwen3-32b-fp8.licence"].layer == "catalogue"


def test_pins_have_their_line(prod: SitePlan) -> None:
    origin = prod.origins["versions.images.vllm"]
    assert (origin.layer, origin.file) == ("versions", "stacks/facts/versions.yaml")
    assert origin.line == line_of(versions.FILE, "vllm-openai")


def test_every_leaf_of_every_site_has_an_origin() -> None:
    for file in [*sorted(SITES.glob("*.yaml")), *sorted(ROOT.glob("Pulumi.*.yaml"))]:
        loaded = plan_file(file)

        def leaves(value: object, path: str) -> list[str]:
            if isinstance(value, dict) and value:
                return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}.{key}")]
            return [path.removeprefix(".")]

        assert set(leaves(loaded.site.model_dump(), "")) <= set(loaded.origins), file


def test_a_merged_value_has_the_line_of_its_anchor(anchors: SitePlan) -> None:
    file = SITES / "anchors.yaml"
    assert str(anchors.origins["gateway.port"]) == f"anchors.yaml:{line_of(file, 'port: 80')}"
    assert anchors.origins["gateway.replicas"].line == line_of(file, "      replicas: 4")
    assert anchors.origins["models.qwen-b.catalogue"].line == line_of(file, "catalogue:")
    assert anchors.origins["models.qwen-c.server.replicas"].line == line_of(file, "          replicas: 2")
    assert anchors.origins["models.qwen-c.server.longest_stream_s"].line == line_of(file, "&four")
    assert anchors.site.models["qwen-c"].server.longest_stream_s == 300
    assert anchors.site.models["qwen-c"].server.replicas == 2


def test_keys_that_the_catalogue_fills_exist_on_both_sides() -> None:
    for path, key in FROM_CATALOGUE.items():
        here = place(("models", "x", *path))
        assert here and here.field and here.field.default is None
        assert key in CatalogueModel.model_fields
    assert catalogue.names()
