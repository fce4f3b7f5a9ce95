"""What changes on one site: the severity, GPUs, cost, restarts, and the tenants that are affected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from floor.revision_ids import RevisionId
from policy.model import Resource
from sitectl.change import cold_starts, field_owners, guarantees, machine_changes, support
from sitectl.change.changes import Change, of_preview
from sitectl.change.cold_starts import ColdStart
from sitectl.change.field_owners import ForeignFields
from sitectl.change.guarantees import Moved
from sitectl.change.headroom import Headroom, of_records
from sitectl.change.machine_changes import MachineChange
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.change.support import Broken
from sitectl.change.verdicts import front, handover, revisions
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.handover import Handover
from sitectl.change.verdicts.model import Severity, Verdict
from sitectl.shell.errors import SitectlError
from stacks.facts.hardware import GPUS
from stacks.plan.orders import prices_of
from stacks.proof import money
from stacks.site.demand import PricesSpec
from stacks.site.loader import KEY
from stacks.site.model import ClusterSpec
from stacks.site.reading.raw import items, mapping

# More than this many rows with the same words are one.
_MOST_ALIKE = 4
# Lines of the engine and its language host next to an error of the program.
_NO_MORE_THAN_FAILED = (
    "preview failed",
    "an unhandled error occurred: program exited with non-zero exit code: 1",
)
# What a program prints, in a traceback, when the engine left because of another error.
_CUT_OFF = "the client connection is closing"
Access = dict[str, set[str]]


@dataclass(frozen=True, kw_only=True)
class Price:
    """What one GPU costs for one hour."""

    gpu_hour: float
    """With its share of the node's power."""
    currency: str


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """One site's change. Money is in the unit of the price that was given, times are in seconds."""

    site: str
    rows: list[Verdict]
    """Worst first; what is merely made or changed without a consequence is last."""
    operations: dict[str, int]
    """Resources by operation."""
    gpus: float
    cost_per_month: float | None
    """None when no price is known."""
    currency: str
    restarts: int
    cold_start_s: int
    """Longest of all models, as the startup probes bound it: they restart in parallel."""
    expected_start_s: int | None
    """The same by their proofs; None where something without one may take longer."""
    tenants: list[str]
    """Tenants that notice: everything above LIVE."""
    errors: list[str]
    """Why the preview failed, in the message of the engine or of what prevented the check."""
    proofs: list[str]
    """One block a model, where the site's proof offers one."""
    headroom: list[Headroom] = field(default_factory=list)
    """What is left to each model's targets, before and after."""
    warnings: list[str] = field(default_factory=list)
    """What works on this site, and is not wise."""
    foreign: list[ForeignFields] = field(default_factory=list)
    """Fields of the site's objects that others have set, where the cluster was looked at."""
    knows_site: bool = True
    """Whether the site's own file was read, which alone has prices and targets."""
    machines: list[MachineChange] = field(default_factory=list)
    """Keys and configs of machines that change, the worst first."""
    machines_unseen: str = ""
    """Why machines were not compared; empty where they were."""

    @property
    def worst(self) -> Severity | None:
        severities = [*(row.severity for row in self.rows), *(change.severity for change in self.machines)]
        return min(severities, default=None)

    @property
    def is_blind(self) -> bool:
        """Whether the preview failed before it reported anything about a resource, so that no figure is known."""
        return bool(self.errors) and not self.rows

    @property
    def empty(self) -> bool:
        return not (self.rows or self.errors or self.warnings or self.foreign or self.machines or self.machines_unseen)

    def record(self) -> dict[str, Any]:
        """The report as `--json` gives it."""
        rows = [{**asdict(row), "severity": row.severity.name.lower()} for row in self.rows]
        worst = self.worst.name.lower() if self.worst is not None else None
        headroom = [share.record() for share in self.headroom]
        return {**asdict(self), "rows": rows, "worst": worst, "headroom": headroom}


