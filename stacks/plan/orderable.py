"""Models that people may order: whether each would work on this site beside what it serves, when, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floor.counts import counted
from floor.problems import Problem, SiteError
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan, plan_read
from stacks.site.demand import OrderedModelSpec
from stacks.site.loader import read_values

_MOST_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Seconds from the `up` of an order's change to the model's first answer; pulling images is not in them."""

    expected_s: int
    latest_s: int
    """Then the platform counts the download or the start as failed."""

    def text(self) -> str:
        """`in about 7 min, 48 min at the latest`."""
        return f"in about {_minutes(self.expected_s)}, {_minutes(self.latest_s)} at the latest"


@dataclass(frozen=True, kw_only=True)
class ModelOffer:
    """A model that may be ordered, as the site would serve it."""

    name: str
    spec: OrderedModelSpec
    revision: RevisionPlan | None
    """None where the site would be refused with it."""
    reasons: tuple[str, ...] = ()
    """Why; empty where it works."""

    @property
    def ready(self) -> Ready | None:
        """None where it does not work."""
        return ready_of(self.revision) if self.revision else None


def ordered(values: Mapping[str, Any], model: str, tenant: str | None = None) -> dict[str, Any]:
    """A site's values in which `model` is served: what an order changes. The tenant may call it then."""
    orderable = dict(values.get("orderable") or {})
    models = dict(values["models"])
    if model in orderable:
        models[model] = orderable.pop(model)
    made = {**values, "models": models, "orderable": orderable}
    if tenant is not None:
        spec = values["tenants"][tenant]
        made["tenants"] = {**values["tenants"], tenant: {**spec, "models": [*spec["models"], model]}}
    return made if orderable else {key: value for key, value in made.items() if key != "orderable"}


def offers(plan: SitePlan) -> dict[str, ModelOffer]:
    """Each model that may be ordered, alone beside what the site serves, by name."""
    return {name: offer(plan, name) for name in sorted(plan.site.orderable)}


def offer(plan: SitePlan, name: str) -> ModelOffer:
    """One of them. Raises KeyError for a name that may not be ordered."""
    spec = plan.site.orderable[name]
    values = plan.site.model_dump(mode="json", exclude_unset=True)
    try:
        # The files of a model that is not served are in no lock yet, and its images are those of the others.
        with_it = plan_read(read_values(ordered(values, name), plan.file), without=("weights", "images"))
    except SiteError as error:
        return ModelOffer(name=name, spec=spec, revision=None, reasons=tuple(_reasons(error.problems, name)))
    return ModelOffer(name=name, spec=spec, revision=with_it.models[name].stable)


def _reasons(problems: tuple[Problem, ...], name: str) -> Iterator[str]:
    """Its own first; then what it would do to others."""
    own = [problem for problem in problems if problem.path[:2] == ("models", name)]
    for problem in (own or problems)[:_MOST_REASONS]:
        where = "" if own else f"{'.'.join(problem.path[:2])}: "
        yield f"{where}{problem.sentence}"


def ready_of(revision: RevisionPlan) -> Ready:
    """When it answers, by its proof, and when it is given up, by its settings."""
    order, start, settings = revision.proof.order, revision.proof.cold_start, revision.settings
    latest = settings["start_budget_s"].whole
    if start["download_weights"].value:
        latest += order.downloads * settings["download_budget_s"].whole
    return Ready(expected_s=round(start["first_start"].value), latest_s=latest)


def takes(revision: RevisionPlan) -> str:
    """`4 GPUs, 96 GPU hours a day, 14.9 EUR/h`; the cost where the site has prices."""
    gpus, cost = revision.proof.case.gpus, revision.proof.cost
    parts = [counted(gpus, "GPU"), f"{24 * gpus:,} GPU hours a day", *([str(cost["hour"])] if cost else [])]
    return ", ".join(parts)


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 90 else f"{-(-seconds // 60)} min"
