"""`evaluate`: both revisions of a model by their answers. The gateway is simulated: it answers as a test gives it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.live.evaluation import Expectation, missing
from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = [pytest.mark.processes, pytest.mark.row("001.36", "003.24", "opening 23")]

MODEL = "qwen3-32b"
KEYS = {"acme.laptop": "key-of-acme", "globex.batch": "key-of-globex"}
TOOL = {"tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "Paris", "unit": "C"}'}}]}
CASES = {
    "cases": [
        {
            "name": "capital",
            "messages": [{"role": "user", "content": "The capital of France?"}],
            "expect": {"contains": ["paris"]},
        },
        {
            "name": "weather",
            "messages": [{"role": "user", "content": "The weather in Paris?"}],
            "body": {"tools": [{"type": "function", "function": {"name": "weather"}}]},
            "expect": {"tool": "weather", "arguments": {"city": "Paris"}},
        },
    ]
}
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


class SimulatedGateway(ThreadingHTTPServer):
    """Answers a chat by its key and its body."""

    answer: Answer

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)


class _Answering(BaseHTTPRequestHandler):
    server: SimulatedGateway

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["authorization"].removeprefix("Bearer ")
        answer = json.dumps({"choices": [{"message": self.server.answer(key, body)}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def gateway() -> Iterator[SimulatedGateway]:
    server = SimulatedGateway()
    server.answer = lambda _, body: TOOL if "tools" in body else {"content": "It is Paris."}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def project(tmp_path: Path, gateway: SimulatedGateway, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With two pinned tenants, and a pulumi that has the outputs of an `up`."""
    outputs = json.dumps({"endpoint": f"http://127.0.0.1:{gateway.server_port}/v1", "keys": KEYS})
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pulumi").write_text(f"#!/bin/sh\necho '{outputs}'\n")
    (programs / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    project = tmp_path / "project"
    make_checkout(project, sites=("lab",))
    file = project / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    (values,) = (value for value in document["config"].values() if isinstance(value, dict))
    pinned = {"acme": "stable", "globex": "canary"}
    values["callers"] = {"decided_by": "gatekeeper"}
    values["models"][MODEL]["canary"] = {"percent": 0, "pinned": pinned, "server": {"extra_args": ["--seed=7"]}}
    file.write_text(yaml.safe_dump(document))
    (project / "questions.yaml").write_text(yaml.safe_dump(CASES))
    return project


def test_a_canary_with_as_many_good_answers_is_no_worse(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    words = documented.argv("python -m sitectl evaluate prod qwen3-32b questions.yaml")[3:]
    shown = run(project, *("lab" if word == "prod" else word for word in words))
    assert shown.status == Exit.OK, shown.err
    assert f"2 of 2 good on {MODEL}, 2 of 2 good on {MODEL}--" in shown.out
    assert not any(key in shown.out + shown.err for key in KEYS.values())


def test_a_canary_that_lost_a_good_answer_is_named_with_what_it_lacks(project: Path, gateway: SimulatedGateway) -> None:
    asked = []

    def answer(key: str, body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        if "tools" in body:
            return TOOL if key == KEYS["acme.laptop"] else {"content": "I cannot look."}
        return {"content": "Paris"}

    gateway.answer = answer
    file = str(project / "questions.yaml")
    shown = run(project, "evaluate", "lab", MODEL, file, "--json")
    assert shown.status == Exit.REFUSED
    shown_record = json.loads(shown.out)
    assert shown_record["lost"] == ["weather"]
    assert [answers["weather"] for answers in shown_record["answers"].values()] == ["", "calls nothing"]
    assert {body["model"] for body in asked} == {MODEL}
    assert {body["temperature"] for body in asked} == {0}
    assert run(project, "evaluate", "lab", MODEL, file, "--allow", "1").status == Exit.OK


def test_a_file_that_expects_nothing_is_refused_at_its_line(project: Path) -> None:
    cases = yaml.safe_dump({"cases": [{**CASES["cases"][0], "expect": {}}]})
    (project / "questions.yaml").write_text(cases)
    shown = run(project, "evaluate", "lab", MODEL, str(project / "questions.yaml"))
    assert shown.status == Exit.REFUSED
    assert "cases.0.expect" in shown.err
    assert "give contains, matches, json_has, tool or reasons" in shown.err


@pytest.mark.parametrize(
    ("expect", "message", "lacks"),
    [
        ({"contains": ["a", "B"]}, {"content": "A and b"}, ""),
        ({"contains": ["c"]}, {"content": None}, "has no 'c'"),
        ({"matches": r"^\d+$"}, {"content": "42"}, ""),
        ({"matches": r"^\d+$"}, {"content": "forty-two"}, r"does not match '^\\d+$'"),
        ({"json_has": {"a": {"b": 1}}}, {"content": '{"a": {"b": 1, "c": 2}}'}, ""),
        ({"json_has": {"a": 1}}, {"content": '{"a": 2}'}, 'has not {"a": 1}'),
        ({"json_has": {"a": 1}}, {"content": "```json"}, "is no JSON"),
        ({"tool": "weather", "arguments": {"city": "Paris"}}, TOOL, ""),
        ({"tool": "weather", "arguments": {"city": "Rome"}}, TOOL, "calls weather with"),
        ({"reasons": True}, {"content": "x", "reasoning": "because"}, ""),
        ({"reasons": True}, {"content": "<think>because</think> x"}, "has no reasoning apart from it"),
    ],
)
def test_an_answer_is_held_against_what_is_expected(
    expect: dict[str, Any], message: dict[str, Any], lacks: str
) -> None:
    lack = missing(Expectation.model_validate(expect), message)
    assert lack.startswith(lacks) if lacks else lack == ""
