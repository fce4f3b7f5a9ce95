"""`gateway-authenticates` where a gatekeeper decides about callers, with the objects that the program makes."""

from __future__ import annotations

from typing import Any

import pytest

from components.gateway.front_door import front_door
from components.gateway.gateway import gateway
from components.gateway.traffic_policies import target_gateway
from components.specs.gateway import GatewaySpec
from components.specs.portal import PortalSpec
from components.tenants import portal
from components.tenants.gatekeeper import gatekeeper_connection
from policy.model import Resource
from policy.serving import gateway_authenticates
from tests.unit.rules.broken_sites import FACTS

FROM_ALL = {"allowedRoutes": {"namespaces": {"from": "All"}}}
PORTAL = PortalSpec(hostname="p.example", port=80, issuer="https://login.example", client_secret="login")


def problems(*, decided: bool, **settings: bool) -> list[str]:
    """Problems of a gateway without a SecurityPolicy. settings: of the filter that asks."""
    policy = front_door(
        "g",
        target_gateway(),
        listener="g/i/i",
        port=8443,
        tls=False,
        gatekeeper=gatekeeper_connection("g", 10),
        decided=decided,
    )
    for patch in policy["spec"]["jsonPatches"]:
        value: Any = patch["operation"].get("value")
        if isinstance(value, dict) and "ExtAuthz" in str(value.get("typed_config")):
            value["typed_config"] |= settings
    bodies = (gateway("g", GatewaySpec(port=80)), policy)
    resources = [Resource(type=f"kubernetes:x/v1:{body['kind']}", name="x", body=body) for body in bodies]
    return [finding.problem for finding in gateway_authenticates(resources, FACTS)]


def test_a_gatekeeper_asks_callers_for_a_key() -> None:
    assert problems(decided=True) == []


@pytest.mark.parametrize(("decided", "settings"), [(False, {}), (True, {"failure_mode_allow": True})])
def test_one_that_is_not_waited_for_does_not(decided: bool, settings: dict[str, bool]) -> None:
    (problem,) = problems(decided=decided, **settings)
    assert "no filter asks a service about them" in problem


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        (lambda _gateway, _route: None, False),
        (lambda _gateway, route: route["spec"]["rules"][1]["backendRefs"][0].update(kind="InferencePool"), True),
        (
            lambda gateway, _route: gateway["spec"]["listeners"][0]["allowedRoutes"]["namespaces"].update(
                {"from": "All"}
            ),
            True,
        ),
        (lambda _gateway, route: route.update(kind="AIGatewayRoute"), True),
    ],
)
def test_a_portal_s_gateway_needs_no_key_while_no_model_is_behind_it(change: Any, is_refused: bool) -> None:
    bodies = (portal.gateway("g", PORTAL), portal.route("g", PORTAL))
    change(*bodies)
    resources = [Resource(type=f"kubernetes:x/v1:{body['kind']}", name="x", body=body) for body in bodies]
    assert bool(list(gateway_authenticates(resources, FACTS))) == is_refused
