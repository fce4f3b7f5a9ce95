"""From a line of the gateway's log, a request is traced to its client, its replica and its latencies."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path
from typing import Any

import pytest

from floor.headers import PROMPT_ID_HEADER
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat

pytestmark = pytest.mark.row("003.20", "004.13")

MODEL = "qwen3-32b"
TOKENS = 5
SLOW_ITL_MS = 100
SLOW_TTFT_MS = 1000


def test_a_stream_is_traced_to_client_replica_prompt_and_latency(site: Site, cluster: Cluster) -> None:
    mark, prompt, prompt_id = fresh("mark"), fresh("prompt"), fresh("support_v2")
    with cluster.pace(MODEL, inter_token_latency="100ms", prefill_overhead="2s"):
        usage = streamed(site, mark, prompt, **{PROMPT_ID_HEADER: prompt_id})
    line = the_line(site, mark)
    assert line["client"] == site.front.client
    assert line["objective"] == f"interactive.{MODEL}"
    assert line["model"] == MODEL
    assert line["prompt_id"] == prompt_id
    assert line["upstream_host"].partition(":")[0] in {replica.ip for replica in cluster.replicas(MODEL)}
    assert (line["input_tokens"], line["output_tokens"]) == (usage["prompt_tokens"], TOKENS)
    # The first token takes twenty times as long as each later one.
    assert 50 <= line["mean_itl_ms"] < line["ttft_ms"] / 4
    assert 1000 <= line["ttft_ms"] <= line["duration"]
    assert line["first_byte_ms"] <= line["duration"]
    assert line["x-request-id"]
    assert prompt not in json.dumps(line)


def test_what_is_no_id_of_a_prompt_is_in_no_line(site: Site) -> None:
    """Neither a text nor a key, from a client with a key or without."""
    for key in (None, "sk-wrong"):
        mark, text = fresh("mark"), f"Summarise {fresh('this')}"
        with site.http(key=key) as client:
            client.post("/chat/completions", json=chat(MODEL), headers={"user-agent": mark, PROMPT_ID_HEADER: text})
        line = the_line(site, mark)
        assert line["prompt_id"] is None
        assert text not in json.dumps(line)


@pytest.mark.exhaustive
def test_below_100_percent_what_failed_or_was_slow_is_still_logged(
    site: Site, cluster: Cluster, tmp_path: Path
) -> None:
    def sampled(document: Document) -> None:
        document["gateway"]["request_log"] = {
            "sampled_percent": 0,
            "slow_ttft_ms": SLOW_TTFT_MS,
            "slow_itl_ms": SLOW_ITL_MS,
        }

    def quick() -> str | None:
        mark, began = fresh("fine"), time.monotonic()
        streamed(site, mark, "hi")
        # So short in all that neither its first token nor its mean gap can have been slow.
        return mark if time.monotonic() - began < (TOKENS - 1) * SLOW_ITL_MS / 1000 else None

    refused, slow, whole = fresh("refused"), fresh("slow"), fresh("whole")
    with edited_stack(site.lab, tmp_path) as stack:
        stack.up(sampled)
        (envoy,) = cluster.envoys()
        condition = f"['token_latency_itl'] > {float(SLOW_ITL_MS)}"
        until(lambda: condition in listeners_of(cluster, envoy), what="Envoy's new log")
        fine = until(quick, what="a stream that is not slow")
        with site.http(key="sk-wrong") as client:
            answer = client.post("/chat/completions", json=chat(MODEL), headers={"user-agent": refused})
            assert answer.status_code == 401
        with cluster.pace(MODEL, inter_token_latency=f"{3 * SLOW_ITL_MS}ms"):
            streamed(site, slow, "hi")
            with site.http() as client:
                body = chat(MODEL, tokens=TOKENS)
                answer = client.post("/chat/completions", json=body, headers={"user-agent": whole})
        assert answer.status_code == 200
        assert the_line(site, refused)["response_code"] == 401
        assert the_line(site, slow)["mean_itl_ms"] > SLOW_ITL_MS
        assert the_line(site, whole)["first_byte_ms"] > SLOW_TTFT_MS
        # Lines come in the order of their requests, and it was before these.
        assert not lines_with(site, fine)


def listeners_of(cluster: Cluster, envoy: Replica) -> str:
    """What the pod serves by now, as text; Envoy's own has some characters of a condition escaped."""
    dump = json.loads(cluster.envoy_admin(envoy, "/config_dump?resource=dynamic_listeners"))
    return json.dumps([config["active_state"] for config in dump["configs"]])


def fresh(what: str) -> str:
    return f"{what}-{secrets.token_hex(8)}"


def streamed(site: Site, mark: str, prompt: str, **headers: str) -> dict[str, Any]:
    """The usage that a stream reports at its end."""
    body = {**chat(MODEL, prompt, tokens=TOKENS, stream=True), "stream_options": {"include_usage": True}}
    events = []
    with (
        site.http() as client,
        client.stream("POST", "/chat/completions", json=body, headers={"user-agent": mark, **headers}) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
    usage: dict[str, Any] = events[-1]["usage"]
    return usage


def lines_with(site: Site, mark: str) -> list[dict[str, Any]]:
    """What the pods' logs hold of the requests with this mark."""
    files = [file for file in (site.lab.logs / "pods").rglob("*") if file.is_file()]
    return [
        json.loads(line[line.index("{") :])
        for file in files
        for line in file.read_text(errors="replace").splitlines()
        if mark in line
    ]


def the_line(site: Site, mark: str) -> dict[str, Any]:
    (line,) = until(lambda: lines_with(site, mark), what=f"{mark} in the log")
    return line
