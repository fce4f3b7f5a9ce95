"""Replicas that are full before the gateway is: what clients see, and that the model serves again."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import openai
import pytest

from components.gateway.gateway import REQUEST_METRICS_PORT
from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests.lab.site.full_replicas import filled
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream
from tests.lab.site.test_request_log import fresh, the_line

pytestmark = pytest.mark.row("001.29")

MODEL = "glm-5-1"
_COUNTED = re.compile(r"gen_ai_server_request_duration_seconds_count\{(?P<labels>.*)\} (?P<value>[0-9.e+]+)")
VLLM = json.loads((CHECKOUT / "tests" / "fixtures" / "vllm" / "full_engine.json").read_text())


def test_full_engines_answer_is_passed_on_and_who_left_is_forgotten(site: Site, cluster: Cluster) -> None:
    """As vLLM says it: 503, to a stream too."""
    replicas = cluster.ready_replicas(MODEL)
    body = chat(MODEL, tokens=1)

    async def scenario() -> tuple[httpx.Response, Streamed]:
        async with filled(MODEL, replicas), site.http_async() as tenant:
            whole = await tenant.post("/chat/completions", json=body)
            return whole, await stream(tenant, chat(MODEL, tokens=1, stream=True))

    with cluster.pace(MODEL, prefill_overhead="280s", time_factor_under_load=1.0):
        whole, streamed = asyncio.run(scenario())
        assert whole.status_code == VLLM["whole"]["status"]
        assert whole.json() == VLLM["whole"]["body"]
        assert streamed.status == VLLM["whole"]["status"]
        assert json.loads(streamed.refusal) == VLLM["whole"]["body"]
        # Long before their answers would have been written: no client waits for these.
        until(lambda: not any(replica.under_way() for replica in replicas), what="replicas without work")
    with site.http() as client:
        assert client.post("/chat/completions", json=body).status_code == 200


def test_a_refusal_within_a_stream_is_an_error_to_the_client_and_in_the_log(
    site: Site, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP 200 with an event. Several prompts in one request meet the queue's end after the answer has begun."""
    monkeypatch.setenv("NO_PROXY", "*")
    mark = fresh("refused")
    with (
        cluster.pace(MODEL, prefill_overhead="5s", time_factor_under_load=1.0),
        openai.OpenAI(
            base_url=site.front.endpoint,
            api_key=site.key,
            max_retries=0,
            timeout=300,
            default_headers={"user-agent": mark},
        ) as client,
    ):
        chunks = client.completions.create(model=MODEL, prompt=too_many_prompts(), max_tokens=1, stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(chunks)
    assert caught.value.body == VLLM["streamed"]["events"][0]["error"]
    line = the_line(site, mark)
    assert (line["response_code"], line["stream_error"]) == (200, "503")
    assert (line["client"], line["model"]) == (site.front.client, MODEL)
    # Nothing that a ledger would count.
    assert not line["input_tokens"]
    assert not line["output_tokens"]
    until(lambda: not any(replica.under_way() for replica in cluster.replicas(MODEL)), what="replicas without work")


def test_the_ai_gateway_counts_a_refusal_within_a_stream_as_a_success(site: Site, cluster: Cluster) -> None:
    """vLLM's own counter has the refusal, on which ModelRefusesRequests fires.

    The AI gateway counts an answer as it ends. Official clients leave at the error, and may be gone by then: this one
    reads on.
    """
    succeeded, failed = (counted_by_the_gateway(cluster, failed=failed) for failed in (False, True))
    body = {"model": MODEL, "prompt": too_many_prompts(), "max_tokens": 1, "stream": True}
    with cluster.pace(MODEL, prefill_overhead="5s", time_factor_under_load=1.0), site.http(timeout_s=300) as client:
        answer = client.post("/completions", json=body)
    assert answer.status_code == 200
    error, end = (line.removeprefix("data: ") for line in answer.text.split("\n") if line)
    assert json.loads(error) == VLLM["streamed"]["events"][0]
    assert end == "[DONE]"
    assert counted_by_the_gateway(cluster, failed=False) == succeeded + 1
    assert counted_by_the_gateway(cluster, failed=True) == failed
    until(lambda: not any(replica.under_way() for replica in cluster.replicas(MODEL)), what="replicas without work")


def too_many_prompts() -> list[str]:
    """Of one request: more than an empty replica of the model takes."""
    return ["hi"] * (2 * plan_file(CHECKOUT / "Pulumi.lab.yaml").models[MODEL].stable.server.engine_limit)


def counted_by_the_gateway(cluster: Cluster, *, failed: bool) -> float:
    """Requests of the model that the AI gateway has counted, by whether it took them for failed."""
    total = 0.0
    for envoy in cluster.envoys():
        url = f"http://{envoy.ip}:{REQUEST_METRICS_PORT}/metrics"
        text = cluster.run_in(envoy, "curl", "-sS", "--fail", "--max-time", "20", url)
        for sample in _COUNTED.finditer(text):
            labels = sample["labels"]
            if f'gen_ai_request_model="{MODEL}"' in labels and ('error_type="' in labels) == failed:
                total += float(sample["value"])
    return total