def report(
    site: str,
    changes: Sequence[Change],
    callers: Access,
    *,
    keys: Mapping[str, str] | None = None,
    price: Price | None = None,
    errors: Sequence[str] = (),
    proofs: Sequence[str] = (),
    headroom: Sequence[Headroom] = (),
    starts: Mapping[str, ColdStart] | None = None,
    warnings: Sequence[str] = (),
    foreign: Sequence[ForeignFields] = (),
    knows_site: bool = True,
    machines: Sequence[MachineChange] = (),
    machines_unseen: str = "",
    guaranteed: Sequence[Moved] = (),
    broken: Sequence[Broken] = (),
) -> SiteReport:
    """Judge every change.

    callers: the models of each tenant, before or after. keys: the tenant of each command that mints a key, by its name.
    """
    for change in changes:
        with _in_form(change):
            handover.handover([change])
    over, gone = handover.handover(changes), revisions.leaving(changes)
    rows = [
        replace(
            row,
            tenants=tuple(sorted(_touched(row, callers, (keys or {}).get(change.name, "")))),
            expected_start_s=_expected_s(row, starts or {}),
        )
        for change in changes
        for row in revisions.served_on(change, _judged(change, over), gone)
    ]
    rows += [*guarantees.verdicts(guaranteed, callers), *support.verdicts(broken, callers)]
    rows.sort(key=lambda row: (row.severity, _rank(row), row.model, row.resource, row.what))
    gpus = sum(row.gpus for row in rows)
    return SiteReport(
        site=site,
        rows=rows,
        operations=dict(sorted(Counter(change.op for change in changes).items())),
        gpus=gpus,
        cost_per_month=None if price is None else round(money.monthly(gpus, price.gpu_hour), 2),
        currency=price.currency if price else "",
        restarts=sum(row.restarts for row in rows),
        cold_start_s=max((row.cold_start_s for row in rows), default=0),
        expected_start_s=_longest_s(rows),
        tenants=sorted({name for row in rows if row.severity is not Severity.LIVE for name in row.tenants}),
        errors=list(errors),
        proofs=list(proofs),
        headroom=list(headroom),
        warnings=list(warnings),
        foreign=list(foreign),
        knows_site=knows_site,
        machines=sorted(machines, key=lambda change: change.severity),
        machines_unseen=machines_unseen,
    )


def _expected_s(row: Verdict, starts: Mapping[str, ColdStart]) -> int | None:
    start = starts.get(row.model)
    return start.expected_s(row) if start and row.cold_start_s else None


def _longest_s(rows: Sequence[Verdict]) -> int | None:
    known = max((row.expected_start_s for row in rows if row.expected_start_s is not None), default=None)
    others = max((row.cold_start_s for row in rows if row.expected_start_s is None), default=0)
    return known if known is not None and known >= others else None


def _judged(change: Change, over: Handover) -> list[Verdict]:
    with _in_form(change):
        return classify(change, over)


@contextmanager
def _in_form(change: Change) -> Iterator[None]:
    """Raises SitectlError for an object that has not the form of its kind: a saved preview may come from any source."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise SitectlError(
            f"{change.type} {change.name} has not the form of its kind, so no verdict is possible",
            fix=SAVE_ONE,
        ) from error


def of_preview_document(site: str, preview: Mapping[str, Any]) -> SiteReport:
    """Report of `pulumi preview --json` and of what sitectl added to it. Raises SitectlError."""
    changes = of_preview(preview)
    errors = [
        str(diagnostic.get("message", "")).removeprefix("error: ").strip()
        for diagnostic in preview.get("diagnostics") or ()
        if diagnostic.get("severity") == "error"
    ]
    own = [error for error in dict.fromkeys(errors) if _CUT_OFF not in error]
    telling = [error for error in own if error and error not in _NO_MORE_THAN_FAILED]
    words = _site_words(preview.get("config") or {})
    callers = _merged(_of_changes(changes), _of_words(words))
    keys = _keys_of_changes(changes) | _keys_of_words(words)
    price = _price_of_words(words)
    proofs = [str(proof) for proof in preview.get("proofs") or ()]
    headroom = of_records(preview.get("headroom"))
    starts = cold_starts.of_records(preview.get("cold_starts"))
    return report(
        site,
        changes,
        callers,
        keys=keys,
        price=price,
        errors=telling or errors[:1],
        proofs=proofs,
        headroom=headroom,
        starts=starts,
        warnings=[str(warning) for warning in preview.get("warnings") or ()],
        foreign=field_owners.of_records(preview.get("foreign")),
        machines=machine_changes.of_records(preview.get("machines")),
        guaranteed=guarantees.of_records(preview.get("guarantees")),
        broken=support.of_records(preview.get("support")),
    )


def price_of(gpu: str, prices: PricesSpec | None) -> Price | None:
    """What one GPU of that kind costs; None without prices. Raises KeyError for a kind that the platform lacks."""
    paid = prices_of(prices)
    return Price(gpu_hour=money.gpu_hourly(GPUS[gpu], paid), currency=paid.currency) if paid else None


def _price_of_words(site: Mapping[str, Any]) -> Price | None:
    """The same of a site that no loader has read; None for prices or a GPU that it would refuse."""
    gpu = mapping(site.get("cluster")).get("gpu", ClusterSpec.model_fields["gpu"].default)
    try:
        return price_of(str(gpu), PricesSpec.model_validate(site.get("prices")))
    except (KeyError, ValueError):
        return None


# Kinds of objects that have tenants: where the gateway checks keys, and where a gatekeeper decides.
_WITH_TENANTS = ("SecurityPolicy", "ConfigMap")


def callers_of(resources: Iterable[Resource]) -> Access:
    """Tenants and their models out of declared resources, dedicated replicas by their own name."""
    return _merged(*(front.answering(resource.body) for resource in resources if resource.kind in _WITH_TENANTS))


def keys_of(resources: Iterable[Resource]) -> dict[str, str]:
    """The tenant of each command that mints a key, out of declared resources."""
    declared = list(resources)
    policies = [front.keys_of(resource.body) for resource in declared if resource.kind == "SecurityPolicy"]
    keys = {name: tenant for keys in policies for name, tenant in keys.items()}
    return keys or front.keys_by_name([resource.name for resource in declared], callers_of(declared))


def _keys_of_changes(changes: Sequence[Change]) -> dict[str, str]:
    tenants: dict[str, str] = {}
    for change in changes:
        if change.kind == "SecurityPolicy":
            with _in_form(change):
                tenants |= front.keys_of(change.before) | front.keys_of(change.after)
    return tenants


def _keys_of_words(site: Mapping[str, Any]) -> dict[str, str]:
    tenants = mapping(site.get("tenants"))
    return {
        front.command_name(name, key): name
        for name, tenant in tenants.items()
        for key in mapping(mapping(tenant).get("keys"))
    }


def _of_changes(changes: Sequence[Change]) -> Access:
    policies = [change for change in changes if change.kind in _WITH_TENANTS]
    accesses = []
    for change in policies:
        with _in_form(change):
            accesses += [front.answering(change.before), front.answering(change.after)]
    return _merged(*accesses)


def _site_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """The site out of the stack's configuration, which the engine repeats in a preview as text."""
    try:
        site = json.loads(config.get(KEY, "{}"))
    except (RecursionError, TypeError, ValueError):
        return {}
    return site if isinstance(site, dict) else {}


