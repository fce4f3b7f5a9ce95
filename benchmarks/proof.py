"""What a proof costs: processor time of each catalogue model, with and without a load, over the layouts of a node."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import click

from benchmarks.report import Result, Table
from lab.paths import Lab
from stacks.facts import catalogue
from stacks.plan.block import block
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove

HELP = "processor time of one capacity and cost proof"
NEEDS_LAB = False
_GPU = "h200-sxm"
_BUDGET_MS = 50.0
_CHAT = Load(requests_per_s=2.0, prefix_hit=0.5)
_TEXTS = Load(requests_per_s=20.0, prompt_tokens=Spread(300, 900), answer_tokens=Spread(1, 1))


PARAMETERS = (
    click.Option(["--proof-rounds"], type=int, default=5, show_default=True, help="proof: proofs of each model"),
)


def run(lab: Lab, *, proof_rounds: int) -> Result:  # noqa: ARG001
    """Times of proofs in this process, by the processor's clock; the lab is not asked."""
    rows = [_row(name, proof_rounds) for name in catalogue.names()]
    plain = sorted(float(row["as_deployed_ms"]) for row in rows)
    free = sorted(float(row["all_layouts_ms"]) for row in rows)
    return Result(
        benchmark="proof",
        question="How long does it take to show, before a GPU is touched, whether a model works and what it costs?",
        conditions={"gpu": _GPU, "models": len(rows), "rounds": proof_rounds, "budget_ms": _BUDGET_MS},
        tables=[Table(title="Processor time of one proof, median of its rounds", rows=rows)],
        findings=[
            f"With the layouts that are deployed: median {median(plain):.1f} ms a model, at most {plain[-1]:.1f} ms.",
            f"Over all layouts of a node: median {median(free):.1f} ms a model, at most {free[-1]:.1f} ms.",
        ],
    )


def _row(name: str, rounds: int) -> dict[str, str | float]:
    model = catalogue.load(name)
    load = _CHAT if model.task == "generate" else _TEXTS
    slo = Slo.of(ttft_p95_ms=4000, itl_p95_ms=80)
    base = {"name": name, "model": model, "gpu": _GPU, "slo": slo}
    plain = Order(**base, load=load, simple=True, one_node=True)  # type: ignore[arg-type]
    free = Order(**base, load=load)  # type: ignore[arg-type]
    unloaded = Order(**base, simple=True, one_node=True)  # type: ignore[arg-type]
    return {
        "model": name,
        "without_load_ms": _time_ms(lambda: prove(unloaded).verdict, rounds),
        # A plan asks for the verdict, which needs an end of the band.
        "as_deployed_ms": _time_ms(lambda: prove(plain).verdict, rounds),
        "all_layouts_ms": _time_ms(lambda: prove(free).verdict, rounds),
        "with_block_ms": _time_ms(lambda: block(Proof(prove(plain).case)), rounds),
        "chosen": str(prove(free).case.layout),
    }


def _time_ms(act: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        act()
        times.append(1000 * (time.process_time() - start))
    return round(median(times), 1)
