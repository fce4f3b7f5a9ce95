import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from lab import deploy, session
from lab.errors import LabError
from lab.paths import Lab
from tests.certificates import Authority, authority

FRONT = deploy.StackOutputs(
    endpoint="http://198.18.48.1/v1", models=("one", "two"), keys={"acme/laptop": "sk-1", "acme/phone": "sk-2"}
)


def stream(*tokens: str) -> bytes:
    chunks = [{"choices": [{"delta": {"role": "assistant"}}]}]
    chunks += [{"choices": [{"delta": {"content": token}}]} for token in tokens]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in [*chunks, {"choices": [], "usage": {"total_tokens": 3}}]]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def gateway(*answers: httpx.Response | Exception) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    """Answers in turn, then always the last one; the requests that came."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        chosen = answers[min(len(requests), len(answers) - 1)]
        requests.append(request)
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    handler: Callable[[httpx.Request], httpx.Response] = answer
    return httpx.MockTransport(handler), requests


def test_the_answer_is_printed_with_endpoint_key_and_curl(capsys: pytest.CaptureFixture[str]) -> None:
    transport, requests = gateway(httpx.Response(200, content=stream("Out of ", "a simulator")))
    assert deploy.ask(FRONT, transport=transport) == "Out of a simulator"
    shown = capsys.readouterr().out
    assert "one> Out of a simulator\n" in shown
    assert "key       sk-1  (client acme/laptop)" in shown
    assert "curl -N http://198.18.48.1/v1/chat/completions" in shown
    assert requests[0].headers["Authorization"] == "Bearer sk-1"
    assert json.loads(requests[0].content)["stream"] is True


def test_an_answer_may_have_separators_of_lines_in_it() -> None:
    """vLLM writes them as they are, and only the server's line feeds end an event."""
    event = json.dumps({"choices": [{"delta": {"content": "one\u2028two\x85"}}]}, ensure_ascii=False)
    transport, _ = gateway(httpx.Response(200, content=f"data: {event}\n\ndata: [DONE]".encode()))
    assert deploy.ask(FRONT, transport=transport) == "one\u2028two\x85"


def test_what_a_model_thinks_is_part_of_its_answer() -> None:
    event = json.dumps({"choices": [{"delta": {"reasoning": "hm"}}]})
    transport, _ = gateway(httpx.Response(200, content=f"data: {event}\n\n".encode() + stream("yes")))
    assert deploy.ask(FRONT, transport=transport) == "hmyes"


def test_the_curl_line_sends_the_same_request() -> None:
    line = deploy.curl_line("http://a/v1/chat/completions", "sk-1", {"question": "what's up?"})
    assert "-H 'Authorization: Bearer sk-1'" in line
    assert """'{"question": "what'"'"'s up?"}'""" in line


def test_a_gateway_that_is_not_there_yet_is_waited_for() -> None:
    transport, requests = gateway(
        httpx.ConnectError("refused"),
        httpx.Response(503),
        httpx.Response(404),
        httpx.Response(401),
        httpx.Response(200, content=stream("x")),
    )
    assert deploy.ask(FRONT, transport=transport, pause_s=0.0) == "x"
    assert len(requests) == 5


def test_patience_ends_with_the_last_refusal() -> None:
    transport, _ = gateway(httpx.Response(503, text="no healthy upstream"))
    with pytest.raises(LabError, match="503: no healthy upstream"):
        deploy.ask(FRONT, transport=transport, patience_s=0.0)


def test_a_request_that_breaks_a_limit_is_not_sent_again() -> None:
    transport, requests = gateway(httpx.Response(429, text="Too many requests."))
    with pytest.raises(LabError, match="429: Too many requests"):
        deploy.ask(FRONT, transport=transport)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("content", "says"), [(stream(), "without a token"), (b'data: {"error": {"message": "out of cache"}}\n\n', "cache")]
)
def test_a_stream_that_fails_is_an_error(content: bytes, says: str) -> None:
    transport, _ = gateway(httpx.Response(200, content=content))
    with pytest.raises(LabError, match=says):
        deploy.ask(FRONT, transport=transport)


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(LabError, match="one, two"):
        deploy.ask(FRONT, model="three")


def test_outputs_that_are_missing_are_named() -> None:
    with pytest.raises(LabError, match="no output models, keys"):
        deploy.parse_outputs({"endpoint": "http://a/v1", "keys": {}})


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(stream("secured"))

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


class _Certified(HTTPServer):
    """Shows each connection the next certificate."""

    def __init__(self, certificates: Iterator[ssl.SSLContext]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self._certificates = certificates

    def get_request(self) -> tuple[socket.socket, object]:
        raw, address = self.socket.accept()
        return next(self._certificates).wrap_socket(raw, server_side=True), address


@contextmanager
def certified(folder: Path, *issuers: Authority) -> Iterator[str]:
    """Base address of a gateway whose certificates are of these authorities in turn."""
    shown = []
    for number, issuer in enumerate(issuers):
        own = folder / str(number)
        own.mkdir()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*issuer.identity(own, "127.0.0.1"))
        shown.append(context)
    server = _Certified(iter(shown))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def of_ca(folder: Path, endpoint: str, issuer: Authority) -> deploy.StackOutputs:
    ca = folder / "ca.crt"
    ca.write_text(issuer.pem)
    return replace(FRONT, endpoint=endpoint, ca=ca)


def test_an_answer_counts_once_the_gateway_has_a_certificate_of_the_labs_ca(tmp_path: Path) -> None:
    """Until then it may show another one, which is waited out and never trusted."""
    own = authority("lab")
    with certified(tmp_path, authority("other"), own) as endpoint:
        assert deploy.ask(of_ca(tmp_path, endpoint, own), pause_s=0.0) == "secured"


def test_a_gateway_of_another_ca_gets_no_key(tmp_path: Path) -> None:
    with certified(tmp_path, authority("other")) as endpoint:
        platform = of_ca(tmp_path, endpoint, authority("lab"))
        with pytest.raises(LabError, match="CERTIFICATE_VERIFY_FAILED"):
            deploy.ask(platform, patience_s=0.0)


def test_the_curl_line_trusts_the_labs_ca(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transport, _ = gateway(httpx.Response(200, content=stream("x")))
    platform = of_ca(tmp_path, "https://198.18.48.1/v1", authority("lab"))
    deploy.ask(platform, transport=transport)
    assert f"curl -N --cacert {platform.ca} https://198.18.48.1/v1/chat/completions" in capsys.readouterr().out


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(home=tmp_path / "home", cache=tmp_path / "cache")
    made.make_folders()
    return made


def outputs(endpoint: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    given = json.dumps({"endpoint": endpoint, "models": ["one"], "keys": {"acme.laptop": "sk-1"}})
    return lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=given)


def test_https_is_checked_by_the_labs_ca(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run_pulumi", outputs("http://a/v1"))
    assert deploy.front(lab).ca is None
    monkeypatch.setattr(session, "run_pulumi", outputs("https://a/v1"))
    with pytest.raises(LabError, match=r"gateway-ca\.crt, which https://a/v1 is checked by"):
        deploy.front(lab)
    lab.gateway_ca.touch()
    assert deploy.front(lab).ca == lab.gateway_ca
