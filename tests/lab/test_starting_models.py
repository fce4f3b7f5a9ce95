"""Requests for a model that may have no replica, in the pinned Envoy: whose refusal gets the time of its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.gateway.door_scripts import script
from components.gateway.gateway_errors import openai_errors
from components.gateway.pickers import Picker, picker_policy
from components.gateway.traffic_policies import target_gateway
from components.specs.model_server import ZeroPlan
from floor.headers import CLIENT_HEADER, MODEL_HEADER
from tests.lab.lone_envoy import envoy_with, listening

pytestmark = pytest.mark.row("001.30", "000.34")

_TYPE = "type.googleapis.com/envoy.extensions"
# As a picker that has no replica to choose: an answer of its own, behind the front door.
_REFUSES = 'function envoy_on_request(r) r:respond({[":status"] = "503"}, "no candidate") end'
ZERO = ZeroPlan(cooldown_s=900, start_s=178, retry_after_s=60)


@pytest.mark.parametrize(
    ("refused", "zero", "code", "after"),
    [
        (True, ZERO, "model_starting", "60"),
        # A replica that does not answer is one.
        (False, ZERO, "model_unavailable", "5"),
        (True, None, "model_unavailable", "5"),
    ],
    ids=["without-a-replica", "with-a-dead-replica", "another-model"],
)
def test_only_a_model_without_a_replica_is_starting(
    refused: bool, zero: ZeroPlan | None, code: str, after: str, tmp_path: Path
) -> None:
    with envoy_with(_configuration(refused=refused, zero=zero), tmp_path) as client:
        client.headers.update({CLIENT_HEADER: "acme.laptop", MODEL_HEADER: "chat"})
        answer = client.post("/v1/chat/completions", json={"model": "chat", "messages": []})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], answer.headers["retry-after"]) == (503, code, after), answer.text
    assert ("takes about 178 seconds" in error["message"]) == (code == "model_starting")
    assert not [name for name in answer.headers if name.startswith("x-inference")]


def _configuration(*, refused: bool, zero: ZeroPlan | None) -> dict[str, object]:
    """The front door's script, the gateway's errors and what the model's route adds, as the program makes them."""
    errors = openai_errors("g", target_gateway(), listener="g/i/i", tls=False, starts=True)["spec"]["jsonPatches"][0]
    picker = Picker(pool="chat", namespace="m", authority="p.m.svc:9002", parallel=8, zero=zero)
    patches = picker_policy("g", target_gateway(), listener="g/i/i", picker=picker)["spec"]["jsonPatches"]
    of_route = [patch["operation"] for patch in patches if "routes" in patch["operation"].get("jsonPath", "")]
    added = {op["path"].strip("/"): op["value"] for op in of_route if op["path"] == "/response_headers_to_add"}
    scripts = [script(), *([_REFUSES] if refused else [])]
    return listening(
        {
            "route_config": {
                "virtual_hosts": [
                    {
                        "name": "all",
                        "domains": ["*"],
                        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "replicas"}, **added}],
                    }
                ]
            },
            "local_reply_config": errors["operation"]["value"],
            "http_filters": [
                *(
                    {
                        "name": f"script-{number}",
                        "typed_config": {
                            "@type": f"{_TYPE}.filters.http.lua.v3.Lua",
                            "default_source_code": {"inline_string": text},
                        },
                    }
                    for number, text in enumerate(scripts)
                ),
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"},
                },
            ],
        },
        clusters=[{"name": "replicas", "type": "STATIC", "connect_timeout": "1s"}],
    )
