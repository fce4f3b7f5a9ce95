"""What breaks HTTP or OpenAI's API is refused at once, in OpenAI's form, and no answer tells of the inside."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest

from components.gateway.door_scripts import MODEL_PATHS
from floor.headers import INNER_HEADERS
from tests.lab.site.raw_http import Answer, everything, http1, send, send_http2
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import PROTOCOLS

pytestmark = pytest.mark.row("004.11", "000.34")
MODEL = "qwen3-32b"
QUESTION = json.dumps(chat(MODEL)).encode()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A request, and what the gateway says of it; no code where it is served."""

    request: Callable[[str], bytes]
    """Key -> bytes."""
    status: int
    code: str | None = None


def _headers(count: int) -> bytes:
    return b"".join(b"x-extra-%d: 1\r\n" % number for number in range(count))


CASES = {
    "http/1.0": Case(request=lambda key: http1(key, version="1.0", body=QUESTION), status=200),
    "110 headers": Case(request=lambda key: http1(key, headers=_headers(110), body=QUESTION), status=200),
    "underscore": Case(request=lambda key: http1(key, headers=b"x_trace: 1\r\n", body=QUESTION), status=200),
    "query": Case(request=lambda key: http1(key, path="/v1/chat/completions?a=b", body=QUESTION), status=200),
    "300 headers": Case(request=lambda key: http1(key, headers=_headers(300)), status=431, code="headers_too_large"),
    "length and chunks": Case(
        request=lambda key: http1(key, headers=b"Transfer-Encoding: chunked\r\n"), status=400, code="invalid_request"
    ),
    "nul": Case(request=lambda key: http1(key, headers=b"x-a: b\0c\r\n"), status=400, code="invalid_request"),
    "no http": Case(request=lambda _: b"\x16\x03\x01 \r\n\r\n", status=400, code="invalid_request"),
    "connect": Case(
        request=lambda key: (
            b"CONNECT models:443 HTTP/1.1\r\nHost: models\r\nAuthorization: Bearer %b\r\n\r\n" % key.encode()
        ),
        status=400,
        code="upgrade_not_supported",
    ),
    "two hosts": Case(
        request=lambda key: http1(key, headers=b"Host: others\r\n", body=QUESTION), status=400, code="invalid_request"
    ),
    "two hosts, and no body": Case(
        request=lambda key: http1(key, method="GET", path="/v1/models", headers=b"Host: others\r\n", body=b""),
        status=400,
        code="invalid_request",
    ),
    "websocket": Case(
        request=lambda key: http1(
            key, method="GET", path="/v1/models", headers=b"Connection: Upgrade\r\nUpgrade: websocket\r\n", body=b""
        ),
        status=400,
        code="upgrade_not_supported",
    ),
    "control character": Case(
        request=lambda key: http1(key, body=json.dumps(chat("qwen3\n32b")).encode()), status=400, code="invalid_value"
    ),
    "put": Case(request=lambda key: http1(key, method="PUT", body=QUESTION), status=405, code="method_not_allowed"),
    "get": Case(request=lambda key: http1(key, method="GET", body=b""), status=405, code="method_not_allowed"),
    "delete": Case(
        request=lambda key: http1(key, method="DELETE", path="/v1/models", body=b""),
        status=405,
        code="method_not_allowed",
    ),
    "trace": Case(
        request=lambda key: http1(key, method="TRACE", body=b"", length=False), status=405, code="method_not_allowed"
    ),
    "unknown path": Case(
        request=lambda key: http1(key, path="/v1/nothing", body=QUESTION), status=404, code="unknown_path"
    ),
    "get an unknown path": Case(
        request=lambda key: http1(key, method="GET", path="/metrics", body=b""), status=404, code="unknown_path"
    ),
    "empty body": Case(request=lambda key: http1(key, body=b""), status=400, code="invalid_request"),
    "empty chunks": Case(
        request=lambda key: http1(key, headers=b"Transfer-Encoding: chunked\r\n", body=b"0\r\n\r\n", length=False),
        status=400,
        code="invalid_request",
    ),
}


def reveals(answer: Answer) -> list[str]:
    """Headers of the answer that tell of the inside."""
    return [name for name in answer.headers if name.startswith(INNER_HEADERS)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_request_has_its_answer(site: Site, case: Case) -> None:
    """On the wire, since no library sends these."""
    answer = send(site.address, case.request(site.key))
    assert answer.status == case.status, answer
    assert not reveals(answer)
    if case.code:
        assert answer.error["code"] == case.code
    if case.status == 405:
        assert answer.headers["allow"] in {"GET", "POST"}


@pytest.mark.parametrize(
    ("length", "status", "code"),
    [
        (300, 404, "model_not_found"),
        (50_000, 404, "model_not_found"),
        (70_000, 400, "invalid_value"),
        (2_000_000, 400, "invalid_value"),
    ],
)
def test_long_names_of_models_are_errors_of_the_client(site: Site, length: int, status: int, code: str) -> None:
    """The AI gateway puts the name into a header, which Envoy takes up to a length."""
    answer = send(site.address, http1(site.key, body=json.dumps(chat("m" * length)).encode()))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, "model"), answer
    assert len(answer.error["message"]) < 400


