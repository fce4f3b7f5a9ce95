"""Sources that pods or machines cannot reach, and fixes that name the key that the site wrote."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

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
    "mirror at no address": Wrong(
        {f"{M}.registries.mirrors": {"*": {**MIRROR, "endpoints": ["http://0.0.0.0:5000"]}}},
        f"{M}.registries.mirrors.*.endpoints.0",
        "is no address of a server",
        {f"{M}.registries.mirrors": {"*": {**MIRROR, "endpoints": ["https://registry.site.example"]}}},
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
    "a domain of the cluster that hosts are in": Wrong(
        {f"{M}.networks.dns_domain": "site.example"},
        f"{M}.networks.dns_domain",
        "is also the domain of hub.site.example",
        {f"{M}.networks.dns_domain": "berlin.cluster"},
    ),
    "weights of an address without a bucket": Wrong(
        {"storage.weights": {"source": "bucket", "bucket": {"address": "https://s3.site.example"}}},
        "storage.weights.bucket",
        "is no address of a bucket",
        {"storage.weights": {"source": "mirror", "mirror": "https://hub.site.example"}},
    ),
    "weights of a mirror at no address": Wrong(
        {"storage.weights": {"source": "mirror", "mirror": "https://[fd00:::1]"}},
        "storage.weights.mirror",
        "names no host that there can be",
        {"storage.weights": {"source": "mirror", "mirror": "https://[fd00::1]:8443"}},
    ),
    "weights of a bucket that no source reads": Wrong(
        {"storage.weights": {"bucket": {"address": "https://s3.site.example/models"}}},
        "storage.weights",
        "source and bucket do not go together",
        {"storage.weights": {}},
    ),
    "weights of a bucket by a token": Wrong(
        {
            "storage.weights": {
                "source": "bucket",
                "bucket": {"address": "https://s3.site.example/models"},
                "token_secret": "hub-token",
            }
        },
        "storage.weights",
        "a bucket takes keys",
        {"storage.weights": {"token_secret": "hub-token"}},
    ),
    "weights of a registry by its name alone": Wrong(
        {"storage.weights": {"source": "oci", "oci": {"address": "oci://registry.site.example/models"}}},
        "storage.weights.oci",
        "is no address of a registry without credentials",
        {"storage.weights": {"source": "hub"}},
    ),
    "weights of a registry below capital letters": Wrong(
        {"storage.weights": {"source": "oci", "oci": {"address": "https://registry.site.example/Models/"}}},
        "storage.weights.oci",
        "has a path that no repository's name begins with; got /Models",
        {"storage.weights": {"source": "hub"}},
    ),
    "weights of a registry that no source reads": Wrong(
        {"storage.weights": {"oci": {"address": "https://registry.site.example"}}},
        "storage.weights",
        "source and oci do not go together; got source hub and a registry",
        {"storage.weights": {}},
    ),
    "weights of a source without its registry": Wrong(
        {"storage.weights": {"source": "oci"}},
        "storage.weights",
        "source and oci do not go together; got source oci and no registry",
        {"storage.weights": {}},
    ),
    "weights of a registry by a token": Wrong(
        {
            "storage.weights": {
                "source": "oci",
                "oci": {"address": "https://registry.site.example"},
                "token_secret": "hub-token",
            }
        },
        "storage.weights",
        "a registry takes a login",
        {"storage.weights": {"token_secret": "hub-token"}},
    ),
    "weights from the address of one repository": Wrong(
        {"storage.weights.mirror": "https://hub.site.example/zai-org/GLM-5.1-FP8"},
        "storage.weights.mirror",
        "is the address of one repository, glm-5-1's",
        {"storage.weights.mirror": "https://hub.site.example"},
    ),
    **{
        f"weights from {mirror}": Wrong(
            {"storage.weights.mirror": mirror}, "storage.weights.mirror", what, {"storage.weights.mirror": right}
        )
        for mirror, what, right in (
            ("https://hub..site.example", "names no host", "https://hub.site.example"),
            ("https://256.1.1.1", "names no host", "https://10.5.0.9"),
            ("https://hub.site.example:99999", "from 1 to 65535", "https://hub.site.example:8443"),
            ("https://hub.site.example:0", "from 1 to 65535", "https://hub.site.example"),
            ("http://hub.localhost", "is each replica itself", "https://hub.site.example"),
            ("https://224.0.0.1", "is no address of a server", "https://hub.site.example"),
            ("https://hub.site.example/api/models", "write https://hub.site.example", "https://hub.site.example"),
        )
    },
    **{
        f"charts from {mirror}": Wrong({"charts.mirror": mirror}, "charts.mirror", what, {"charts.mirror": right})
        for mirror, what, right in (
            ("oci://gateway-helm/Charts", "write oci://gateway-helm/charts", "oci://gateway-helm/charts"),
            (
                "oci://registry.site.example/Charts/gateway-helm",
                "write oci://registry.site.example/charts",
                "oci://registry.site.example/charts",
            ),
            ("gateway-helm-v1.9.1.tgz", "fix: write .", "."),
            ("oci://.../charts", "names no host", "oci://registry.site.example/charts"),
            ("oci://10.5.0.300/charts", "names no host", "oci://10.5.0.30/charts"),
            ("oci://registry.site.example:99999/charts", "from 1 to 65535", "oci://registry.site.example:5000/charts"),
            ("http://0.0.0.0/charts", "is no address of a server", "http://10.5.0.9/charts"),
            (
                "oci://registry.site.example/Charts",
                "write oci://registry.site.example/charts",
                "oci://registry.site.example/charts",
            ),
            (
                "oci://registry.site.example/charts/gateway-helm",
                "write oci://registry.site.example/charts",
                "oci://registry.site.example/charts",
            ),
            (
                "https://charts.site.example/index.yaml",
                "write https://charts.site.example",
                "https://charts.site.example",
            ),
        )
    },
    "charts from one chart": Wrong(
        {"charts.mirror": "https://charts.site.example/envoy-gateway-1.9.1.tgz"},
        "charts.mirror",
        "is one chart, and all are looked for there",
        {"charts.mirror": "https://charts.site.example"},
    ),
    "a login for a host that is not asked": Wrong(
        {f"{M}.registries.auth": {"registry.site.exmaple": {"username": "u", "password_secret": "p"}}},
        f"{M}.registries.auth.registry.site.exmaple",
        "did you mean 'registry.site.example'?",
        {f"{M}.registries.auth": {"registry.site.example": {"username": "u", "password_secret": "p"}}},
    ),
    "a registry that is the machine itself": Wrong(
        {f"{M}.static_hosts": {"127.0.0.1": ["registry.site.example"]}},
        f"{M}.static_hosts.127.0.0.1",
        "leads each machine that asks for registry.site.example to itself",
        {f"{M}.static_hosts": {"10.5.0.9": ["registry.site.example"]}},
    ),
    "a volume faster than a network card": Wrong(
        {"storage.read_bytes_per_s": 1.5e12},
        "storage.read_bytes_per_s",
        "allowed: a number from 1.0e+6 to 1.0e+11",
        {"storage.read_bytes_per_s": 5.0e8},
    ),
    "a volume that gives all replicas less than one of them": Wrong(
        {"storage.read_bytes_per_s": 1.5e9, "storage.shared_read_bytes_per_s": 1.0e9},
        "storage",
        "one replica reads no more than all do",
        {"storage.read_bytes_per_s": 1.0e9, "storage.shared_read_bytes_per_s": 1.0e9},
    ),
    "a fix that is not rounded": Wrong(
        {"storage.shared_read_bytes_per_s": 234_567_890},
        "storage",
        "lower read_bytes_per_s to 234567890, or",
        {"storage.read_bytes_per_s": 234_567_890},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {f"{M}.registries.mirrors": {"docker.io": {**MIRROR, "endpoints": ["http://10.80.0.50:5000"]}}},
        # Spegel listens on each node.
        {f"{M}.registries.mirrors": {"*": {"endpoints": ["http://127.0.0.1:29999"]}}},
        {"storage.weights.mirror": "http://10.80.0.60:8080"},
        {"storage.weights.mirror": "http://hub.models.svc.cluster.local"},
        {"storage.weights.mirror": "https://registry.site.example/artifactory/api/huggingface"},
        {f"{M}.registries.auth": {"registry.site.example:443": {"username": "u", "password_secret": "p"}}},
        {f"{M}.registries.mirrors": {"*": {"endpoints": ["https://registry.site.example"]}}},
        {f"{M}.static_hosts": {"127.0.0.1": ["localhost"], "10.5.0.9": ["registry.site.example"]}},
        {"charts.mirror": ".bundle/charts"},
        {"charts.mirror": "/srv/charts.d"},
        {"charts.mirror": "charts"},
    ],
)
def test_a_source_that_can_be_reached_is_taken(change: dict[str, Any]) -> None:
    assert plan_values(changed(prod(), change), "site.yaml").site


@pytest.mark.parametrize(
    ("key", "change", "budget_s"),
    [
        ("storage.read_bytes_per_s", {}, 200),
        ("storage.shared_read_bytes_per_s", {}, 200),
        ("storage.weights.node_read_bytes_per_s", ON_NODES, 125),
    ],
)
def test_a_rate_that_is_wrong_is_the_one_problem(key: str, change: dict[str, Any], budget_s: int) -> None:
    """The start budget is too short for the key's default, which no model is proven with."""
    budget = {"value": budget_s, "reason": "as it was measured"}
    site = changed(prod(), {**change, "models.qwen3-32b.overrides.start_budget_s": budget, key: "fast"})
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    assert [problem.key for problem in caught.value.problems] == [key]


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
        plan_values(changed(prod(), change), "site.yaml")
    (problem,) = caught.value.problems
    assert (problem.fix, problem.got) == (f"{fix} that is allowed", got)


def test_an_address_of_a_wrong_form_is_reported_once() -> None:
    for mirror in ("https://hub_site.example", "https://hub.site.example "):
        with pytest.raises(SiteError) as caught:
            plan_values(changed(prod(), {"storage.weights.mirror": mirror}), "site.yaml")
        assert [problem.fix for problem in caught.value.problems] == ["write it like https://hub.site.example"]
