"""What an answer to a request to rank is charged, in the pinned Envoy: what the engine reports.

Simulated: the AI gateway's count, which is `meta.tokens` and so 0 for vLLM's answers (v1.0.0,
internal/translator/cohere_rerank_v2.go), and the engine. tests/lab/site/test_ranking.py has the real gateway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from components.gateway.door_scripts import RANK_PATH, script
from components.gateway.envoy_names import DECISIONS
from components.gateway.request_log import COUNTED, counted
from floor.headers import CLIENT_HEADER
from tests.lab.lone_envoy import envoy_with, listening
from tests.lab.simulated_ranker import BILLED, STATUS, UNCOUNTED, answered, ranking
from tests.lab.simulated_ranker import counted as counted_by_engine
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.32", "opening 19")

KINDS = ("llm_input_token", "llm_output_token", "llm_total_token")
PROMPT = 77
# Of a client: it must not be taken for the engine's.
_CLAIM = '"usage": {"total_tokens": 1}'
_TYPE = "type.googleapis.com/envoy.extensions"


# It has each body as a whole, and then writes what it counts.
_AI_GATEWAY = f"""\
function envoy_on_response(response)
  local body = response:body()
  local text = body and body:getBytes(0, body:length()) or ""
  local input = tonumber(string.match(text, '"tokens": {{"input_tokens": (%d+)') or 0)
  for kind, tokens in pairs({{llm_input_token = input, llm_output_token = 0, llm_total_token = input}}) do
    response:streamInfo():dynamicMetadata():set("{COUNTED}", kind, tokens)
  end
end
"""


def configuration(script: str, log: Path, engine: int) -> dict[str, Any]:
    route: dict[str, Any] = {"match": {"prefix": "/"}, "route": {"cluster": "engine"}}
    known = [{"metadata_namespace": DECISIONS, "value": {"prompt": PROMPT}}]
    written = {"@type": f"{_TYPE}.access_loggers.file.v3.FileAccessLog", "path": str(log)}
    line = {"mark": "%REQ(USER-AGENT)%", **{kind: counted(kind) for kind in KINDS}}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": engine}}
    assignment = {"cluster_name": "engine", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}

    def lua(source: str) -> dict[str, Any]:
        return {"@type": f"{_TYPE}.filters.http.lua.v3.Lua", "default_source_code": {"inline_string": source}}

    return listening(
        {
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "access_log": [
                {"name": "envoy.access_loggers.file", "typed_config": {**written, "log_format": {"json_format": line}}}
            ],
            "http_filters": [
                {
                    "name": "known",
                    "typed_config": {"@type": f"{_TYPE}.filters.http.set_metadata.v3.Config", "metadata": known},
                },
                {"name": "front-door", "typed_config": lua(script)},
                {"name": "ai-gateway", "typed_config": lua(_AI_GATEWAY)},
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"},
                },
            ],
        },
        clusters=[{"name": "engine", "type": "STATIC", "load_assignment": assignment}],
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    with ranking() as server:
        yield server.server_port


@pytest.fixture(scope="module", params=[False, True], ids=["limits", "ledger"])
def door(
    request: pytest.FixtureRequest, engine: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, Path]]:
    folder = tmp_path_factory.mktemp("envoy")
    own = script(metered=request.param, ranks_charged=True)
    with envoy_with(configuration(own, folder / "lines", engine), folder) as client:
        client.headers[CLIENT_HEADER] = "acme.laptop"
        yield client, folder / "lines"


def asked(*documents: str, **more: Any) -> dict[str, Any]:
    return {"model": _CLAIM, "query": "what is it?", "documents": list(documents), **more}


def charged(door: tuple[httpx.Client, Path], mark: str, body: dict[str, Any], path: str = RANK_PATH) -> list[int]:
    """Tokens of prompt, answer and both that are counted of a request, whose answer passes as it came."""
    client, log = door
    answer = client.post(path, json=body, headers={"user-agent": mark})
    assert answer.status_code == body.get(STATUS, 200)
    assert answer.json() == answered(body) or STATUS in body

    def lines() -> list[dict[str, Any]]:
        read = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in read if line["mark"] == mark]

    eventually(lambda: bool(lines()))
    (line,) = lines()
    return [line[kind] for kind in KINDS]


@pytest.mark.parametrize(
    "body", [asked("a", _CLAIM), asked("word " * 200_000, "b")], ids=["two documents", "a megabyte"]
)
def test_the_engines_count_is_charged_for_the_prompt(door: tuple[httpx.Client, Path], body: dict[str, Any]) -> None:
    used = counted_by_engine(body)
    assert charged(door, f"counted-{used}", body) == [used, 0, used]


def test_without_a_count_the_prompts_bytes_are_charged(door: tuple[httpx.Client, Path]) -> None:
    assert charged(door, "uncounted", asked("word " * 2000, _CLAIM, **{UNCOUNTED: True})) == [PROMPT, 0, PROMPT]


def test_what_the_ai_gateway_counts_is_not_an_estimate(door: tuple[httpx.Client, Path]) -> None:
    assert charged(door, "billed", asked("word", **{UNCOUNTED: True, BILLED: 12})) == [12, 0, 12]


def test_other_paths_and_refusals_are_left_as_they_are(door: tuple[httpx.Client, Path]) -> None:
    assert charged(door, "other", asked("a"), "/v1/embeddings") == [0, 0, 0]
    assert charged(door, "refused", asked("a", **{STATUS: 400})) == [0, 0, 0]
