"""One file names versions: the program reads each pin, and no other file names one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.addons import registry
from lab.install.go_mods import required_version
from lab.install.parts import GO_FAMILIES
from stacks.facts import program_flags, upgrades, versions
from stacks.facts.compatibility import table
from stacks.plan import conflicts
from stacks.plan.charts import installed_charts
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import OTHER_ADDONS, prod
from tests.unit.stacks.test_several_nodes import alone
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.07")

ROOT = Path(__file__).parents[3]
READERS = [ROOT / "__main__.py", *sorted((ROOT / "stacks").rglob("*.py")), *sorted((ROOT / "components").rglob("*.py"))]
# What a site's program has no use for: own images are built by a command.
BUILDERS = sorted((ROOT / "sitectl" / "commands" / "bundle").glob("*.py"))
TEXTS = sorted((ROOT / "manifests").rglob("*.j2"))
# Three numbers, or two behind a v or a tag's colon; addresses have four.
VERSION = re.compile(r"(?<![\d.])v?\d+\.\d+\.\d+(?![\d.]*\.\d|/)|\bv\d+\.\d+\b|:v?\d+\.\d+")


def pinned(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from pinned(inner, (*path, key))
        else:
            yield (*path, key), inner


PINS = dict(pinned(yaml.safe_load(versions.FILE.read_text())))


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Texts that the code uses: no docstring, no comment."""
    tree = ast.parse(path.read_text())
    reported = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in reported:
            yield node.lineno, node.value


def attributes() -> set[str]:
    """Dotted endings that the code reads, such as `images.endpoint_picker`."""
    chains: set[str] = set()
    for path in (*READERS, *BUILDERS):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                chains.add(ast.unparse(node))
    return chains


@pytest.mark.parametrize("path", READERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_names_a_version(path: Path) -> None:
    # An error may say how a version is written.
    assert [(line, text) for line, text in literals(path) if VERSION.search(text.replace("v1.2.3", ""))] == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_template_names_a_version(path: Path) -> None:
    assert VERSION.findall(path.read_text()) == []


def test_the_search_for_versions_finds_them() -> None:
    for text in ("v1.13.9", "epp:v1.5", "1.36.3", "image:0.32", "v1.13"):
        assert VERSION.search(text), text
    for text in (
        "10.96.0.0/12",
        "127.0.0.1",
        "apps/v1",
        "v1alpha2",
        "0.92",
        "networking.k8s.io/v1beta1",
        "192.168.1.1",
    ):
        assert not VERSION.search(text), text


@pytest.mark.slow
def test_every_pin_has_a_reader() -> None:
    read = attributes() | {f"images.{image.name}" for addon in registry.ADDONS for image in addon.images}
    unread = []
    for path in PINS:
        # Files and charts are handed on as a whole.
        wanted = path[:1] if path[0].startswith(("crd", "cilium", "charts")) else path
        if not any(re.search(rf"(^|\.){re.escape('.'.join(wanted))}$", chain) for chain in read):
            unread.append(".".join(path))
    assert unread == []


def test_every_chart_is_one_that_a_site_may_install() -> None:
    choices: list[dict[str, Any]] = [
        {
            "cluster.gpu_stack": "operator",
            "cluster.machines.hgx.rdma": "roce",
            "cluster.rdma_devices": {"system": "network_operator"},
        },
        OTHER_ADDONS,
    ]
    sites = [plan_values(changed(prod(), choice), "site.yaml").site for choice in choices]
    sites.append(plan_values(alone(), "site.yaml").site)
    assert {name for site in sites for name in installed_charts(site)} == set(dict(versions.load().charts))


def test_definitions_are_of_addons_and_charts_that_exist() -> None:
    pins = versions.load()
    assert set(pins.optional_parts) <= {addon.key for addon in registry.ADDONS}
    assert {source.next_to for source in pins.crd_sources.values() if source.next_to} <= set(pins.charts)


def test_every_fact_about_a_version_is_asked_for_by_a_rule() -> None:
    asked = {fact for row in table() for fact in (*row.when, *row.needs)}
    asked |= {fact for part in upgrades.load().parts for fact in part.facts}
    assert set(conflicts.deciding_keys()) - asked == set()


def test_pins_are_releases_or_digests() -> None:
    for path, value in PINS.items():
        where = path[0] == "crd_sources" or path[-1] in ("chart", "repository")
        assert where or re.search(
            r"\d+\.\d+\.\d+(-beta\.\d+)?$|:\d+\.\d+(-system|\.\d+-slim)-trixie$|^[0-9a-f]{64}$|@sha256:[0-9a-f]{64}$",
            value,
        ), path


@pytest.mark.parametrize("tag", [":latest", ":main", "", ":v1", "@sha256:abc"])
def test_a_tag_that_moves_is_refused(tag: str) -> None:
    document = yaml.safe_load(versions.FILE.read_text())
    document["images"]["vllm"] = f"docker.io/vllm/vllm-openai{tag}"
    with pytest.raises(ValueError, match=r"images\.vllm"):
        versions.Versions.model_validate(document)


@pytest.mark.parametrize("table", ["crd_versions", "crd_sources"])
def test_every_file_of_definitions_has_a_sum_a_release_and_a_source(table: str) -> None:
    document = yaml.safe_load(versions.FILE.read_text())
    del document[table]["gateway-api.json"]
    with pytest.raises(ValueError, match=rf"crds and {table} differ in \['gateway-api\.json'\]"):
        versions.Versions.model_validate(document)


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"chart": "a"},
        {"next_to": "ai_gateway"},
        {"chart": "a", "next_to": "ai_gateway", "file": "https://a.example"},
    ],
)
def test_a_source_of_definitions_is_a_chart_or_a_file(source: dict[str, str]) -> None:
    document = yaml.safe_load(versions.FILE.read_text())
    document["crd_sources"]["gateway-api.json"] = source
    with pytest.raises(ValueError, match="names no source, or two"):
        versions.Versions.model_validate(document)


