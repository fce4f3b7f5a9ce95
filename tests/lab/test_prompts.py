"""Prompts by id: put into a real directory, followed by the real gatekeeper, and expanded for a real Envoy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from components.specs.access import TenantSpec
from components.specs.limits import LimitsSpec
from lab.paths import Lab
from services.directory.prompts import LARGEST_TEXT
from tests.lab.gatekeeper_rig import CONTEXT, MODEL, Rig, rig
from tests.lab.waiting import eventually
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import Directory
from tests.unit.services.postgres_rig import setting

pytestmark = [pytest.mark.row("003.13"), pytest.mark.row("003.05")]

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
TEXT = 'Answer {{who}} in "{{language}}". {{who}} knows {{ nothing }} of {who}.'.replace("{{ nothing }}", "{nothing}")
GIVEN = {"who": "{{language}}\n\u00e9", "language": "French"}
FILLED = 'Answer {{language}}\n\u00e9 in "French". {{language}}\n\u00e9 knows {nothing} of {who}.'
TENANTS = {
    "search": TenantSpec(models=(MODEL,), prefix_cache="shared"),
    "sales": TenantSpec(models=(MODEL,), prefix_cache="shared", limits=LimitsSpec(max_prompt_tokens=100)),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as (_, directory):
        yield directory


@pytest.fixture(scope="module")
def door(module_lab_of_tools: Lab, directory: Directory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("rig")
    more = [
        f"--directory={directory.url}",
        f"--pepper-file={setting(directory.folder, '--pepper-file')}",
        f"--token-file={setting(directory.folder, '--reader-token-file')}",
        f"--kept-file={folder / 'kept'}",
    ]
    with rig(module_lab_of_tools, folder, TENANTS, more=more) as made:
        yield made


def put(directory: Directory, prompt: str, text: str, tenant: str = "search") -> int:
    with directory.client() as client:
        answer = client.post("/v1/prompts", json={"tenant": tenant, "id": prompt, "text": text})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["version"])


def asked(door: Rig, prompt: dict[str, Any], path: str = CHAT, tenant: str = "search", **more: Any) -> httpx.Response:
    return door.ask(tenant, {"model": MODEL, "prompt": prompt, **more}, path)


def works(answer: httpx.Response) -> bool:
    return answer.status_code == 200


def message(answer: httpx.Response) -> str:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request")
    return str(error["message"])


def test_a_prompt_is_expanded_where_the_api_takes_it(door: Rig, directory: Directory) -> None:
    put(directory, "greeting", TEXT)
    prompt = {"id": "greeting", "variables": GIVEN | {"unused": "x"}}
    eventually(lambda: works(asked(door, prompt)))
    hello = {"role": "user", "content": "hello"}
    system, user = ({"role": role, "content": FILLED} for role in ("system", "user"))
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        (CHAT, {"messages": [hello]}, {"messages": [system, hello]}),
        (CHAT, {"messages": []}, {"messages": [system]}),
        (CHAT, {}, {"messages": [user]}),
        (RESPONSES, {"input": "hello"}, {"instructions": FILLED, "input": "hello"}),
        (RESPONSES, {"input": [hello], "instructions": None}, {"instructions": FILLED, "input": [hello]}),
        (RESPONSES, {}, {"input": FILLED}),
    ]
    for path, sent, expected in cases:
        answer = asked(door, prompt, path, **sent)
        assert answer.status_code == 200, answer.text
        assert answer.json()["body"] == {"model": MODEL, **expected}
        assert answer.json()["named"] == "greeting@1"
    # Where `prompt` means something else, it stays as it is.
    body = {"model": MODEL, "prompt": "hello"}
    assert door.ask("search", body, "/v1/completions").json()["body"] == body
    client_own = door.client.post(
        CHAT, content=json.dumps(body), headers=door.headers("search") | {"x-prompt-id": "own"}
    ).json()
    assert (client_own["body"], client_own["named"]) == (body, "own")


def test_a_version_is_used_by_number_and_another_one_put_back_in_use(door: Rig, directory: Directory) -> None:
    assert [put(directory, "steps", text) for text in ("one", "two")] == [1, 2]

    def text(**version: str) -> Any:
        answer = asked(door, {"id": "steps", **version}, messages=[])
        return answer.json()["body"]["messages"][0]["content"] if works(answer) else answer.status_code

    eventually(lambda: text() == "two")
    assert (text(version="1"), text(version="2"), text(version="3")) == ("one", "two", 400)
    with directory.client() as client:
        client.post("/v1/prompts/search/steps/use", json={"version": 1})
        eventually(lambda: text() == "one")
        assert text(version="2") == "two"
        assert client.delete("/v1/prompts/search/steps/2").status_code == 200
        eventually(lambda: text(version="2") == 400)
        assert text() == "one"


def test_a_gatekeeper_that_starts_without_its_directory_has_the_prompts(door: Rig, directory: Directory) -> None:
    put(directory, "kept", "text")
    eventually(lambda: works(asked(door, {"id": "kept"})))
    directory.end()
    try:
        door.kill("gatekeeper")
        door.start_gatekeeper()
        eventually(lambda: works(asked(door, {"id": "kept"})))
    finally:
        directory.start()
        directory.wait_ready()


def test_what_cannot_be_expanded_is_refused_by_name(door: Rig, directory: Directory) -> None:
    put(directory, "needs", "{{b}} {{a}} {{b}}")
    put(directory, "own", "text", tenant="sales")
    eventually(lambda: works(asked(door, {"id": "own"}, tenant="sales")))
    eventually(lambda: works(asked(door, {"id": "needs", "variables": {"a": "1", "b": "2"}})))
    assert message(asked(door, {"id": "needs"})) == "The prompt needs@1 needs variables that are missing: b, a."
    assert "missing: a." in message(asked(door, {"id": "needs", "variables": {"b": ""}}))
    assert 'variable "a" of the prompt needs@1 is not a text' in message(
        asked(door, {"id": "needs", "variables": {"a": 1, "b": ""}})
    )
    # As one that there is not.
    assert message(asked(door, {"id": "own"})) == 'This tenant has no prompt "own".'
    assert message(asked(door, {"id": "none"})) == 'This tenant has no prompt "none".'
    for version in ("2", "01", "-1", "0", "x"):
        expected = f'This tenant has no version "{version}" of the prompt "needs".'
        assert message(asked(door, {"id": "needs", "version": version})) == expected
    for strange in ({}, {"id": 1}, {"id": "needs", "version": 1}, {"id": "needs", "variables": []}):
        assert message(asked(door, strange)).startswith("prompt is not of the form")
    given = {"id": "needs", "variables": {"a": "1", "b": "2"}}
    assert "Leave one out" in message(asked(door, given, RESPONSES, instructions="x", input="y"))
    assert "messages is not a list" in message(asked(door, given, messages="x"))
    # A duplicate is found as in any body.
    twice = b'{"prompt":{"id":"needs"},"prompt":{"id":"own"}}'
    assert "comes twice" in message(door.ask("search", twice))


def test_a_filled_text_counts_and_is_bounded(door: Rig, directory: Directory) -> None:
    """A value may come often in a template: it makes no body beyond the front door's limit."""
    put(directory, "often", "{{x}}" * (LARGEST_TEXT // 5))
    put(directory, "short", "{{x}}{{x}}{{x}}", tenant="sales")
    eventually(lambda: works(asked(door, {"id": "often", "variables": {"x": "1"}})))
    eventually(lambda: works(asked(door, {"id": "short", "variables": {"x": "1"}}, tenant="sales")))
    assert "makes a body of more than 4194304 bytes" in message(
        asked(door, {"id": "often", "variables": {"x": "y" * 2_000_000}})
    )
    # With escapes it is longer than its text.
    assert "makes a body of more than" in message(asked(door, {"id": "often", "variables": {"x": "\x01" * 1000}}))
    long = asked(door, {"id": "short", "variables": {"x": "y" * 200}}, tenant="sales")
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    estimated = asked(door, {"id": "often", "variables": {"x": "y" * 30}}).json()["prompt"]
    assert 30 * (LARGEST_TEXT // 5) / 4 < int(estimated) < CONTEXT
