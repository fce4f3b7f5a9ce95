"""How long replicas take until they answer, by their proofs: what to expect, beside what their probes let pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from floor.problems import SiteError
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.change.verdicts.model import Verdict
from sitectl.shell.errors import SitectlError
from stacks.plan.site_plan import SitePlan, plan_file


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """Seconds from a scheduled Pod to its first answer, with its weights in place. Estimated."""

    alone_s: int
    """Of one replica that starts by itself."""
    together_s: int
    """Of all replicas at once."""

    def expected_s(self, row: Verdict) -> int:
        """Until the last replica of a change serves; of several that are added, as if all of the model started.

        Streams that drain before, and weights that are downloaded before, are not counted.
        """
        return row.rounds * self.alone_s or self.together_s


def of_plan(plan: SitePlan | None) -> dict[str, ColdStart]:
    """By revision; without simulated ones, whose starts are as short as their site wants."""
    planned = plan.named if plan else {}
    real = {name: revision for name, revision in planned.items() if revision.spec.server.engine == "vllm"}
    return {
        name: ColdStart(
            alone_s=round(revision.proof.cold_start["cold_start"].value),
            together_s=round(revision.proof.cold_start["cold_start_together"].value),
        )
        for name, revision in real.items()
    }


def of_file(file: Path) -> dict[str, dict[str, int]]:
    """Records of a stack file's plan; nothing for one that is not valid, whose mistakes the engine reports."""
    try:
        return {name: asdict(start) for name, start in of_plan(plan_file(file)).items()}
    except SiteError:
        return {}


def of_records(records: Any) -> dict[str, ColdStart]:
    """From a saved preview, which may come from any source. Raises SitectlError for another form."""
    try:
        given: Mapping[str, Any] = records or {}
        return {
            str(name): ColdStart(alone_s=int(start["alone_s"]), together_s=int(start["together_s"]))
            for name, start in given.items()
        }
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise SitectlError(
            "the cold starts in this preview have not the form that sitectl writes", fix=SAVE_ONE
        ) from error
