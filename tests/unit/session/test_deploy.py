import json
from collections.abc import Callable

import httpx
import pytest

from lab import deploy
from lab.errors import LabError

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
