"""The recorded step times of AIConfigurator, and the proof's models and rooflines for them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Quantisation
from stacks.facts.hardware import GPUS
from stacks.proof.cache import KvDtype
from stacks.proof.layouts import Layout
from stacks.proof.roofline import Calibration, Roofline

_FOLDER = Path(__file__).parents[1] / "tests" / "unit" / "proof"
RECORDED = _FOLDER / "aiconfigurator-0.12.csv"
HELD_OUT = _FOLDER / "aiconfigurator-0.12-held-out.csv"
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


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One step: a prompt of `context` tokens, or a decode step of `batch` requests behind such prompts."""

    gpu: str
    repository: str
    """Of the fitted steps the model's repository, of the others its name in the catalogue."""
    layout: Layout
    cache: KvDtype
    phase: str
    context: int
    batch: int
    seconds: float

    @property
    def model(self) -> CatalogueModel:
        return models().get(self.repository) or catalogue.load(self.repository)

    def roofline(self, calibration: Calibration) -> Roofline:
        return Roofline(self.model, GPUS[self.gpu], self.layout, self.cache, calibration)

    def derived_s(self, roofline: Roofline) -> float:
        """Seconds of the same step by a roofline of its model and layout."""
        if self.phase == "prefill":
            return roofline.step_s(prefill=self.context, reach=self.context / 2)
        return roofline.step_s(decodes=self.batch, context=self.context + 1)


@cache
def models() -> dict[str, CatalogueModel]:
    """Models of the record by their repository; two are the catalogue's with other weights."""
    known = {repository: catalogue.load(name) for repository, name in NAMES.items()}
    qwen, llama = known["Qwen/Qwen3-32B-FP8"], known["meta-llama/Meta-Llama-3.1-70B"]
    fp8 = Quantisation(format="fp8", parts=("mixers", "dense"))
    known["Qwen/Qwen3-32B"] = qwen.model_copy(update={"quantisation": Quantisation()})
    known["nvidia/Llama-3.1-70B-Instruct-FP8"] = llama.model_copy(update={"quantisation": fp8})
    return known


@cache
def recorded_steps() -> tuple[RecordedStep, ...]:
    """Every step that constants are fitted to, in the record's order. Its cache is 16 bits but for one model."""
    steps = []
    for row in _rows(RECORDED):
        data = int(row["data"])
        steps.append(
            RecordedStep(
                gpu=SYSTEMS[row["system"]],
                repository=row["model"],
                layout=Layout(tensor=int(row["tensor"]), data=data, expert_parallel=data > 1),
                cache="fp8" if row["model"].startswith("nvidia/") else "bf16",
                phase=row["phase"],
                context=int(row["context"]),
                batch=int(row["batch"]),
                seconds=float(row["milliseconds"]) / 1e3,
            )
        )
    return tuple(steps)


@cache
def held_out_steps() -> tuple[RecordedStep, ...]:
    """Steps that nothing was fitted to: other kinds of GPU, other models, and caches of 8 bits."""
    return tuple(
        RecordedStep(
            gpu=row["gpu"],
            repository=row["model"],
            layout=Layout(tensor=int(row["tensor"])),
            cache="fp8" if row["cache"] == "fp8" else "bf16",
            phase=row["phase"],
            context=int(row["context"]),
            batch=int(row["batch"]),
            seconds=float(row["milliseconds"]) / 1e3,
        )
        for row in _rows(HELD_OUT)
    )


def _rows(file: Path) -> Iterator[dict[str, str]]:
    return csv.DictReader(line for line in file.read_text().splitlines() if not line.startswith("#"))
