"""The simulator does what vLLM does when it is full and when clients leave; its program alone, no lab.

What vLLM does was read off a real one: tests/fixtures/vllm/full_engine.json.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.paths import CHECKOUT, Lab
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.29", "001.27")

VLLM = json.loads((CHECKOUT / "tests" / "fixtures" / "vllm" / "full_engine.json").read_text())
SEQUENCES, WAITING, REQUESTS = 4, 4, 20
MODEL = "tiny"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    """Address of a simulator that needs 100 s for a prompt and a second for a token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Where an installed lab's tools are; LAB_SIMULATOR for another build.
    program = os.environ.get("LAB_SIMULATOR") or str(Lab.from_environment().bin / "llm-d-inference-sim")
    arguments = [
        *(f"--model=simulator of {MODEL}", f"--served-model-name={MODEL}", f"--port={port}", "--force-dummy-tokenizer"),
        *("--mode=random", "--latency-calculator=per-token", "--prefill-overhead=100s", "--inter-token-latency=1s"),
        *(f"--max-num-seqs={SEQUENCES}", f"--max-waiting-queue-length={WAITING}", "--max-model-len=8192"),
        *("--enable-kvcache", "--kv-cache-size=64", "--block-size=16"),
    ]
    with (tmp_path / "log").open("w") as log:
        child = subprocess.Popen(
            [program, *arguments], env={**os.environ, "POD_IP": "127.0.0.1"}, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _get(f"{url}/health").status_code == 200)
        yield url
    finally:
        child.kill()
        child.wait()


def _get(url: str) -> httpx.Response:
    try:
        return httpx.get(url, trust_env=False, timeout=10)
    except httpx.HTTPError as error:
        raise OSError from error


def counts(engine: str) -> dict[str, float]:
    """The gauges that the picker reads, and the cache's."""
    wanted = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    lines = _get(f"{engine}/metrics").text.splitlines()
    return {name: float(line.rpartition(" ")[2]) for name in wanted for line in lines if line.startswith(f"{name}{{")}


def chat(*, stream: bool, tokens: int = 3, path: str = "chat/completions") -> dict[str, Any]:
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == "chat/completions" else {"prompt": "hi"}
    return {"model": MODEL, "max_tokens": tokens, "ignore_eos": True, "stream": stream, **prompt}


def set_pace(engine: str, **settings: str) -> None:
    body = {name.replace("_", "-"): value for name, value in settings.items()}
    httpx.post(f"{engine}/admin/config", json=body, trust_env=False, timeout=10).raise_for_status()


async def full(engine: str, client: httpx.AsyncClient, *, stream: bool, path: str) -> list[httpx.Response]:
    """Fill the engine, so that it neither serves nor drops anything; what it refused. Then all clients leave."""
    body = chat(stream=stream, path=path)
    asked = [asyncio.create_task(client.post(f"/v1/{path}", json=body)) for _ in range(REQUESTS)]
    refusals: list[httpx.Response] = []
    while len(refusals) < REQUESTS - SEQUENCES - WAITING:
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        assert done, "the engine refuses nothing"
        refusals += [task.result() for task in done]
        asked = [task for task in asked if task not in done]

    def filled() -> bool:
        figures = counts(engine)
        return (figures["vllm:num_requests_running"], figures["vllm:num_requests_waiting"]) == (SEQUENCES, WAITING)

    await asyncio.to_thread(eventually, filled)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    return refusals


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_full_engine_refuses_as_vllm_does_and_forgets_those_who_left(engine: str, form: str, path: str) -> None:
    expected = VLLM[form]

    async def scenario() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=REQUESTS)
        async with httpx.AsyncClient(base_url=engine, trust_env=False, timeout=60, limits=limits) as client:
            return await full(engine, client, stream=form == "streamed", path=path)

    refusals = asyncio.run(scenario())
    assert Counter(answer.status_code for answer in refusals) == {expected["status"]: REQUESTS - VLLM["served"]}
    for answer in refusals:
        assert answer.headers["content-type"].partition(";")[0] == expected["content_type"]
        if form == "whole":
            assert answer.json() == expected["body"]
        else:
            data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
            assert [json.loads(text) if text != "[DONE]" else text for text in data] == expected["events"]
    # Those that ran and those that waited: no client is left to read their answers.
    eventually(lambda: set(counts(engine).values()) == {0.0})
    set_pace(engine, prefill_overhead="1ms", inter_token_latency="1ms")
    url = f"{engine}/v1/chat/completions"
    answers = [httpx.post(url, json=chat(stream=False), trust_env=False, timeout=60) for _ in range(9)]
    assert {answer.status_code for answer in answers} == {200}
    assert answers[0].json()["usage"]["completion_tokens"] == 3


def test_client_that_leaves_in_mid_stream_frees_its_place_for_one_who_waits(engine: str) -> None:
    set_pace(engine, prefill_overhead="1ms", inter_token_latency="100ms")

    async def scenario() -> int:
        async with httpx.AsyncClient(base_url=engine, trust_env=False, timeout=60) as client:
            leaving = []
            for _ in range(SEQUENCES):
                request = client.build_request("POST", "/v1/chat/completions", json=chat(stream=True, tokens=5000))
                leaving.append(await client.send(request, stream=True))
            waiting = asyncio.create_task(client.post("/v1/chat/completions", json=chat(stream=False)))
            await asyncio.to_thread(eventually, lambda: counts(engine)["vllm:num_requests_waiting"] == 1)
            await leaving[0].aclose()
            answer = await waiting
            for response in leaving[1:]:
                await response.aclose()
            return int(answer.json()["usage"]["completion_tokens"])

    assert asyncio.run(scenario()) == 3
    eventually(lambda: set(counts(engine).values()) == {0.0})


def test_connection_is_used_again_by_the_next_request(engine: str) -> None:
    """Watching for the end of a connection takes nothing from it."""
    set_pace(engine, prefill_overhead="600ms", inter_token_latency="1ms")
    with httpx.Client(base_url=engine, trust_env=False, timeout=60, limits=httpx.Limits(max_connections=1)) as client:
        for stream in (False, True, False):
            answer = client.post("/v1/chat/completions", json=chat(stream=stream))
            assert answer.status_code == 200
            assert answer.text.rstrip().endswith("[DONE]") is stream
