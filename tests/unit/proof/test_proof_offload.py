"""What a node's memory keeps of prefixes, held against counts by hand; and what of a site becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from components.models.model_server import deployment
from stacks.plan.block import block
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof.layouts import Layout
from stacks.proof.proof import Proof, prove
from tests.unit.proof.proof_orders import CHAT, TARGETS, order
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("004.06", "003.18")

GIB, MODEL = 400, "qwen3-32b"
# Keys and values of 64 layers, of 8 heads of 128 elements of one byte.
TOKEN_BYTES = 2 * 64 * 8 * 128
PCIE = 64e9


def offloading(catalogue: str, layout: Layout, gib: int = GIB) -> Proof:
    return prove(replace(order(catalogue, load=CHAT, slo=TARGETS, replicas=4, layout=layout), kv_offload_gib=gib))


def test_it_keeps_whole_tokens_whatever_the_number_of_ranks() -> None:
    for ranks in (1, 2):
        figures = offloading("qwen3-32b-fp8", Layout(tensor=ranks)).offload
        assert figures["offload_tokens"].value == GIB * 2**30 // TOKEN_BYTES
        assert figures["offload_fetch"].value == pytest.approx(1e6 * TOKEN_BYTES / ranks / (PCIE / 2))
        assert figures["offload_per_node"].value == GIB * 8 / ranks


def test_latents_are_kept_once_for_all_ranks() -> None:
    proof = offloading("deepseek-v3", Layout(tensor=8), 64)
    token = proof.case.cache.per_token
    assert proof.offload["offload_tokens"].value == 64 * 2**30 // token
    assert proof.offload["offload_fetch"].value == pytest.approx(1e6 * token / (PCIE / 2))


def test_prefixes_stay_until_new_tokens_have_filled_it() -> None:
    """A memory that is smaller than the GPUs' own cache has nothing that they lack."""
    proof = offloading("qwen3-32b-fp8", Layout())
    prompts, answers = CHAT.prompt_tokens.mean * (1 - CHAT.prefix_hit), CHAT.answer_tokens.mean
    kept = GIB * 2**30 // TOKEN_BYTES / (CHAT.requests_per_s / 4 * prompts)
    assert proof.offload["offload_kept"].value == pytest.approx(kept), "vLLM keeps prompts there, and no answers"
    on_gpu = proof.case.cache_tokens / (CHAT.requests_per_s / 4 * (prompts + answers))
    assert 0 < proof.offload["gpu_kept"].value < on_gpu
    assert "no gain" not in block(proof)
    assert "no gain" in block(offloading("qwen3-32b-fp8", Layout(), 1))
    assert offloading("qwen3-32b-fp8", Layout(), 0).offload == {}


def planned(gib: int | None) -> SitePlan:
    change = {f"models.{MODEL}.server.kv_offload_gib": gib} if gib else {}
    return plan_values(changed(prod(), change), "site.yaml")


def rendered(plan: SitePlan) -> dict[str, Any]:
    stable = plan.models[MODEL].stable
    body = deployment(MODEL, "models", stable.spec.server, stable.server, stable.engine)
    pod: dict[str, Any] = body["spec"]["template"]["spec"]
    return pod


def test_a_replica_gets_memory_shared_memory_and_time_for_it() -> None:
    """vLLM does not start where /dev/shm is smaller than what it is to keep there."""
    plain, offloaded = planned(None), planned(GIB)
    before, after = (plan.models[MODEL].stable.settings for plan in (plain, offloaded))
    assert after["start_budget_s"].number == pytest.approx(
        before["start_budget_s"].number + 2 * GIB * 2**30 / 4e9, abs=1
    )
    pod = rendered(offloaded)
    (usual,), (engine,) = rendered(plain)["containers"], pod["containers"]
    asked = [int(of["resources"]["requests"]["memory"].removesuffix("Gi")) for of in (usual, engine)]
    assert asked[1] == asked[0] + GIB
    assert f"--kv-offloading-size={GIB}" in engine["args"]
    (shared,) = [volume for volume in pod["volumes"] if volume["name"] == "shm"]
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{20 + GIB}Gi"}
    assert not [volume for volume in rendered(plain)["volumes"] if volume["name"] == "shm"]


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(
            {"models.embed": {"catalogue": "bge-m3", "server": {"kv_offload_gib": 8}}},
            "models.embed.server.kv_offload_gib",
            "keeps no cache of prefixes",
            {"models.embed.server.kv_offload_gib": None},
        ),
        Wrong(
            {f"models.{MODEL}.server.kv_offload_gib": 10**6},
            f"models.{MODEL}.server.kv_offload_gib",
            "",
            {f"models.{MODEL}.server.kv_offload_gib": 8},
        ),
    ],
)
def test_what_it_cannot_be_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
