"""The front door's policy: what of it depends on tenants, what on models, and what on nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from components.gateway.door_scripts import script
from components.gateway.envoy_names import KEY_FILTER, door_port
from components.gateway.front_door import first_filters, front_door, listed_models
from components.gateway.gateway import envoy_proxy
from components.gateway.gateway_errors import ERROR_STATUSES, openai_errors
from components.gateway.gateway_protection import admission_policy
from components.gateway.pickers import Picker, picker_policy
from components.gateway.traffic_policies import client_traffic_policy, target_gateway
from components.tenants.access import security_policy
from components.tenants.model_list import model_list
from floor.headers import CLIENT_HEADER, REFUSAL_HEADER, TRUSTED_HEADERS
from floor.metadata import PROTECTED
from stacks.plan.site_plan import plan_file

pytestmark = pytest.mark.row("004.11")
ROOT = Path(__file__).parents[3]
PLAN = plan_file(ROOT / "Pulumi.lab.yaml")
SITE = PLAN.site


def door(*, tls: bool = False) -> dict[str, Any]:
    return front_door("g", target_gateway(), listener="g/i/i", port=8443, tls=tls)


def of_picker(model: str) -> dict[str, Any]:
    picker = Picker(pool=model, namespace="m", authority=f"{model}-epp.m.svc:9002", parallel=9000)
    return picker_policy("g", target_gateway(), listener="g/i/i", picker=picker)


def lists(**model_lists: str) -> dict[str, Any]:
    aliases = {"chat-4.5": "chat"}
    return listed_models("g", target_gateway(), listener="g/i/i", model_lists=model_lists, names=aliases)


def patches(policy: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [patch["operation"] for patch in policy["spec"]["jsonPatches"] if patch["type"].endswith(kind)]


def test_tenants_are_in_routes_alone() -> None:
    """A changed listener is replaced, and cuts streams that outlast its drain time."""
    policy = lists(acme=model_list({"chat": "us"}))
    assert "chat" in json.dumps(policy)
    assert not patches(policy, ".Listener")
    assert patches(policy, ".RouteConfiguration")


def test_keys_are_asked_for_first_and_none_is_known() -> None:
    method, first, *_ = first_filters()
    assert method["typed_config"]["@type"].endswith(".header_to_metadata.v3.Config"), "answers nothing itself"
    assert first["name"] == KEY_FILTER
    assert not first.get("disabled")
    assert "credentials" not in first["typed_config"]


def test_no_site_may_take_more_than_the_limit_without_a_policy() -> None:
    _, _, limit, *_ = first_filters()
    assert PLAN.body_kib * 1024 <= limit["typed_config"]["max_request_bytes"]


def test_a_picker_is_asked_on_the_route_of_its_model_alone() -> None:
    policy = of_picker("chat")
    (placed,) = patches(policy, ".Listener")
    assert placed["value"]["disabled"] is True
    (switched,) = patches(policy, ".RouteConfiguration")
    assert "m/chat/" in switched["jsonPath"]
    assert placed["value"]["name"].replace("/", "~1") in switched["path"]
    assert policy["spec"]["priority"] > door()["spec"].get("priority", 0), "its place is between the door's filters"


def test_no_answer_depends_on_a_picker_and_another_is_asked_in_its_place() -> None:
    (asking,) = [operation["value"]["typed_config"] for operation in patches(of_picker("chat"), ".Listener")]
    mode = asking["processing_mode"]
    assert (mode["response_header_mode"], mode["response_body_mode"]) == ("SKIP", "NONE")
    again = asking["grpc_service"]["retry_policy"]
    assert again["retry_on"] == "reset"
    assert [predicate["name"] for predicate in again["retry_host_predicate"]] == [
        "envoy.retry_host_predicates.previous_hosts"
    ]


def test_a_silent_connection_to_a_picker_is_tried_and_carries_what_the_gateway_does() -> None:
    (cluster,) = [operation["value"] for operation in patches(of_picker("chat"), ".Cluster")]
    (asking,) = [operation["value"]["typed_config"] for operation in patches(of_picker("chat"), ".Listener")]
    assert asking["grpc_service"]["envoy_grpc"]["cluster_name"] == cluster["name"]
    assert cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] == {
        "address": "chat-epp.m.svc",
        "port_value": 9002,
    }
    assert set(cluster["circuit_breakers"]["thresholds"][0].values()) == {9000}
    (options,) = cluster["typed_extension_protocol_options"].values()
    alive = options["explicit_http_config"]["http2_protocol_options"]["connection_keepalive"]
    assert alive.keys() == {"connection_idle_interval", "timeout"}, "gRPC's server refuses pings by the clock"


def test_the_place_of_the_filters_follows_tls() -> None:
    for tls, chain in ((False, "/default_filter_chain/"), (True, "/filter_chains/0/")):
        placed = [
            patch["path"]
            for patch in patches(door(tls=tls), ".Listener")
            if not patch.get("path", "/address").startswith("/address")
        ]
        assert placed
        assert all(path.startswith(chain) for path in placed)


def test_nothing_leads_to_a_listener_without_the_front_door() -> None:
    """Envoy Gateway's own port is another one, whatever the Gateway's."""
    for port in (80, 443, 1024, 8443, 8444, 65_535):
        assert door_port(port) not in {port, port + 10_000}
    spec = SITE.gateway
    service = envoy_proxy("g", spec, drain_s=60)["spec"]["provider"]["kubernetes"]["envoyService"]
    moved = next(
        patch["operation"]["value"]
        for patch in door()["spec"]["jsonPatches"]
        if patch["operation"].get("path") == "/address/socket_address/port_value"
    )
    assert service["patch"]["value"]["spec"]["ports"] == [{"port": spec.port, "targetPort": moved}]


def test_clients_cannot_send_what_the_script_trusts() -> None:
    assert {CLIENT_HEADER, REFUSAL_HEADER} <= set(TRUSTED_HEADERS)
    removed = client_traffic_policy("g", SITE.gateway)["spec"]["headers"]["earlyRequestHeaders"]["remove"]
    assert set(TRUSTED_HEADERS) <= set(removed)


def test_the_script_knows_the_status_of_every_error() -> None:
    """An error that Envoy has put into gRPC's form gets it back by its code."""
    policy = openai_errors("g", target_gateway(), listener="g/i/i", tls=False)
    mapped = re.findall(r'"code": "(\w+)"', json.dumps(policy))
    own = re.findall(r'refuse\(request, "(\d+)", "(\w+)"', script())
    assert mapped
    assert own
    assert set(mapped) <= set(ERROR_STATUSES)
    assert {(code, int(status)) for status, code in own} <= set(ERROR_STATUSES.items())


def test_a_list_holds_the_models_that_it_is_given() -> None:
    listed = json.loads(model_list({"b": "us", "a": "them"}))
    assert [(card["id"], card["owned_by"]) for card in listed["data"]] == [("a", "them"), ("b", "us")]


def test_what_opens_the_door_carries_the_label_that_is_protected() -> None:
    opening = (
        door(),
        lists(),
        security_policy("g", target_gateway(), SITE.tenants, list(SITE.models)),
        client_traffic_policy("g", SITE.gateway),
        openai_errors("g", target_gateway(), listener="g/i/i", tls=False),
    )
    assert all(body["metadata"]["labels"] == PROTECTED for body in opening)
    kinds = admission_policy(["g"], "stack")["spec"]["matchConstraints"]["resourceRules"][0]["resources"]
    assert {body["kind"].lower().removesuffix("y") + "ies" for body in opening} <= set(kinds)
