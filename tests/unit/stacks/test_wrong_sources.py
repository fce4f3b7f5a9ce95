"""Sources that pods or machines cannot reach, and fixes that name the key that the site wrote."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.loader import SiteError, load_site
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_mended

MIRROR = {"skip_fallback": True, "endpoints": ["https://registry.site.example"]}
WRONG: dict[str, Wrong] = {
    "weights from the replica itself": Wrong(
        {"storage.weights.mirror": "http://localhost:8080"},
        "storage.weights.mirror",
        "is each replica itself",
        {"storage.weights.mirror": "https://hub.site.example"},
    ),
    "weights from a loopback address": Wrong(
        {"storage.weights.mirror": "http://127.0.0.1"}, "storage.weights.mirror", "is each replica itself"
    ),
    "registry among the Services": Wrong(
        {f"{M}.registries.mirrors": {"*": {**MIRROR, "endpoints": ["http://10.80.0.50:5000"]}}},
        f"{M}.registries.mirrors.*.endpoints.0",
        "lies in 10.80.0.0/16 of networks.services",
        {f"{M}.registries.mirrors": {"*": {"endpoints": ["http://10.80.0.50:5000"]}}},
    ),
    "registry among the pods": Wrong(
        {f"{M}.registries.mirrors": {"ghcr.io": {**MIRROR, "endpoints": ["http://10.64.3.9:5000"]}}},
        f"{M}.registries.mirrors.ghcr.io.endpoints.0",
        "of networks.pods",
        {f"{M}.registries.mirrors": {"ghcr.io": MIRROR}},
    ),
    "charts from a host without a scheme": Wrong(
        {"charts.mirror": "registry.site.example"},
        "charts.mirror",
        "looks like a host",
        {"charts.mirror": "oci://registry.site.example"},
    ),
    "charts from a host with a path": Wrong(
        {"charts.mirror": "registry.site.example/charts"},
        "charts.mirror",
        "looks like a host",
        {"charts.mirror": "./registry.site.example/charts"},
    ),
    "label that none can be": Wrong(
        {f"{M}.roles.hgx.labels": {"a b": "c"}},
        f"{M}.roles.hgx.labels.a b",
        "got 'a b: c'",
        {f"{M}.roles.hgx.labels": {"a": "c"}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_mended(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {f"{M}.registries.mirrors": {"docker.io": {**MIRROR, "endpoints": ["http://10.80.0.50:5000"]}}},
        # Spegel listens on each node.
        {f"{M}.registries.mirrors": {"*": {"endpoints": ["http://127.0.0.1:29999"]}}},
        {"storage.weights.mirror": "http://10.80.0.60:8080"},
        {"charts.mirror": ".lab/bundle/charts"},
        {"charts.mirror": "/srv/charts.d"},
        {"charts.mirror": "charts"},
    ],
)
def test_a_source_that_can_be_reached_is_taken(change: dict[str, Any]) -> None:
    assert load_site(changed(prod(), change), "site.yaml")


@pytest.mark.parametrize(
    ("change", "fix", "got"),
    [
        ({f"{M}.kernel_log": "tcp://10.5.0.6"}, "give kernel_log a value", "'tcp://10.5.0.6'"),
        ({f"{M}.log_destination": "x"}, "give log_destination a value", "'x'"),
        ({f"{M}.kernel_modules": ["a b"]}, "give kernel_modules a value", "'a b'"),
        ({f"{M}.firewall.load_balancer_ports": ["500-80", 443]}, "give load_balancer_ports a value", "['500-80', 443]"),
        (
            {f"{M}.registries.mirrors": {"*": {"endpoints": ["registry.site.example"]}}},
            "give endpoints.0 a value",
            "'registry.site.example'",
        ),
    ],
)
def test_a_fix_names_the_key_that_the_site_wrote(change: dict[str, Any], fix: str, got: str) -> None:
    with pytest.raises(SiteError) as caught:
        load_site(changed(prod(), change), "site.yaml")
    (problem,) = caught.value.problems
    assert (problem.fix, problem.got) == (f"{fix} that is allowed", got)
