"""AIConfigurator's step times compared with those of a site's proofs, for `proof --with-aiconfigurator`."""

from __future__ import annotations

from typing import Any

from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.models import RevisionPlan
from stacks.proof import second_source
from stacks.proof.second_source import BAND, INSTALL, PROMPT_TOKENS, SERIES, SecondSourceError, Usual


def require() -> None:
    """Raises SitectlError, status UNABLE, unless the series that the proof is held against is installed."""
    if not second_source.available():
        raise SitectlError(
            "the second source is not installed",
            got=f"aiconfigurator {second_source.version()}".rstrip()
            if second_source.version()
            else "no aiconfigurator",
            allowed=f"aiconfigurator {SERIES}.*",
            fix=f"{INSTALL} (850 MB, which is why it is optional)",
            status=Exit.UNABLE,
        )


def of_revision(revision: RevisionPlan) -> dict[str, Any]:
    """Each step in milliseconds here and there with its ratio, or under `unknown` why there is nothing to compare."""
    source = {"source": f"aiconfigurator {second_source.version()}", "band": BAND}
    try:
        case = revision.proof.case
        usual = Usual(requests=case.slots, tokens=round(case.order.request_tokens))
        steps = second_source.compare(revision.spec.catalogue, case.order.gpu, case.layout, usual)
    except SecondSourceError as error:
        return {**source, "unknown": error.problem.sentence, "steps": []}
    rows = [
        {
            "step": comparison.step,
            "ours_ms": round(comparison.ours_ms, 2),
            "theirs_ms": round(comparison.theirs_ms, 2),
            "ratio": round(comparison.ratio, 2),
            "inside": comparison.agrees,
        }
        for comparison in steps
    ]
    return {**source, "steps": rows}


def lines(comparison: dict[str, Any]) -> str:
    """The same as lines below a model's block."""
    head = f"  compared    {comparison['source']}"
    if "unknown" in comparison:
        return f"{head}: nothing to compare, {comparison['unknown']}"
    rows = [
        f"    {step['step']:<23}{step['ours_ms']:>9.1f} ms here {step['theirs_ms']:>9.1f} ms there   "
        f"ratio {step['ratio']:.2f}, {'inside' if step['inside'] else 'OUTSIDE'}"
        for step in comparison["steps"]
    ]
    return "\n".join(
        [
            f"{head}: prompts of {PROMPT_TOKENS:,} tokens or as named, 16-bit cache; "
            f"band {comparison['band']} either way",
            *rows,
        ]
    )


def agrees(comparison: dict[str, Any]) -> bool:
    """Whether no step leaves the band; a model that the source does not know is nothing against the proof."""
    return all(step["inside"] for step in comparison["steps"])
