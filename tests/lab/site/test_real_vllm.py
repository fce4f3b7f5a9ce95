"""The platform in front of a real vLLM: two replicas of a tiny model on this machine's CPU, as the program starts them.

What is the engine's alone is in tests/lab/engines; here are the promises that it keeps behind gateway and picker.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from lab.cluster import processes
from lab.vllm_cpu import environment
from lab.vllm_cpu.site import HELD, MODEL
from stacks.facts import metrics
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import Cluster, Replica
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat, fresh_prompt, prompt_of, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.14", "002.01")]

REFUSALS = "vllm:admission_rejections_total"
_PATIENCE_S = 600
_SHARED_KB = 4


def refused(replicas: list[Replica]) -> int:
    """Requests that engines refused because their queue was full."""
    return sum(int(replica.counts()[REFUSALS]) for replica in replicas)


@pytest.fixture(scope="module")
def replicas(cluster: Cluster) -> list[Replica]:
    return cluster.ready_replicas(MODEL)


def test_replicas_are_the_pinned_engine_and_the_model_card_names_no_simulator(
    site: Site, replicas: list[Replica]
) -> None:
    for replica in replicas:
        version = httpx.get(f"{replica.url}/version", trust_env=False, timeout=60).json()["version"]
        assert version.partition("+")[0] == environment.VERSION
    with site.http() as client:
        (card,) = client.get("/models").json()["data"]
    assert (card["id"], card["owned_by"]) == (MODEL, "Qwen")


@pytest.mark.row("000.26")
def test_an_answer_is_streamed_with_its_count(site: Site) -> None:
    body = {**chat(MODEL, tokens=40, stream=True), "stream_options": {"include_usage": True}}

    async def scenario() -> None:
        async with site.http_async(_PATIENCE_S) as client:
            answer = await stream(client, body)
        assert (answer.status, answer.refusal, answer.done, answer.finish_reason) == (200, "", True, "length")
        assert answer.usage is not None
        assert answer.usage["completion_tokens"] == 40
        assert len(answer.arrivals) > 10

    asyncio.run(scenario())


@pytest.mark.row("000.19", "000.22")
def test_weights_are_the_verified_folder_which_no_engine_can_write(cluster: Cluster, replicas: list[Replica]) -> None:
    for replica in replicas:
        server = next(pid for pid in cluster.all_processes(replica) if processes.command_line(pid)[2:3] == ["serve"])
        mounts = [line.split() for line in Path(f"/proc/{server}/mountinfo").read_text().splitlines()]
        (options,) = [fields[5] for fields in mounts if fields[4] == "/models/weights"]
        assert "ro" in options.split(",")
        marker = json.loads(Path(f"/proc/{server}/root/models/weights/.weights.json").read_text())
        assert (marker["repository"], marker["against"]) == ("Qwen/Qwen3-32B-FP8", "hub")
        assert "model.safetensors" in marker["files"]


@pytest.mark.row("000.25", "000.27", "003.18")
def test_requests_that_share_a_prefix_go_to_the_replica_that_has_it(site: Site, replicas: list[Replica]) -> None:
    shared = prompt_of(_SHARED_KB)
    served = {replica.name: replica.served() for replica in replicas}
    with site.http(_PATIENCE_S) as client:
        usages = [
            client.post("/chat/completions", json=chat(MODEL, f"{shared} {number}", tokens=2)).json()["usage"]
            for number in range(8)
        ]
    moved = [replica.served() - served[replica.name] for replica in replicas]
    assert sorted(moved) == [0, 8]
    shares = [usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"] for usage in usages]
    assert shares[0] < 0.1
    assert min(shares[1:]) > 0.9


@pytest.mark.row("001.37")
def test_no_answer_is_longer_than_the_platforms_limit(site: Site) -> None:
    cap = plan_file(site.lab.site_file).models[MODEL].stable.settings["gateway_max_tokens"].whole
    with site.http(_PATIENCE_S) as client:
        answer = client.post("/chat/completions", json=chat(MODEL, tokens=cap + 100)).json()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (cap, "length")


@pytest.mark.row("000.27", "001.21")
def test_metrics_have_the_names_that_picker_dashboards_and_alerts_ask_for(replicas: list[Replica]) -> None:
    wanted = set(metrics.load()["vllm"].series)
    for replica in replicas:
        assert {name for name in replica.counts() if name.startswith("vllm:")} == wanted


@pytest.mark.row("001.29")
@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("prompts", ["fresh", "shared"])
def test_what_is_too_much_is_refused_by_the_gateway_and_never_by_an_engine(
    site: Site, replicas: list[Replica], form: str, prompts: str
) -> None:
    """Also where all have one prefix, and the picker sends them to one replica until it sees its queue."""
    bound = plan_file(site.lab.site_file).models[MODEL].stable.settings["gateway_parallel_requests"].whole
    assert bound == 2 * HELD
    shared, before = prompt_of(_SHARED_KB), refused(replicas)

    def body(number: int) -> dict[str, object]:
        prompt = f"{shared} {number}" if prompts == "shared" else fresh_prompt(200)
        return chat(MODEL, prompt, tokens=300, stream=form == "streamed")

    async def scenario() -> list[tuple[int, str]]:
        async with site.http_async(_PATIENCE_S) as client:
            if form == "streamed":
                streams = await asyncio.gather(*(stream(client, body(number)) for number in range(3 * bound)))
                return [(answer.status, answer.refusal) for answer in streams]
            answers = await asyncio.gather(
                *(client.post("/chat/completions", json=body(number)) for number in range(3 * bound))
            )
            return [(answer.status_code, "" if answer.is_success else answer.text) for answer in answers]

    answers = asyncio.run(scenario())
    assert refused(replicas) - before == 0
    counts = Counter(status for status, _ in answers)
    assert set(counts) == {200, 503}
    assert counts[200] >= bound
    for status, refusal in answers:
        assert bool(refusal) == (status == 503)
        assert not refusal or json.loads(refusal)["error"]["code"] == "model_overloaded"
