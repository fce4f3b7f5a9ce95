"""Pickers that do not answer, in the pinned Envoy: the client gets an error that asks for another try."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.gateway.envoy_names import picker_cluster
from components.gateway.front_door import Picker, asking, script
from components.gateway.gateway import target_gateway
from components.gateway.gateway_errors import openai_errors
from floor.headers import CLIENT_HEADER
from tests.lab.lone_envoy import envoy_with, listening

pytestmark = pytest.mark.row("001.29", "003.20")

_TYPE = "type.googleapis.com/envoy.extensions"
_HTTP2 = f"{_TYPE}.upstreams.http.v3.HttpProtocolOptions"


@contextmanager
def picker(behaviour: str) -> Iterator[int]:
    """Port of a picker that is gone, closes each connection, or takes everything and answers nothing."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(1)
                    if behaviour == "closes":
                        connection.close()
                    held.append(connection)

        if behaviour == "gone":
            server.close()
        else:
            threading.Thread(target=serve, daemon=True).start()
        yield port
        if behaviour != "gone":
            server.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


@pytest.mark.parametrize("behaviour", ["gone", "closes", "silent"])
def test_a_picker_that_does_not_answer_means_try_again(behaviour: str, tmp_path: Path) -> None:
    with picker(behaviour) as port, envoy_with(_configuration(port, silent=behaviour == "silent"), tmp_path) as client:
        client.headers[CLIENT_HEADER] = "acme.laptop"
        answer = client.post("/v1/chat/completions", json={"model": "qwen", "messages": []})
    assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), answer.text
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("gateway_unavailable", "server_error")


def _configuration(port: int, *, silent: bool) -> dict[str, object]:
    """The front door's script, the filter that asks a picker, and the gateway's errors, as the program makes them."""
    made = asking(Picker(pool="qwen", namespace="m", authority="picker"))
    # Envoy waits without end for a picker that takes a streamed body. The AI gateway's processor has it as a whole.
    mode = made["typed_config"]["processing_mode"] | {"request_body_mode": "BUFFERED", "request_trailer_mode": "SKIP"}
    whole = {"processing_mode": mode, "message_timeout": "0.5s"} if silent else {}
    asked = {**made["typed_config"], **whole}
    errors = openai_errors("g", target_gateway(), listener="g/i/i", tls=False)["spec"]["jsonPatches"][0]
    lua = {"@type": f"{_TYPE}.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": script()}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    name = picker_cluster("qwen", "m")
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}
    cluster = {
        "name": name,
        "type": "STATIC",
        "load_assignment": assignment,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP2,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
    }
    route = {"match": {"prefix": "/"}, "route": {"cluster": name}}
    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "local_reply_config": errors["operation"]["value"],
            "http_filters": [
                {"name": "front-door", "typed_config": lua},
                {"name": made["name"], "typed_config": asked},
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"},
                },
            ],
        },
        clusters=[cluster],
    )
