"""The script that names a client's nearest limit in OpenAI's words, in the pinned Envoy, out of Envoy's own headers.

Simulated: the limit service's part, as Envoy writes it (v1.39, source/extensions/filters/http/ratelimit), by the route.
tests/lab/site/test_limits.py has the real one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from components.gateway.envoy_names import DECISIONS
from components.specs.limits import MOST_COUNTED
from components.tenants.limit_scripts import limits_script, streams_script
from components.tenants.tiers import caller_policy
from floor.headers import CLIENT_HEADER
from tests.lab.lone_envoy import envoy_with, listening

pytestmark = pytest.mark.row("000.32", "001.14", "004.03")

LIMITS: dict[str, dict[str, int]] = {
    "acme": {
        "requests_per_minute": 600,
        "tokens_per_minute": 200_000,
        "tokens_per_day": 5_000_000,
        "keys.laptop.requests_per_minute": 30,
        "models.chat.tokens_per_hour": 70_000,
    },
    "even": {"requests_per_minute": 1000, "tokens_per_minute": 1000},
    "daily": {"requests_per_minute": 1000, "tokens_per_day": 1000},
}
NAMES = ("limit", "remaining", "reset")
ENVOYS = [f"x-ratelimit-{name}" for name in NAMES]
_FILTER = "envoy.filters.http.lua/envoyextensionpolicy/g/tiers/lua/0"
_TYPE = "type.googleapis.com/envoy.extensions.filters"


def configuration(script: Mapping[str, Any], decided: Mapping[str, Any]) -> dict[str, Any]:
    """Answers have Envoy's three headers where the request has their values. decided: what a gatekeeper hands on."""
    route: dict[str, Any] = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200},
        "response_headers_to_add": [
            {"header": {"key": f"x-ratelimit-{name}", "value": f"%REQ({name})%"}, "keep_empty_value": False}
            for name in NAMES
        ],
    }
    if "filterContext" in script:
        per_route = {"@type": f"{_TYPE}.http.lua.v3.LuaPerRoute", "filter_context": script["filterContext"]}
        route["typed_per_filter_config"] = {_FILTER: per_route}
    lua = {"@type": f"{_TYPE}.http.lua.v3.Lua", "default_source_code": {"inline_string": script["inline"]}}
    handed = {
        "@type": f"{_TYPE}.http.set_metadata.v3.Config",
        "metadata": [{"metadata_namespace": DECISIONS, "value": dict(decided)}] if decided else [],
    }
    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [
                {"name": "decided", "typed_config": handed},
                {"name": _FILTER, "typed_config": lua},
                {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}.http.router.v3.Router"}},
            ],
        }
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a site without a gatekeeper: the script itself hands on tenants' limits."""
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference"}
    (script,) = caller_policy("g", target, [limits_script(LIMITS)])["spec"]["lua"]
    with envoy_with(configuration(script, {}), tmp_path_factory.mktemp("envoy")) as client:
        yield client


def named(door: httpx.Client, limit: str, left: int, reset: int, tenant: str = "acme") -> dict[str, str]:
    """The answer's headers of a limit, by what is behind `x-ratelimit-`."""
    given = {CLIENT_HEADER: f"{tenant}.laptop", "limit": limit, "remaining": str(left), "reset": str(reset)}
    answer = door.get("/", headers=given)
    assert answer.status_code == 200
    read = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit-")}
    assert not read.keys() & set(ENVOYS)
    return {name.removeprefix("x-ratelimit-"): value for name, value in read.items()}


@pytest.mark.parametrize(
    ("limit", "left", "reset", "what", "duration"),
    [
        ("600, 600;w=60, 200000;w=60, 5000000;w=86400", 599, 7, "requests", "7s"),
        ("200000, 600;w=60, 200000;w=60, 5000000;w=86400", 0, 60, "tokens", "1m0s"),
        ("5000000, 600;w=60, 200000;w=60, 5000000;w=86400", 123, 86399, "tokens", "23h59m59s"),
        # Of the key, and of the model.
        ("30, 600;w=60, 30;w=60", 29, 1, "requests", "1s"),
        ("70000, 600;w=60, 70000;w=3600", 9, 360, "tokens", "6m0s"),
    ],
)
def test_the_nearest_limit_has_the_name_of_what_it_counts(
    door: httpx.Client, limit: str, left: int, reset: int, what: str, duration: str
) -> None:
    values = (limit.partition(",")[0], str(left), duration)
    assert named(door, limit, left, reset) == {
        f"{name}-{what}": value for name, value in zip(NAMES, values, strict=True)
    }


@pytest.mark.parametrize(
    ("tenant", "reset", "what"),
    [
        ("even", 30, "tokens"),
        ("daily", 30, "requests"),
        # No minute is that long.
        ("daily", 61, "tokens"),
    ],
)
def test_of_two_limits_with_one_number_the_likelier_is_named(
    door: httpx.Client, tenant: str, reset: int, what: str
) -> None:
    assert set(named(door, "1000, 1000;w=60", 5, reset, tenant)) == {f"{name}-{what}" for name in NAMES}


def test_who_has_no_limit_reads_none(door: httpx.Client) -> None:
    """Envoy counts also those, up to the largest number."""
    assert named(door, f"{MOST_COUNTED}, {MOST_COUNTED};w=60", MOST_COUNTED - 1, 30, tenant="initech") == {}
    assert named(door, f"{MOST_COUNTED}, {MOST_COUNTED};w=60", MOST_COUNTED - 1, 30) == {}
    # A number that no limit of the tenant has: it is not known what it counts.
    assert named(door, "599, 599;w=60", 5, 30) == {}


def test_an_answer_that_was_not_counted_has_none(door: httpx.Client) -> None:
    answer = door.get("/", headers={CLIENT_HEADER: "acme.laptop"})
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


@pytest.mark.parametrize("metered", [False, True])
def test_limits_that_a_gatekeeper_hands_on_are_named_too(tmp_path: Path, *, metered: bool) -> None:
    limit = {"requests_per_unit": 70_000, "unit": "HOUR"}
    decided = {"listed": "{}", "prompt": 5, "body": {"tenant": "acme"}, "models.chat.tokens_per_hour": limit}
    script = streams_script(limited=True, metered=metered)
    with envoy_with(configuration(script, decided), tmp_path) as client:
        assert named(client, "70000, 70000;w=3600", 9, 360) == {
            "limit-tokens": "70000",
            "remaining-tokens": "9",
            "reset-tokens": "6m0s",
        }
