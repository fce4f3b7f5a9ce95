"""From a site's settings to its proofs, plans and engines."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stacks.facts import versions
from stacks.plan.models import DoesNotFitError, RevisionPlan, plan_model
from stacks.plan.orders import order_of
from stacks.plan.site_plan import plan_file, plan_site
from stacks.proof.cache import BLOCK_TOKENS
from stacks.site.model import SiteConfig
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 2")

ROOT = Path(__file__).parents[3]
PROD: dict[str, Any] = prod()


def site(model: dict[str, Any], **more: Any) -> SiteConfig:
    """Prod's site with one model."""
    values = copy.deepcopy(PROD) | {"models": {"m": model}, "tenants": {}} | more
    return SiteConfig.model_validate(values)


def planned(config: SiteConfig) -> RevisionPlan:
    return plan_model(config, "m", versions.load().images).stable


def test_the_existing_models_keep_their_shape() -> None:
    """GLM-5.1 FP8 on 8 H200 with its whole context, Qwen3-32B FP8 on one."""
    prod = plan_file(ROOT / "Pulumi.prod.yaml")
    glm, qwen = (prod.models[name].stable.server for name in ("glm-5-1", "qwen3-32b"))
    assert (glm.gpus, glm.max_model_len, qwen.gpus, qwen.max_model_len) == (8, 202_752, 1, 40_960)
    assert 560_000 < glm.kv_blocks * BLOCK_TOKENS < 640_000
    # The declared requests are short: 5,093 tokens on average, of 581,008 that the cache holds.
    assert 105 <= glm.max_num_seqs <= 125
    assert glm.load_s == pytest.approx(756e9 / 0.6e9, rel=0.01)
    assert 0.015 < glm.decode_s_per_token < 0.03
    assert glm.decode_slowdown_when_full > 1


def test_every_word_of_the_site_reaches_the_order() -> None:
    config = site(
        {
            "catalogue": "qwen3-32b-fp8",
            "server": {"replicas": 3, "gpus": 2, "typical_request_tokens": 5000, "max_num_batched_tokens": 2048},
            "load": {"requests_per_s": 2.5, "prompt_tokens": {"p50": 100, "p95": 900}, "prefix_hit": 0.25},
            "slo": {"ttft_p95_ms": 2000},
            "overrides": {"max_num_seqs": {"value": 16, "reason": "a tenant measured it"}},
        },
        prices={"gpu_hour": 3.5, "power_kwh": 0.2},
        storage={"read_bytes_per_s": 2.0e9, "shared_read_bytes_per_s": 5.0e9},
    )
    order = order_of(config, "m", config.models["m"])
    assert (order.name, order.gpus, order.replicas, order.typical_request_tokens) == ("m", 2, 3, 5000)
    assert (order.max_num_batched_tokens, order.max_num_seqs) == (2048, 16)
    assert order.load and order.load.prompt_tokens.p95 == 900
    assert (order.load.requests_per_s, order.load.prefix_hit) == (2.5, 0.25)
    assert order.slo.by_key == {"ttft_p95_ms": 2000}
    assert order.prices and (order.prices.gpu_hour, order.prices.power_kwh) == (3.5, 0.2)
    assert (order.storage_bytes_per_s, order.shared_bytes_per_s) == (2.0e9, 5.0e9)


def test_the_rules_hold_a_start_to_the_read_of_all_replicas_at_once() -> None:
    config = site({"catalogue": "qwen3-32b-fp8", "server": {"replicas": 3}}, storage={"read_bytes_per_s": 1.0e9})
    assert plan_site(config).load_s == {"m": pytest.approx(3 * 34.32, rel=1e-3)}


