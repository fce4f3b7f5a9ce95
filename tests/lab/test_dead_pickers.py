"""Pickers that do not answer, in the pinned Envoy: the client gets an error that asks for another try."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.gateway.connections import cluster
from components.gateway.door_scripts import script
from components.gateway.gateway_errors import openai_errors
from components.gateway.pickers import Picker, asking
from components.gateway.traffic_policies import target_gateway
from floor.headers import CLIENT_HEADER
from tests.lab.lone_envoy import envoy_with, listening

pytestmark = pytest.mark.row("001.29", "003.20")

_TYPE = "type.googleapis.com/envoy.extensions"


@contextmanager
def picker(behaviour: str) -> Iterator[int]:
    """Port of a picker that is gone, closes each connection, or takes everything and answers nothing."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken, _ = server.accept()
                    taken.recv(1)
                    if behaviour == "closes":
                        taken.close()
                    held.append(taken)

        if behaviour == "gone":
            server.close()
        else:
            threading.Thread(target=serve, daemon=True).start()
        yield port
        if behaviour != "gone":
            server.shutdown(socket.SHUT_RDWR)
    for taken in held:
        taken.close()


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
    qwen = Picker(pool="qwen", namespace="m", authority=f"127.0.0.1:{port}", parallel=1024)
    made = asking(qwen)
    # The time limit of a message holds for a body that is sent whole, as to the AI gateway's processor. A picker gets
    # its body streamed: test_a_picker_that_hangs_holds_no_request has a real one.
    mode = made["typed_config"]["processing_mode"] | {"request_body_mode": "BUFFERED", "request_trailer_mode": "SKIP"}
    whole = {"processing_mode": mode, "message_timeout": "0.5s"} if silent else {}
    asked = {**made["typed_config"], **whole}
    errors = openai_errors("g", target_gateway(), listener="g/i/i", tls=False)["spec"]["jsonPatches"][0]
    lua = {"@type": f"{_TYPE}.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": script()}}
    # This picker has no certificate.
    plain = {key: value for key, value in cluster(qwen.connection).items() if key != "transport_socket"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": qwen.connection.name}}
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
        clusters=[plain],
    )