def _of_words(site: Mapping[str, Any]) -> Access:
    tenants = mapping(site.get("tenants"))
    models = {name: mapping(tenant).get("models") for name, tenant in tenants.items()}
    dedicated = {
        (tenant, name): RevisionId(name, group=group).name
        for name, model in mapping(site.get("models")).items()
        for group, spec in mapping(mapping(model).get("dedicated")).items()
        for tenant in items(mapping(spec).get("tenants"))
    }
    return {
        name: {dedicated.get((name, str(model)), str(model)) for model in given}
        for name, given in models.items()
        if isinstance(given, list)
    }


def _merged(*parts: Access) -> Access:
    whole: Access = {}
    for part in parts:
        for tenant, models in part.items():
            whole.setdefault(tenant, set()).update(models)
    return whole


# What takes others along comes before them.
_ROOTS = ("pulumi:providers:", "Namespace ")


def _rank(row: Verdict) -> int:
    return next((place for place, start in enumerate(_ROOTS) if row.resource.startswith(start)), len(_ROOTS))


def folded(rows: Sequence[Verdict]) -> list[Verdict]:
    """Rows for people: many with the same words about one kind are one row with their names."""
    groups: dict[tuple[Any, ...], list[Verdict]] = {}
    for row in rows:
        kind, _, own = row.resource.rpartition(" ")
        alike = (row.severity, kind, row.reason, row.tenants, row.what.replace(own, "").partition(" ")[0])
        groups.setdefault(alike, []).append(row)
    shown = []
    for group in groups.values():
        if len(group) <= _MOST_ALIKE:
            shown += group
            continue
        kind = group[0].resource.rpartition(" ")[0]
        names = ", ".join(sorted(row.resource.rpartition(" ")[2] for row in group))
        whats = list(dict.fromkeys(row.what for row in group))
        what = whats[0] if len(whats) == 1 else f"{whats[0]}, and so on"
        shown.append(
            replace(
                group[0],
                resource=f"{len(group)} x {kind}",
                what=what,
                reason=f"{group[0].reason} ({names})",
                gpus=sum(row.gpus for row in group),
                restarts=sum(row.restarts for row in group),
            )
        )
    return shown


def _touched(row: Verdict, callers: Access, owner: str) -> set[str]:
    if owner:
        return {owner}
    if row.tenants:
        return set(row.tenants)
    if row.model:
        revision = RevisionId.of(row.model)
        return {
            tenant for tenant, models in callers.items() if (row.model if revision.group else revision.model) in models
        }
    return set(callers)
