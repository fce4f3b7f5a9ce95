"""One table of behaviours, held against the simulator and against a real vLLM: full, left alone, limits, caches.

What a full vLLM answers, and one that stops, was read off a real one: tests/fixtures/vllm/full_engine.json.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import httpx
import pytest

from lab.paths import CHECKOUT
from tests.lab.engines.running_engine import GAUGES, SEQUENCES, WAITING, RunningEngine
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.29", "001.27")

VLLM = json.loads((CHECKOUT / "tests" / "fixtures" / "vllm" / "full_engine.json").read_text())
REQUESTS = 20


def events_of(text: str) -> list[str]:
    """Of a stream. Python's `splitlines` ends at each of Unicode's separators, which a random model writes too."""
    return [line.removeprefix("data: ") for line in text.split("\n") if line.strip()]


async def full(engine: RunningEngine, client: httpx.AsyncClient, *, stream: bool, path: str) -> list[httpx.Response]:
    """Fill the engine, so that it neither serves nor drops anything; what it refused. Then all clients leave."""
    body = engine.chat(stream=stream, path=path, tokens=engine.hold_tokens)

    def ask(count: int) -> list[asyncio.Task[httpx.Response]]:
        return [asyncio.create_task(client.post(f"/v1/{path}", json=body)) for _ in range(count)]

    asked = ask(SEQUENCES + WAITING)
    # Of streams that come at once, before these are counted, it begins some and ends them with an event.
    await asyncio.to_thread(eventually, engine.is_full)
    asked += ask(REQUESTS - SEQUENCES - WAITING)
    refusals: list[httpx.Response] = []
    while len(refusals) < REQUESTS - SEQUENCES - WAITING:
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        assert done, "the engine refuses nothing"
        refusals += [task.result() for task in done]
        asked = [task for task in asked if task not in done]

    await asyncio.to_thread(eventually, engine.is_full)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    return refusals


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_full_engine_refuses_as_vllm_does_and_forgets_those_who_left(
    engine: RunningEngine, form: str, path: str
) -> None:
    """Also to a stream by 503: it looks at its queue before it begins an answer."""
    expected = VLLM["whole"]

    async def scenario() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=REQUESTS)
        async with httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=120, limits=limits) as client:
            return await full(engine, client, stream=form == "streamed", path=path)

    refusals = asyncio.run(scenario())
    assert Counter(answer.status_code for answer in refusals) == {expected["status"]: REQUESTS - VLLM["served"]}
    for answer in refusals:
        assert answer.headers["content-type"].partition(";")[0] == expected["content_type"]
        assert answer.json() == expected["body"]
    # Those that ran and those that waited: no client is left to read their answers.
    eventually(engine.is_empty)
    engine.pace(prefill_overhead="1ms", inter_token_latency="1ms")
    answers = [engine.post("/v1/chat/completions", engine.chat(stream=False)) for _ in range(9)]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_what_the_queue_has_no_room_for_once_an_answer_has_begun_is_an_event(engine: RunningEngine, form: str) -> None:
    """Several prompts are one request where it looks at its queue first, and several where they enter it."""
    prompts = ["hi"] * (SEQUENCES + WAITING + 1)
    body = {**engine.chat(stream=form == "streamed", path="completions"), "prompt": prompts}
    expected = VLLM[form]
    answer = engine.post("/v1/completions", body)
    assert answer.status_code == expected["status"]
    assert answer.headers["content-type"].partition(";")[0] == expected["content_type"]
    if form == "whole":
        assert answer.json() == expected["body"]
    else:
        data = events_of(answer.text)
        assert [json.loads(text) if text != "[DONE]" else text for text in data] == expected["events"]
    eventually(engine.is_empty)


def test_streams_that_come_at_once_are_answered_or_refused(engine: RunningEngine) -> None:
    """Each in one of the two forms, and never more are answered than it may hold."""
    engine.pace(prefill_overhead="5s", inter_token_latency="1ms")

    async def scenario() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=REQUESTS)
        async with httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=120, limits=limits) as client:
            body = engine.chat(stream=True, tokens=500)
            return await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for _ in range(REQUESTS)))

    def kind(answer: httpx.Response) -> str:
        if answer.status_code == VLLM["whole"]["status"]:
            assert answer.json() == VLLM["whole"]["body"]
            return "refused"
        data = events_of(answer.text)
        assert data[-1] == "[DONE]"
        if json.loads(data[0]) == VLLM["streamed"]["events"][0]:
            assert len(data) == len(VLLM["streamed"]["events"])
            return "refused"
        return "answered"

    assert Counter(map(kind, asyncio.run(scenario()))) == {
        "answered": VLLM["served"],
        "refused": REQUESTS - VLLM["served"],
    }


def test_client_that_leaves_in_mid_stream_frees_its_place_for_one_who_waits(engine: RunningEngine) -> None:
    engine.pace(prefill_overhead="1ms", inter_token_latency="100ms")

    async def scenario() -> int:
        async with httpx.AsyncClient(base_url=engine.url, trust_env=False, timeout=120) as client:
            leaving = []
            for _ in range(SEQUENCES):
                body = engine.chat(stream=True, tokens=engine.hold_tokens)
                request = client.build_request("POST", "/v1/chat/completions", json=body)
                leaving.append(await client.send(request, stream=True))
            waiting = asyncio.create_task(client.post("/v1/chat/completions", json=engine.chat(stream=False)))
            await asyncio.to_thread(eventually, lambda: engine.gauges()["vllm:num_requests_waiting"] == 1)
            await leaving[0].aclose()
            answer = await waiting
            for response in leaving[1:]:
                await response.aclose()
            return int(answer.json()["usage"]["completion_tokens"])

    assert asyncio.run(scenario()) == 3
    eventually(engine.is_empty)


def test_connection_is_used_again_by_the_next_request(engine: RunningEngine) -> None:
    """Watching for the end of a connection takes nothing from it."""
    engine.pace(prefill_overhead="600ms", inter_token_latency="1ms")
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(base_url=engine.url, trust_env=False, timeout=120, limits=limits) as client:
        for stream in (False, True, False):
            answer = client.post("/v1/chat/completions", json=engine.chat(stream=stream))
            assert answer.status_code == 200
            assert answer.text.rstrip().endswith("[DONE]") is stream


@pytest.mark.row("000.20", "002.06")
@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_a_stop_lets_streams_end_and_refuses_what_comes(own_engine: RunningEngine, form: str) -> None:
    """As the drain counts on: vLLM's --shutdown-timeout is the model's longest_stream_s."""
    own_engine.pace(prefill_overhead="1ms", inter_token_latency="100ms")
    tokens = 50 if own_engine.is_simulated else 2000

    async def scenario() -> tuple[list[str], httpx.Response]:
        async with httpx.AsyncClient(base_url=own_engine.url, trust_env=False, timeout=120) as client:
            body = own_engine.chat(stream=True, tokens=tokens)
            requests = [client.build_request("POST", "/v1/chat/completions", json=body) for _ in range(3)]
            streams = [await client.send(request, stream=True) for request in requests]
            # Of one that its scheduler does not have yet, vLLM makes an answer without a token and without an error.
            await asyncio.to_thread(eventually, lambda: own_engine.gauges()[GAUGES[0]] == len(streams))
            own_engine.child.terminate()
            while True:
                late = await client.post("/v1/chat/completions", json=own_engine.chat(stream=form == "streamed"))
                # Until it has noticed, it serves.
                if late.status_code != 200:
                    break
            return [(await stream.aread()).decode() for stream in streams], late

    texts, late = asyncio.run(scenario())
    assert (late.status_code, late.json()) == (VLLM["stopping"]["status"], VLLM["stopping"]["body"])
    assert own_engine.child.wait(timeout=120) is not None
    for text in texts:
        *chunks, last = events_of(text)
        assert last == "[DONE]"
        assert not [chunk for chunk in chunks if "error" in json.loads(chunk)]
        # Several tokens may be one chunk, where the machine is busy.
        assert json.loads(chunks[-1])["choices"][0]["finish_reason"] in {"length", "stop"}


@pytest.mark.row("000.25", "001.21")
def test_a_prompt_that_comes_again_is_found_cached(engine: RunningEngine) -> None:
    """By the answer's usage and by the counters."""
    engine.pace(prefill_overhead="1ms", inter_token_latency="1ms")
    body = engine.chat(stream=False, prompt=" ".join(f"line {number}" for number in range(100)))
    first, second = (engine.post("/v1/chat/completions", body).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] < first["prompt_tokens"] / 2
    assert second["prompt_tokens_details"]["cached_tokens"] > second["prompt_tokens"] * 0.7


@pytest.mark.row("001.07")
def test_a_request_past_the_context_is_the_clients_error(engine: RunningEngine) -> None:
    engine.pace(prefill_overhead="1ms", inter_token_latency="1ms")
    answer = engine.post("/v1/chat/completions", engine.chat(stream=False, tokens=50_000))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == 400


@pytest.mark.row("000.27")
def test_metrics_have_the_names_that_the_picker_reads(engine: RunningEngine) -> None:
    engine.pace(prefill_overhead="1ms", inter_token_latency="1ms")
    engine.post("/v1/chat/completions", engine.chat(stream=False))
    assert {
        "vllm:num_requests_waiting",
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:cache_config_info",
    } <= engine.names()