def test_a_site_without_an_optional_part_has_none_of_its_definitions() -> None:
    pins = versions.load()
    assert pins.crds_with(pins.optional_parts) == pins.crds
    assert set(pins.crds) - set(pins.crds_with()) == {"cert-manager.json", "prometheus-operator.json"}


def test_image_references_come_apart() -> None:
    digest = "sha256:" + "0" * 64
    assert versions.parts("docker.io/vllm/vllm-openai:v0.32.0") == ("docker.io/vllm/vllm-openai", "v0.32.0")
    assert versions.parts(f"registry:5000/a/b:v1.0.0@{digest}") == ("registry:5000/a/b", "v1.0.0")
    assert versions.parts(f"ghcr.io/a/b@{digest}") == ("ghcr.io/a/b", "")


def test_releases_of_the_definitions_are_those_of_their_modules() -> None:
    """The lab's mirror comes out of these modules; Gateway API is the one that the gateway is built with."""
    pinned = versions.load()
    for name, family, module in (
        ("ai-gateway", "ai-gateway", "github.com/envoyproxy/ai-gateway"),
        ("envoy-gateway", "envoy-gateway", "github.com/envoyproxy/gateway"),
        ("gateway-api", "envoy-gateway", "sigs.k8s.io/gateway-api"),
        ("inference-extension", "endpoint-picker", "sigs.k8s.io/gateway-api-inference-extension"),
        ("cert-manager", "cert-manager", "github.com/cert-manager/cert-manager"),
        ("prometheus-operator", "prometheus-operator", "github.com/prometheus-operator/prometheus-operator"),
    ):
        assert pinned.crd_versions[f"{name}.json"] == required_version(ROOT / "tools" / family / "go.mod", module), name


def test_the_labs_programs_are_of_the_pinned_versions() -> None:
    images, load = versions.load().images, versions.load()
    for family, module, version in (
        ("kubernetes", "k8s.io/kubernetes", load.kubernetes),
        ("inference-sim", "github.com/llm-d/llm-d-inference-sim", versions.parts(images.simulator)[1]),
        (
            "endpoint-picker",
            "sigs.k8s.io/gateway-api-inference-extension",
            versions.parts(images.endpoint_picker)[1],
        ),
        ("alertmanager", "github.com/prometheus/alertmanager", versions.parts(images.alertmanager)[1]),
        ("kube-state-metrics", "k8s.io/kube-state-metrics/v2", versions.parts(images.kube_state_metrics)[1]),
        ("envoy-gateway", "github.com/envoyproxy/gateway", load.charts["envoy_gateway"].version),
        ("ai-gateway", "github.com/envoyproxy/ai-gateway", load.charts["ai_gateway"].version),
    ):
        assert f"{module} {version}" in (ROOT / "tools" / family / "go.mod").read_text(), module


def test_the_labs_prometheus_is_of_the_pinned_release() -> None:
    prometheus = next(family for family in GO_FAMILIES if family.name == "prometheus")
    assert versions.parts(versions.load().images.prometheus)[1] == f"v{prometheus.release}"


def test_flags_of_programs_are_those_of_the_pinned_versions() -> None:
    """A new version asks for its flags: the head of program_flags.yaml says where they are from."""
    table, pinned = program_flags.load(), versions.load()
    assert (table.kubernetes, table.talos) == (pinned.kubernetes, pinned.talos)
