"""The front door's script in the pinned Envoy: what it leaves of a request and of its answer for the request log."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from components.gateway.door_scripts import script
from components.gateway.request_log import request_log
from components.specs.request_log import RequestLogSpec
from floor.headers import CLIENT_HEADER, PROMPT_ID_HEADER
from lab.paths import CHECKOUT
from tests.lab.lone_envoy import envoy_with, listening
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.29", "003.20")

VLLM = json.loads((CHECKOUT / "tests" / "fixtures" / "vllm" / "full_engine.json").read_text())
_REFUSED = [event if event == "[DONE]" else json.dumps(event) for event in VLLM["streamed"]["events"]]
_CHUNK = json.dumps({"choices": [{"delta": {"content": '{"error": {"code": 503}}'}}]})
STREAMS = {
    "refused": _REFUSED,
    # As Go writes JSON.
    "refused-by-the-simulator": [text.replace(": ", ":").replace(", ", ",") for text in _REFUSED],
    "refused-without-code": ['{"error": {"message": "no"}}', "[DONE]"],
    "answered": [_CHUNK, "[DONE]"],
    "broken-later": [_CHUNK, *_REFUSED],
    "empty": [],
}
_TYPE = "type.googleapis.com/envoy.extensions"


class _Engine(BaseHTTPRequestHandler):
    """Answers with the stream that the request's model names, event by event."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.headers.append(dict(self.headers))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for text in STREAMS[asked["model"]]:
            event = f"data: {text}\n\n".encode()
            self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@dataclass(frozen=True, kw_only=True)
class Door:
    client: httpx.Client
    log: Path
    seen: list[dict[str, str]]
    """Headers of the requests that came to the engine."""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def line(self, mark: str) -> dict[str, Any]:
        """What is logged of the request with this user agent."""

        def there() -> bool:
            return any(line["user-agent"] == mark for line in self.lines())

        eventually(there)
        return next(line for line in self.lines() if line["user-agent"] == mark)


def configuration(log: Path, engine: int) -> dict[str, Any]:
    fields = request_log(RequestLogSpec())["format"]["json"]
    written = {"@type": f"{_TYPE}.access_loggers.file.v3.FileAccessLog", "path": str(log)}
    # Envoy Gateway adds it where a format needs it.
    formatter = {
        "name": "envoy.formatter.req_without_query",
        "typed_config": {"@type": f"{_TYPE}.formatter.req_without_query.v3.ReqWithoutQuery"},
    }
    lua = {"@type": f"{_TYPE}.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": script()}}
    router = {"@type": f"{_TYPE}.filters.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "engine"}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": engine}}
    assignment = {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}
    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "access_log": [
                {
                    "name": "envoy.access_loggers.file",
                    "typed_config": {**written, "log_format": {"json_format": fields, "formatters": [formatter]}},
                }
            ],
            "http_filters": [
                {"name": "front-door", "typed_config": lua},
                {"name": "envoy.filters.http.router", "typed_config": router},
            ],
        },
        clusters=[{"name": "engine", "type": "STATIC", "load_assignment": assignment}],
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("envoy")
    engine = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    seen: list[dict[str, str]] = []
    engine.headers = seen  # type: ignore[attr-defined]
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    try:
        with envoy_with(configuration(folder / "requests", engine.server_port), folder) as client:
            client.headers[CLIENT_HEADER] = "acme.laptop"
            yield Door(client=client, log=folder / "requests", seen=seen)
    finally:
        engine.shutdown()
        engine.server_close()


def ask(door: Door, mark: str, *, model: str = "answered", **headers: str) -> httpx.Response:
    named = {"user-agent": mark, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return door.client.post("/v1/chat/completions", json={"model": model, "stream": True}, headers=named)


@pytest.mark.parametrize("model", list(STREAMS))
def test_a_stream_is_passed_on_as_it_came(door: Door, model: str) -> None:
    answer = ask(door, f"passed-{model}", model=model)
    assert answer.status_code == 200
    assert answer.text == "".join(f"data: {text}\n\n" for text in STREAMS[model])


@pytest.mark.parametrize(
    ("model", "status"),
    [
        ("refused", "503"),
        ("refused-by-the-simulator", "503"),
        ("refused-without-code", "500"),
        # What the answer itself says is none of the gateway's business.
        ("answered", None),
        ("broken-later", None),
        ("empty", None),
    ],
)
def test_a_stream_that_begins_with_an_error_is_logged_with_its_status(
    door: Door, model: str, status: str | None
) -> None:
    ask(door, f"logged-{model}", model=model)
    line = door.line(f"logged-{model}")
    assert line["response_code"] == 200
    assert line["stream_error"] == status


def test_openais_client_raises_for_such_a_stream(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    headers = {CLIENT_HEADER: "acme.laptop"}
    url = str(door.client.base_url.join("/v1"))
    with openai.OpenAI(base_url=url, api_key="-", max_retries=0, default_headers=headers) as client:
        chunks = client.chat.completions.create(model="refused", messages=[], stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(chunks)
    assert caught.value.message == VLLM["whole"]["body"]["error"]["message"]
    assert caught.value.body == VLLM["whole"]["body"]["error"]


@pytest.mark.parametrize(
    "prompt_id",
    ["customer_support_v2", "7", "a.b-c_d", "0b0fcf1e-6d1f-4d7f-9d0f-3a5d3f1c2b4a", "x" * 64],
)
def test_a_clients_id_of_its_prompt_is_noted_and_passed_to_no_engine(door: Door, prompt_id: str) -> None:
    mark = f"named-{prompt_id}"
    ask(door, mark, x_prompt_id=prompt_id)
    assert door.line(mark)["prompt_id"] == prompt_id
    assert not any(PROMPT_ID_HEADER in map(str.lower, headers) for headers in door.seen)


@pytest.mark.parametrize(
    "prompt_id",
    [
        "What is the capital of France?",
        "x" * 65,
        "sk-0123456789abcdefghij",
        "-XUy8Ahk3bIqpuc1Sg",
        "customer_support_v2, and more",
        "Support",
        "",
        '","client":"other',
    ],
)
def test_what_is_no_id_of_a_prompt_is_not_noted(door: Door, prompt_id: str) -> None:
    mark = f"unnamed-{len(prompt_id)}-{prompt_id[:4].strip()}"
    assert ask(door, mark, x_prompt_id=prompt_id).status_code == 200
    line = door.line(mark)
    assert line["prompt_id"] is None
    assert line["client"] == "acme.laptop"
    assert not prompt_id or prompt_id not in json.dumps(line)
    assert not any(PROMPT_ID_HEADER in map(str.lower, headers) for headers in door.seen)
