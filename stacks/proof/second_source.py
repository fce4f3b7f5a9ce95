"""AIConfigurator as a second opinion on step times: kernel timings measured by NVIDIA, against this proof's roofline.

Optional, and pinned to the series that the roofline was fitted to (850 MB with its data). It answers in seconds, so the
proof never asks it; a test and the command line do. `python -m stacks.proof.second_source NAME GPU LAYOUT...` prints a
comparison.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import math
import sys
from dataclasses import dataclass
from typing import Literal

import click

from floor import command_line
from floor.problems import ProblemError
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.layouts import Layout, experts_of
from stacks.proof.roofline import KERNELS, Roofline

SERIES = "0.12"
INSTALL = f"pip install 'aiconfigurator~={SERIES}.0'"
# The larger of both over the smaller one, of one step. Recorded steps: half within 1.1, nine of ten within 1.3.
BAND = 1.8
SYSTEMS = {
    "a100-80gb": "a100_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200",
    "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm",
    "l4": "l4",
    "l40s": "l40s",
}
PROMPT_TOKENS = 2048
_BATCH = 32
# The largest batch of decode steps that its tables hold; beyond, it would extrapolate.
MOST_REQUESTS = 512
_ANOTHER_MODEL = "compare another model or layout; the proof stays as it is"


class SecondSourceError(ProblemError):
    """AIConfigurator is missing, is another version, or has no data for what is asked."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One step, in milliseconds."""

    what: str
    ours_ms: float
    theirs_ms: float

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours_ms / self.theirs_ms

    @property
    def agrees(self) -> bool:
        """Whether both are within the stated band."""
        return abs(math.log(self.ratio)) <= math.log(BAND)

    @property
    def step(self) -> str:
        """The step without model, GPU and layout."""
        return self.what.rpartition(": ")[2]


def version() -> str:
    """What is installed, of whatever series; empty without any."""
    return importlib.metadata.version("aiconfigurator") if importlib.util.find_spec("aiconfigurator") else ""


def available() -> bool:
    """Whether the pinned series is installed."""
    return version().startswith(f"{SERIES}.")


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What a model's own schedulers run when they are full."""

    requests: int
    tokens: int
    """Mean tokens of one of them."""


def compare(name: str, gpu: str, layout: Layout, usual: Usual | None = None) -> list[Comparison]:
    """A prompt of 2,048 tokens, and decode steps of 1 and 32 requests behind such prompts, on a scheduler's GPUs.

    name: of the catalogue. usual: also a prompt of that many tokens and a decode step of that many requests, at most
    512. Both assume a 16-bit cache, and both are kernels alone, without what a running engine adds. Raises
    SecondSourceError.
    """
    if not available():
        raise SecondSourceError(f"aiconfigurator {SERIES} is not installed", fix=INSTALL)
    if gpu not in SYSTEMS:
        raise SecondSourceError(
            f"aiconfigurator has no data of {gpu}", allowed=", ".join(SYSTEMS), fix="name one of these"
        )
    model = catalogue.load(name)
    roofline = Roofline(model, GPUS[gpu], layout, "bf16", KERNELS)
    steps: list[_ComparedStep] = [
        _ComparedStep("prefill", 1, PROMPT_TOKENS),
        _ComparedStep("decode", 1, PROMPT_TOKENS),
        _ComparedStep("decode", _BATCH, PROMPT_TOKENS),
    ]
    if usual:
        steps.append(_ComparedStep("prefill", 1, usual.tokens))
        steps.append(_ComparedStep("decode", min(usual.requests, MOST_REQUESTS), usual.tokens))
    return [
        Comparison(
            what=f"{name} on {gpu}, {layout}: {step}",
            ours_ms=step.seconds(roofline) * 1e3,
            theirs_ms=_theirs_ms(model, SYSTEMS[gpu], layout, step),
        )
        for step in steps
    ]


@dataclass(frozen=True)
class _ComparedStep:
    """One prompt, or a token for each of a batch behind prompts of that many tokens."""

    phase: Literal["prefill", "decode"]
    batch: int
    tokens: int

    def seconds(self, roofline: Roofline) -> float:
        if self.phase == "prefill":
            return roofline.step_s(prefill=self.tokens, reach=self.tokens / 2)
        return roofline.step_s(decodes=self.batch, context=self.tokens + 1)

    def __str__(self) -> str:
        return f"{self.phase} of {self.batch}" + ("" if self.tokens == PROMPT_TOKENS else f" at {self.tokens:,}")


def _theirs_ms(model: catalogue.CatalogueModel, system: str, layout: Layout, step: _ComparedStep) -> float:
    for part in ("aiconfigurator", "aiconfigurator_core"):
        logging.getLogger(part).setLevel(logging.ERROR)
    # Of a model that is not among those that it brings, the package would ask the hub.
    if model.repository not in importlib.import_module("aiconfigurator_core.sdk.common").DefaultHFModels:
        raise SecondSourceError(f"aiconfigurator does not know {model.repository}", fix=_ANOTHER_MODEL)
    api = importlib.import_module("aiconfigurator.cli.api")
    ranks = layout.tensor * layout.data
    routed = {"moe_tp_size": layout.tensor, "moe_ep_size": 1}
    if layout.expert_parallel:
        routed = {"moe_tp_size": 1, "moe_ep_size": ranks}
    try:
        answer = api.cli_estimate(
            model.repository,
            system,
            mode="static_ctx" if step.phase == "prefill" else "static_gen",
            backend_name="vllm",
            isl=step.tokens,
            osl=1 if step.phase == "prefill" else 2,
            batch_size=step.batch,
            tp_size=layout.tensor,
            pp_size=layout.pipeline,
            attention_dp_size=layout.data,
            **(routed if experts_of(model) else {}),
        )
    except Exception as error:  # its own errors share no base
        raise SecondSourceError("aiconfigurator has no answer", got=str(error), fix=_ANOTHER_MODEL) from error
    return float(answer.ttft if step.phase == "prefill" else answer.tpot)


@click.command(cls=command_line.Command, help=__doc__)
@click.argument("name", type=click.Choice(catalogue.names()))
@click.argument("gpu", type=click.Choice(sorted(SYSTEMS)))
@click.option("--tensor", type=int, default=1)
@click.option("--data", type=int, default=1)
def command(*, name: str, gpu: str, tensor: int, data: int) -> int:
    try:
        comparisons = compare(name, gpu, Layout(tensor=tensor, data=data, expert_parallel=data > 1))
    except SecondSourceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for comparison in comparisons:
        verdict = "agrees" if comparison.agrees else f"leaves the band of {BAND}"
        print(
            f"{comparison.what}: {comparison.ours_ms:.1f} ms here, {comparison.theirs_ms:.1f} ms there,"
            f" {comparison.ratio:.2f}; {verdict}"
        )
    return 0 if all(comparison.agrees for comparison in comparisons) else 1


def main(argv: list[str] | None = None) -> int:
    """Print a comparison; exit status 1 where it leaves the band, 2 where there is nothing to compare."""
    return command_line.run(command, argv, name="python -m stacks.proof.second_source")


if __name__ == "__main__":
    sys.exit(main())
