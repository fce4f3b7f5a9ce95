"""The script that gives requests their tier, in the pinned Envoy, as Envoy Gateway hands it over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from components.tenants.tiers import caller_policy, objective_name, tiers_script
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER
from tests.lab.lone_envoy import envoy_with, listening

pytestmark = pytest.mark.row("002.15")

TIER_OF = {"acme": "interactive", "globex": "batch", "32": "batch", "acme-labs": "batch"}
# Envoy Gateway's name of the filter (internal/xds/translator/lua.go).
FILTER = "envoy.filters.http.lua/envoyextensionpolicy/g/tiers/lua/0"
_TYPE = "type.googleapis.com/envoy.extensions.filters"


def configuration(script: dict[str, Any]) -> dict[str, Any]:
    """Off in the listener and on by the route, which answers with the objective that the script has set."""
    per_route = {"@type": f"{_TYPE}.http.lua.v3.LuaPerRoute", "filter_context": script["filterContext"]}
    route = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200},
        "response_headers_to_add": [{"header": {"key": "objective", "value": f"%REQ({OBJECTIVE_HEADER})%"}}],
        "typed_per_filter_config": {FILTER: per_route},
    }
    lua = {"@type": f"{_TYPE}.http.lua.v3.Lua", "default_source_code": {"inline_string": script["inline"]}}
    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [
                {"name": FILTER, "disabled": True, "typed_config": lua},
                {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPE}.http.router.v3.Router"}},
            ],
        }
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Envoy with the script on a free port."""
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "inference"}
    (script,) = caller_policy("g", target, [tiers_script(TIER_OF)])["spec"]["lua"]
    with envoy_with(configuration(script), tmp_path_factory.mktemp("envoy")) as client:
        yield client


def objective(door: httpx.Client, **headers: str) -> str:
    answer = door.get("/", headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == 200
    return str(answer.headers.get("objective", "")).removeprefix("-")


@pytest.mark.parametrize(
    ("client", "tier"),
    [
        ("acme.laptop", "interactive"),
        ("acme.batch", "interactive"),
        ("globex.laptop", "batch"),
        ("32.x", "batch"),
        # Not the one whose name it begins with.
        ("acme-labs.laptop", "batch"),
    ],
)
def test_a_request_names_its_tenants_tier_and_its_model(door: httpx.Client, client: str, tier: str) -> None:
    chosen = objective(door, **{CLIENT_HEADER: client, MODEL_HEADER: "qwen3-32b"})
    assert chosen == objective_name(tier, "qwen3-32b")


def test_a_tenant_without_a_tier_names_none(door: httpx.Client) -> None:
    for client in ("initech.laptop", "acm.laptop", "laptop.acme", ".laptop", "ACME.laptop"):
        assert objective(door, **{CLIENT_HEADER: client, MODEL_HEADER: "m"}) == "", client


def test_a_request_without_a_model_names_none(door: httpx.Client) -> None:
    """GET /v1/models, and a model that the site does not serve."""
    assert objective(door, **{CLIENT_HEADER: "acme.laptop"}) == ""
    assert objective(door, **{MODEL_HEADER: "m"}) == ""


def test_what_stood_there_before_is_replaced(door: httpx.Client) -> None:
    """Two values in one header would be for the picker to interpret."""
    claim = {OBJECTIVE_HEADER: "interactive.m"}
    assert objective(door, **{CLIENT_HEADER: "globex.laptop", MODEL_HEADER: "m"}, **claim) == "batch.m"
