"""The block that people read: one screen, stable, nothing claimed that was not computed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.plan.block import block
from stacks.proof.demand import Prices, Slo
from stacks.proof.figures import shown
from stacks.proof.fixes import nearest
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import CHAT, TARGETS, order

pytestmark = pytest.mark.row("opening 1")

SMALL = order("qwen3-32b-fp8", gpus=1, replicas=4, load=CHAT, slo=TARGETS, prices=Prices(gpu_hour=3.5))


def labels(text: str) -> list[str]:
    return [line[2:14].strip() for line in text.splitlines()[1:]]


def test_a_proof_that_holds() -> None:
    text = block(prove(SMALL))
    assert text.startswith("qwen3-32b-fp8: holds. Qwen/Qwen3-32B-FP8 on h200-sxm, 4 x TP1 = 4 GPUs\n")
    first = ["layout", "model", "cache", "holds", "speed", "band", "cold start"]
    last = ["load", "TTFT", "ITL", "TPOT", "TTFT mean", "heavy", "capacity", "replicas", "one out", "cost"]
    assert labels(text) == [*first, *last]
    assert ", target 4,000  [" in text
    assert "14 EUR/h" in text


def test_a_refusal_says_problem_and_fix_first() -> None:
    proof = prove(replace(SMALL, replicas=1, load=replace(CHAT, requests_per_s=8.0)))
    text = block(proof, nearest(proof))
    assert "DOES NOT HOLD" in text.splitlines()[0]
    assert labels(text)[:2] == ["problem", "fix"]
    assert "TTFT" not in labels(text)


def test_without_a_load_no_latency_is_claimed() -> None:
    text = block(prove(replace(SMALL, load=None, slo=Slo())))
    assert "none declared" in text
    assert not {"TTFT", "ITL", "capacity"} & set(labels(text))
    assert "EUR/M tokens" not in text


def test_a_better_layout_is_named() -> None:
    busy = replace(CHAT, requests_per_s=3.5)
    plain = prove(order("glm-5.1-fp8", gpus=8, replicas=3, simple=True, load=busy))
    better = prove(replace(plain.order, simple=False))
    assert better.case.layout.data > 1
    assert labels(block(plain, better=better))[-1] == "better"
    assert "better" not in labels(block(plain, better=plain))


@pytest.mark.parametrize("name", catalogue.names())
@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_every_block_fits_a_screen(name: str, gpu: str) -> None:
    proof = prove(order(name, gpu, prices=Prices(gpu_hour=3.5)))
    text = block(proof)
    assert len(text.splitlines()) <= 16
    assert max(map(len, text.splitlines())) <= 160
    assert text == block(prove(proof.order))


def test_numbers_are_for_people() -> None:
    assert [shown(value) for value in (0, 0.01234, 1.5, 12, 123.4, 653_136.2)] == [
        "0", "0.0123", "1.5", "12", "123", "653,136"
    ]  # fmt: skip
