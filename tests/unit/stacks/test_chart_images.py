"""Images of the pinned charts: each chart has an entry of its pinned version, and each image its whole name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.addons import gpu_stack, longhorn
from components.specs.longhorn import LonghornSpec
from floor.problems import SiteError
from stacks.facts import chart_images, records, versions
from stacks.facts.chart_images import ChartImages

pytestmark = pytest.mark.row("000.07")

CHARTS = ["cilium", *versions.load().charts]
PLAIN = {"version": "1.0.0", "known": "exact", "read": "a@b c"}
DIGEST = "@sha256:" + "0123456789abcdef" * 4


def version_of(name: str) -> str:
    pins = versions.load()
    return pins.cilium.version if name == "cilium" else pins.charts[name].version


def written(entry: Mapping[str, Any], tmp_path: Path) -> ChartImages:
    """An entry as it is read out of a file."""
    file = tmp_path / "chart_images.yaml"
    file.write_text(yaml.safe_dump({"one": {**PLAIN, **entry}}))
    return records.read_facts(file, dict[str, ChartImages])["one"]


def test_every_chart_has_an_entry_of_its_pinned_version() -> None:
    assert {name: entry.version for name, entry in chart_images.load().items()} == {
        name: version_of(name) for name in CHARTS
    }


@pytest.mark.parametrize("name", CHARTS)
def test_an_entry_says_where_it_was_read_and_what_each_image_is_for(name: str) -> None:
    entry = chart_images.load()[name]
    assert re.match(r"[\w.-]+/[\w.-]+@[\w.-]+ \S", entry.read)
    assert all(what for started in entry.images.values() for what in started.values())
    assert list(entry.all_images()) or entry.unknown_tags


# Their charts count versions of their own.
OWN_COUNT = {
    *("node_exporter", "grafana", "cloudnative_pg", "barman_cloud", "victoria_logs", "victoria_logs_collector"),
    "external_dns",
}


@pytest.mark.parametrize("name", [name for name in CHARTS if name not in OWN_COUNT])
def test_an_own_tag_follows_the_pin(name: str) -> None:
    # A controller's image has the version of its chart; what has one of its own is of another project.
    entry, release = chart_images.load()[name], version_of(name).removeprefix("v")
    tags = {versions.parts(image)[1].removeprefix("v") for image in entry.images.get("chart", ())}
    assert release in tags or not tags


@pytest.mark.parametrize(
    "image",
    [
        "docker.io/library/redis:7.4.0",
        "quay.io/metallb/speaker:v0.16.1",
        "registry.k8s.io:5000/pause:3.10.1",
        f"docker.io/envoyproxy/envoy:distroless-v1.39.1{DIGEST}",
    ],
)
def test_a_whole_name_is_taken(image: str, tmp_path: Path) -> None:
    entry = written({"images": {"chart": {image: "what"}}}, tmp_path)
    assert list(entry.all_images()) == [image]


@pytest.mark.parametrize(
    "image",
    [
        "redis:7.4.0",
        "longhornio/longhorn-ui:v1.12.1",
        "docker.io/longhornio/longhorn-ui",
        "docker.io/envoyproxy/gateway-dev:latest",
        f"docker.io/envoyproxy/envoy{DIGEST}",
        "docker.io/Envoy/envoy:v1.39.1",
    ],
)
def test_another_name_is_refused(image: str, tmp_path: Path) -> None:
    with pytest.raises(SiteError, match=r"one.images.chart") as caught:
        written({"images": {"chart": {image: "what"}}}, tmp_path)
    assert image[:20] in str(caught.value)


UNKNOWN = {"quay.io/a/b": {"what": "a", "by": "chart", "why": "not read"}}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"unknown_tags": UNKNOWN}, "known is exact, with 1 unknown tags"),
        ({"known": "near"}, "known is near, with 0 unknown tags"),
        ({"known": "near", "unknown_tags": UNKNOWN, "unused": {"quay.io/a/b": "off"}}, "named twice: quay.io/a/b"),
        (
            {"images": {"chart": {"quay.io/a/b:v1": "a"}, "compiled": {"quay.io/a/b:v2": "a"}}},
            "named twice: quay.io/a/b",
        ),
        ({"images": {"operator": {"quay.io/a/b:v1": "a"}}}, "operator"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(
    entry: Mapping[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    with pytest.raises(SiteError, match=re.escape(message)):
        written(entry, tmp_path)


def test_what_is_unused_is_off_in_the_values_of_the_program() -> None:
    values = {
        "gpu_operator": gpu_stack.operator_values([]),
        "longhorn": longhorn.longhorn_values(
            LonghornSpec(), engine="v1", taints=[], selects_nodes=True, keeping="protected"
        ),
    }
    compared = set()
    for name, given in values.items():
        for why in chart_images.load()[name].unused.values():
            if match := re.match(r"(\w+)\.(\w+) is (\w+)", why):
                part, key, value = match.groups()
                setting = reduce(lambda above, below: above.get(below, {}), (part, key), given)
                if setting != {}:
                    assert str(setting).lower() == value, why
                    compared.add(part)
    assert {"driver", "toolkit", "migManager", "longhornUI"} <= compared


def test_what_is_compiled_into_a_controller_is_what_the_program_names_in_its_place() -> None:
    compiled = [image for entry in chart_images.load().values() for image in entry.images.get("compiled", {})]
    assert [image.partition("@")[0] for image in compiled] == [versions.load().images.envoy]