@pytest.mark.parametrize(
    ("weights", "engine", "speed"),
    [
        ({}, "vllm", 1.25e8),
        ({"download_bytes_per_s": 1e9}, "vllm", 1e9),
        ({"source": "mirror", "mirror": "http://hub:8080", "download_bytes_per_s": 1e9}, "vllm", 1e9),
        ({"source": "volume"}, "vllm", None),
        ({}, "simulator", None),
    ],
)
def test_the_proof_knows_what_the_first_start_downloads(
    weights: dict[str, Any], engine: str, speed: float | None
) -> None:
    config = site({"catalogue": "qwen3-32b-fp8", "server": {"engine": engine}}, storage={"weights": weights})
    order = order_of(config, "m", config.models["m"])
    assert order.download_bytes_per_s == speed
    revision = planned(config)
    plan = revision.server
    assert revision.proof.cold_start["download_weights"].value == (
        pytest.approx(plan.weight_bytes / speed) if speed else 0
    )
    assert plan.startup_probe_failures * plan.startup_probe_period_s >= 2 * plan.load_s


@pytest.mark.parametrize(
    "weights",
    [
        {"source": "mirror"},
        {"mirror": "https://hub.site.example"},
        {"source": "mirror", "mirror": "hub.site.example"},
        {"source": "mirror", "mirror": "https://user:word@hub.site.example"},
        {"source": "mirror", "mirror": "https://hub.site.example?token=x"},
        {"download_bytes_per_s": 0},
    ],
)
def test_a_source_of_weights_that_cannot_be_is_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        site({"catalogue": "qwen3-32b-fp8"}, storage={"weights": weights})


def test_what_does_not_fit_is_refused_with_the_fix() -> None:
    config = site({"catalogue": "glm-5.1-fp8", "server": {"gpus": 4}})
    with pytest.raises(
        DoesNotFitError, match=r"does not fit: needs more than \d+\.\d GB per GPU on(.|\n)*fix: give a replica 8 GPUs"
    ):
        planned(config)


def test_a_missed_target_is_refused_with_the_fix() -> None:
    load = {"requests_per_s": 8, "prefix_hit": 0.5}
    config = site(
        {
            "catalogue": "qwen3-32b-fp8",
            "server": {"gpus": 1},
            "load": load,
            "slo": {"itl_p95_ms": 60, "ttft_p95_ms": 5000},
        }
    )
    with pytest.raises(DoesNotFitError, match=r"does not keep its targets(.|\n)*fix: raise replicas from 2 to \d+"):
        planned(config)


def test_the_chunk_follows_the_target_unless_the_site_sets_it() -> None:
    base = {
        "catalogue": "qwen3-32b-fp8",
        "load": {"requests_per_s": 2.0},
        "slo": {"itl_p95_ms": 150, "itl_p99_ms": 300},
        "server": {"replicas": 2, "gpus": 1},
    }
    derived = site(base)
    assert planned(derived).server.max_num_batched_tokens < 8192 == derived.models["m"].server.max_num_batched_tokens
    by_hand = site(
        base | {"slo": {"itl_p95_ms": 200}, "server": {"replicas": 4, "gpus": 1, "max_num_batched_tokens": 1024}}
    )
    assert planned(by_hand).server.max_num_batched_tokens == 1024


def test_experts_stay_whole_where_slices_would_not_be_whole_blocks() -> None:
    """vLLM refuses Qwen3-235B FP8 at TP8 without expert parallelism."""
    config = site({"catalogue": "qwen3-235b-a22b-fp8", "server": {"gpus": 8}})
    assert "--enable-expert-parallel" in planned(config).engine.args
    four = site({"catalogue": "qwen3-235b-a22b-fp8", "server": {"gpus": 4}})
    assert "--enable-expert-parallel" not in planned(four).engine.args


def test_gpus_without_fp8_units_keep_their_cache_in_bf16() -> None:
    config = site({"catalogue": "qwen3-8b"}, cluster={"kubeconfig": "k", "gpu": "a100-80gb"})
    args = planned(config).engine.args
    assert "--kv-cache-dtype=auto" in args
    assert "--kv-cache-dtype=fp8" not in args


@pytest.mark.parametrize("name", ["bge-reranker-v2-m3", "qwen3-embedding-8b"])
def test_models_that_write_nothing_have_a_plan(name: str) -> None:
    config = site({"catalogue": name, "load": {"requests_per_s": 5, "prompt_tokens": {"p50": 300, "p95": 900}}})
    plan = planned(config)
    assert plan.server.kv_blocks * BLOCK_TOKENS >= plan.server.max_model_len
    assert "ITL" not in plan.text()