GRPC = b"Content-Type: application/grpc\r\n"


@pytest.mark.parametrize("headers", [b"", GRPC], ids=["plain", "grpc"])
@pytest.mark.parametrize("known", [True, False], ids=["key", "no key"])
def test_head_is_answered_without_a_body(site: Site, headers: bytes, *, known: bool) -> None:
    """Bytes behind its headers would be read as the beginning of the next answer on the connection."""
    request = http1(site.key if known else "sk-wrong", method="HEAD", path="/v1/models", headers=headers, body=b"")
    received = everything(site.address, request)
    assert received.startswith(b"HTTP/1.1 405 " if known else b"HTTP/1.1 401 "), received
    assert received.partition(b"\r\n\r\n")[2] == b""


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/metrics", QUESTION, 404, "unknown_path"),
        ("/v1/models", b"{}", 405, "method_not_allowed"),
        ("/v1/chat/completions", b"", 400, "invalid_request"),
        ("/v1/chat/completions", b'{"model": "unknown", "messages": []}', 404, "model_not_found"),
    ],
)
def test_who_claims_to_speak_grpc_is_refused_as_everybody(
    site: Site, path: str, body: bytes, status: int, code: str
) -> None:
    """Envoy itself would answer 200, and have its error in a header."""
    answer = send(site.address, http1(site.key, path=path, headers=GRPC, body=body))
    assert (answer.status, answer.error["code"]) == (status, code), answer
    assert not {"grpc-status", "grpc-message"} & answer.headers.keys()
    refused = send(site.address, http1("sk-wrong", path=path, headers=GRPC, body=body))
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key"), refused


def test_who_claims_to_speak_grpc_gets_the_list_of_models(site: Site) -> None:
    answer = send(site.address, http1(site.key, method="GET", path="/v1/models", headers=GRPC, body=b""))
    assert answer.status == 200, answer
    assert json.loads(answer.body)["object"] == "list"


@pytest.mark.parametrize("path", ["/v1%2Fmodels", "/v1%5cmodels", "/%2e%2e%2fmetrics"])
def test_an_escaped_slash_is_no_way_around_the_key(site: Site, path: str) -> None:
    refused = send(site.address, http1("sk-wrong", method="GET", path=path, body=b""))
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key"), refused
    somebody = send(site.address, http1(site.key, method="GET", path=path, body=b""))
    assert (somebody.status, somebody.error["code"]) == (404, "unknown_path"), somebody


def test_trailers_are_refused_at_once(site: Site) -> None:
    """The picker would wait for ever for the end of such a body; without trailers the same request is served."""
    refused = send_http2(site.address, site.key, body=QUESTION, trailers=[("x-checksum", "1")])
    assert refused.status == 400, refused
    assert refused.error["code"] == "trailers_not_supported"
    served = send_http2(site.address, site.key, body=QUESTION, trailers=[])
    assert served.status == 200, served


@PROTOCOLS
@pytest.mark.parametrize("path", MODEL_PATHS)
def test_what_an_engine_does_not_serve_has_our_form(site: Site, path: str, *, http2: bool) -> None:
    """Whatever the engine's own web server says of a path, it comes as OpenAI's error or as an answer."""
    with site.http(http2=http2) as client:
        answer = client.post(f"{site.address}{path}", json={**chat(MODEL), "input": "hi", "prompt": "hi"})
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["message"], answer.text
        assert {"type", "code"} <= error.keys()
    assert not [name for name in answer.headers if name.startswith(INNER_HEADERS)]


def test_a_served_answer_tells_nothing_of_the_inside(site: Site) -> None:
    """Neither a whole answer nor a stream."""
    with site.http() as client:
        whole = client.post("/chat/completions", json=chat(MODEL))
        streamed = client.post("/chat/completions", json=chat(MODEL, stream=True))
    for answer in (whole, streamed):
        assert answer.status_code == 200, answer.text
        assert not [name for name in answer.headers if name.startswith(INNER_HEADERS)]


def test_no_key_and_every_method(site: Site) -> None:
    """Without a key there is nothing but 401, for paths and methods that are and that are not."""
    with httpx.Client(base_url=site.address, trust_env=False, timeout=60) as nobody:
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            for path in ("/v1/models", "/v1/chat/completions", "/v1/nothing", "/"):
                assert nobody.request(method, path).status_code == 401, (method, path)
