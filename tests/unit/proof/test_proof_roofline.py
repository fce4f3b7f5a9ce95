"""Step times against recorded kernel timings, in a band that a wrong constant leaves."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Quantisation
from stacks.facts.hardware import GPUS
from stacks.proof.cache import KvDtype
from stacks.proof.layouts import Layout
from stacks.proof.roofline import CALIBRATION, Calibration, Roofline

pytestmark = pytest.mark.row("opening 1", "001.04")

RECORDED = Path(__file__).parent / "aiconfigurator-0.12.csv"
SYSTEMS = {"h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
NAMES = {
    "Qwen/Qwen3-32B-FP8": "qwen3-32b-fp8",
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.3-70b",
    "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b",
    "zai-org/GLM-5.1-FP8": "glm-5.1-fp8",
    "deepseek-ai/DeepSeek-V3": "deepseek-r1",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "openai/gpt-oss-20b": "gpt-oss-20b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b-fp8",
    "Qwen/Qwen3-30B-A3B-FP8": "qwen3-30b-a3b-fp8",
}


def models() -> dict[str, CatalogueModel]:
    found = {repository: catalogue.load(name) for repository, name in NAMES.items()}
    qwen, llama = found["Qwen/Qwen3-32B-FP8"], found["meta-llama/Meta-Llama-3.1-70B"]
    fp8 = Quantisation(format="fp8", parts=("mixers", "dense"))
    found["Qwen/Qwen3-32B"] = qwen.model_copy(update={"quantisation": Quantisation()})
    found["nvidia/Llama-3.1-70B-Instruct-FP8"] = llama.model_copy(update={"quantisation": fp8})
    return found


MODELS = models()
ROWS = list(csv.DictReader(line for line in RECORDED.read_text().splitlines() if not line.startswith("#")))


def distances(calibration: Calibration) -> list[float]:
    """How far each recorded step is away, as a factor of at least 1, ascending."""
    built: dict[tuple[str, ...], Roofline] = {}
    found = []
    for row in ROWS:
        key = (row["system"], row["model"], row["tensor"], row["data"])
        if key not in built:
            data = int(row["data"])
            layout = Layout(tensor=int(row["tensor"]), data=data, expert_parallel=data > 1)
            cache: KvDtype = "fp8" if row["model"].startswith("nvidia/") else "bf16"
            built[key] = Roofline(MODELS[row["model"]], GPUS[SYSTEMS[row["system"]]], layout, cache, calibration)
        context, batch = int(row["context"]), int(row["batch"])
        if row["phase"] == "prefill":
            ours = built[key].step_s(prefill=context, reach=context / 2)
        else:
            ours = built[key].step_s(decodes=batch, context=context + 1)
        found.append(math.exp(abs(math.log(ours * 1e3 / float(row["milliseconds"])))))
    return sorted(found)


def test_the_roofline_keeps_the_stated_band() -> None:
    """322 steps of 11 models: half within 1.1, nine of ten within 1.3, all within 1.75."""
    found = distances(CALIBRATION)
    assert len(found) > 300
    assert found[len(found) // 2] < 1.1
    assert found[len(found) * 9 // 10] < 1.3
    assert found[-1] < 1.75


def spoilt(name: str) -> Calibration:
    value = getattr(CALIBRATION, name)
    wrong: Any = value * 3 if name.endswith("_s") else None
    if isinstance(value, dict):
        wrong = {key: share / 1.8 for key, share in value.items()}
    return replace(CALIBRATION, **{name: value / 3 if wrong is None else wrong})


@pytest.mark.parametrize(
    "name",
    [
        "compute",
        "bandwidth",
        "expert_compute",
        "expert_bandwidth",
        "cache_bandwidth",
        "attention_compute",
        "link",
        "layer_s",
        "block_layer_s",
        "sparse_layer_s",
        "sparse_token_s",
        "collective_s",
        "step_s",
    ],
)
def test_every_constant_is_held_by_the_recorded_steps(name: str) -> None:
    """A constant that is wrong by a factor leaves the band: the mean distance grows."""
    good, bad = distances(CALIBRATION), distances(spoilt(name))
    assert sum(bad) / len(bad) > 1.01 * sum(good) / len(good)


@pytest.mark.parametrize("name", catalogue.names())
def test_more_work_never_takes_less_time(name: str) -> None:
    model = catalogue.load(name)
    roofline = Roofline(model, GPUS["h200-sxm"], Layout(tensor=2), "fp8")
    times = [roofline.step_s(prefill=size, reach=size / 2) for size in (1, 64, 512, 4096, 32_768)]
    assert times == sorted(times)
    decode = [roofline.step_s(decodes=batch, context=4096) for batch in (1, 8, 64, 512)]
    assert decode == sorted(decode)
    longer = [roofline.step_s(decodes=8, context=context) for context in (128, 4096, 32_768, 131_072)]
    assert longer == sorted(longer)
    assert roofline.step_s() == 0


def test_experts_are_read_as_tokens_touch_them() -> None:
    """One token reads 4 of 128 experts, hundreds read all: gpt-oss-120b decodes 256 in far less than 256 times."""
    roofline = Roofline(catalogue.load("gpt-oss-120b"), GPUS["h200-sxm"], Layout(), "fp8")
    one, many = (roofline.step_s(decodes=batch, context=1000) for batch in (1, 256))
    assert 4 * one < many < 20 * one


def test_a_window_and_an_indexer_bound_what_a_decode_step_reads() -> None:
    """From 32 k to 128 k tokens a sparse or windowed model slows less than one that reads everything."""

    def slowdown(name: str) -> float:
        roofline = Roofline(catalogue.load(name), GPUS["h200-sxm"], Layout(tensor=8), "bf16")
        return roofline.step_s(decodes=64, context=131_072) / roofline.step_s(decodes=64, context=32_768)

    assert slowdown("deepseek-v3.2") < slowdown("deepseek-r1")
    assert slowdown("gpt-oss-120b") < slowdown("qwen3-30b-a3b-fp8")


def test_newer_hardware_is_faster_and_fp8_units_count() -> None:
    model = catalogue.load("qwen3-32b-fp8")

    def prompt(gpu: str) -> float:
        return Roofline(model, GPUS[gpu], Layout(), "bf16").step_s(prefill=4096, reach=2048)

    assert prompt("b200") < prompt("h200-sxm") <= prompt("h100-sxm") < prompt("a100-80gb") < prompt("l4")


def test_a_network_between_ranks_costs() -> None:
    """Sixteen ranks on one rack of NVLink are faster than on two nodes with a network between them."""
    model, layout = catalogue.load("llama-3.1-405b"), Layout(tensor=16)
    rack, nodes = GPUS["gb200"], GPUS["gb200"].model_copy(update={"link_domain": 8})
    steps = [Roofline(model, gpu, layout, "fp8").step_s(prefill=4096, reach=2048) for gpu in (rack, nodes)]
    assert steps[0] < steps[1]
