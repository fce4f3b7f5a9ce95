"""What the platform counts on of vLLM, and the simulator does not have: held against a real one, on a CPU.

It is started with the program's own arguments, so each flag that the program writes is one that it parses.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.vllm_cpu import environment
from lab.vllm_cpu.arguments import for_a_cpu
from stacks.facts import metrics, versions
from stacks.plan.settings.host import processes
from stacks.proof.layouts import Layout
from tests.lab.engines.conftest import SERVED, vllm_site
from tests.lab.engines.running_engine import CAP_TOKENS, SEQUENCES, WAITING, RunningEngine, real_vllm

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.14", "002.01")]


def test_it_is_the_version_of_the_pinned_image(vllm: RunningEngine) -> None:
    assert vllm.get("/version").json()["version"].partition("+")[0] == environment.VERSION
    assert versions.parts(versions.load().images.vllm)[1] == f"v{environment.VERSION}"


def test_only_what_needs_a_gpu_is_taken_out() -> None:
    engine = vllm_site().models[SERVED].stable.engine
    _, taken_out = for_a_cpu(engine.args)
    assert [flag.partition("=")[0] for flag in taken_out] == ["--tensor-parallel-size", "--kv-cache-dtype"]


def test_its_metrics_are_the_listed_names(vllm: RunningEngine) -> None:
    """Dashboards and alerts are written against stacks/facts/metrics/vllm.yaml."""
    vllm.post("/v1/chat/completions", vllm.chat(stream=False))
    assert {name for name in vllm.names() if name.startswith("vllm:")} == set(metrics.load()["vllm"].series)


def test_its_histograms_have_the_listed_bounds(vllm: RunningEngine) -> None:
    """Alerts compare with a target at one of them."""
    vllm.post("/v1/chat/completions", vllm.chat(stream=False))
    text = vllm.get("/metrics").text
    for name, bounds in metrics.load()["vllm"].bounds.items():
        exposed = re.findall(rf'^{name}_bucket{{.*le="([0-9.e+-]+)"', text, re.MULTILINE)
        assert sorted({float(bound) for bound in exposed}) == list(bounds), name


@pytest.mark.row("001.37")
def test_no_answer_is_longer_than_the_platforms_limit(vllm: RunningEngine) -> None:
    answer = vllm.post("/v1/chat/completions", vllm.chat(stream=False, tokens=CAP_TOKENS + 100), 1800).json()
    assert answer["usage"]["completion_tokens"] == CAP_TOKENS
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.row("000.25", "opening 18")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_a_prompt_is_found_cached_with_the_same_salt_only(vllm: RunningEngine, path: str) -> None:
    """In each API whose bodies a gatekeeper salts, so no tenant learns by timing what another one has asked."""
    text = " ".join(f"{path} {number}" for number in range(100))
    body: dict[str, Any] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
        "/v1/completions": {"prompt": text, "max_tokens": 1},
        "/v1/responses": {"input": text, "max_output_tokens": 16},
    }[path]

    def cached(salt: str) -> float:
        usage = vllm.post(path, {"model": SERVED, **body, "cache_salt": salt}).json()["usage"]
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        return float(details["cached_tokens"] / (usage.get("prompt_tokens") or usage["input_tokens"]))

    first, again, other = cached("a" * 32), cached("a" * 32), cached("b" * 32)
    assert (first, other) == (0, 0)
    assert again > 0.7


def test_more_answers_than_a_replica_holds_are_the_clients_error(vllm: RunningEngine) -> None:
    """No replica can ever take them, so it must not answer to try again: VLLM_MAX_N_SEQUENCES is what it holds."""
    most = SEQUENCES + WAITING
    answer = vllm.post("/v1/chat/completions", {**vllm.chat(stream=False), "n": most + 1})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestError")
    assert f"must be at most {most}" in answer.json()["error"]["message"]
    fits = vllm.post("/v1/chat/completions", {**vllm.chat(stream=False), "n": 2}).json()
    assert len(fits["choices"]) == 2


def test_it_serves_from_a_folder_that_nobody_can_write(vllm: RunningEngine) -> None:
    """The mount is read-only for every engine here, as a server's is on a site."""
    mounts = Path(f"/proc/{vllm.child.pid}/mountinfo").read_text().splitlines()
    (weights,) = [line.split() for line in mounts if line.split()[4].endswith("/weights")]
    assert "ro" in weights[5].split(",")
    assert vllm.post("/v1/chat/completions", vllm.chat(stream=False)).status_code == 200


def test_a_replica_requests_a_core_for_each_process(vllm: RunningEngine) -> None:
    """On a CPU alone, the worker of a single rank is a process of its own (vllm/platforms/cpu.py)."""
    requested = vllm_site().models[SERVED].stable.settings["cpu_request_cores"].whole
    assert len(vllm.processes()) == requested + 1, vllm.processes()


def test_ranks_have_a_core_for_each_process(tmp_path: Path) -> None:
    """Two ranks of a GPU each. Two GPUs for one rank cannot be tried here: vLLM wants a NUMA node for each worker."""
    plan = vllm_site().models[SERVED].stable
    ranks = Layout(data=2)
    flags = ("--data-parallel-size=2", "--api-server-count=1")
    with real_vllm(tmp_path, plan.engine.args, plan.engine.env, SERVED, further_arguments=flags) as engine:
        assert len(engine.processes()) == processes(replace(plan.proof.case, layout=ranks)), engine.processes()
