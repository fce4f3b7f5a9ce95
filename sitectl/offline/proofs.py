"""The proofs of a site's models, for the commands that show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from floor.problems import SiteError
from stacks.plan.gateway_load import describe_gateway, proxy_need
from stacks.plan.guarantees import draws
from stacks.plan.interim import Interim, interims
from stacks.plan.limits import exceedings
from stacks.plan.overspending import overspendings
from stacks.plan.placement import place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.settings.definition import Setting
from stacks.plan.site_plan import SitePlan, plan_file


def texts_of_file(file: Path) -> list[str]:
    """The texts of a stack file's plan; nothing for one that is not valid, whose mistakes the engine reports."""
    try:
        return plan_file(file).texts
    except SiteError:
        return []


def lacks_room(plan: SitePlan) -> bool:
    """Whether the nodes or disks that are alive do not hold everything: dead ones refuse no site before `up`."""
    return any(": DOES NOT FIT" in text.partition("\n")[0] for text in plan.rooms)


def placement(plan: SitePlan) -> dict[str, object]:
    """Where the replicas of all models find room: free GPUs by node, and what each node's failure does."""
    record: dict[str, object] = {"block": plan.placement_text}
    nodes = nodes_of(plan.site)
    if nodes is None:
        return record | {"known": False}
    placed = place(nodes, demands_of(plan.placed, plan.specs))
    meanwhile = interims(placed.losses, plan.placed) if placed.fits else []
    losses = {
        loss.node: {
            "verdict": loss.verdict,
            "missing": dict(loss.missing),
            "moved": dict(loss.moved),
            "meanwhile": {
                interim.model: _interim_record(interim) for interim in meanwhile if loss.node in interim.nodes
            },
        }
        for loss in placed.losses
    }
    record["fits"] = placed.fits
    more = {"room_for_one_more": placed.surge, "crowded_by_order": list(placed.crowded)}
    return record | {"known": True, "free": placed.free, "lost_node": losses} | more


def gateway(plan: SitePlan) -> dict[str, object]:
    """Cores that the proxies request, and what the models take of them."""
    need = proxy_need(plan.site, plan.models)
    record = {**asdict(need), "enough": need.enough, "wanted": need.wanted} if need else {}
    return {"block": describe_gateway(plan.site, plan.models), **record}


def limits(plan: SitePlan) -> dict[str, object]:
    """By how much each tenant can exceed its limits of tokens and its budget, and what of each model is guaranteed."""
    guaranteed = {
        draw.model: {
            "tokens_per_minute": draw.total,
            "carried_tokens_per_minute": draw.carried,
            "tenants": {tenant: guarantee.tokens_per_minute for tenant, guarantee in draw.guarantees.items()},
        }
        for draw in draws(plan.site, plan.models)
    }
    exceeded = {tenant: asdict(exceeding) for tenant, exceeding in exceedings(plan.site, plan.models).items()}
    overspent = {tenant: asdict(over) for tenant, over in overspendings(plan.site, plan.models).items()}
    return {"block": plan.limits_text, "exceeded": exceeded, "overspent": overspent, "guaranteed": guaranteed}


def _interim_record(interim: Interim) -> dict[str, object]:
    return {
        "replicas": interim.replicas,
        "start_s": interim.start_s,
        "utilisation_percent": interim.utilisation_percent,
        "verdict": interim.verdict,
        "as_computed": interim.as_computed,
    }


def setting_record(setting: Setting) -> dict[str, Any]:
    """A setting as data: value, where it comes from, formula, inputs, and what is made of it, or why nothing is."""
    record = {
        "setting": setting.key,
        "value": setting.value,
        "unit": setting.unit,
        "origin": setting.origin,
        "formula": setting.formula,
        "fidelity": setting.fidelity,
        "inputs": dict(setting.inputs),
        "reason": setting.reason,
        "rendered": setting.effect,
    }
    return {key: value for key, value in record.items() if value not in ("", {})}


def in_words(record: Mapping[str, Any]) -> dict[str, str]:
    """The same for people: the unit behind the value, and inputs on one line."""
    words = {key: in_text(value) for key, value in record.items() if key != "unit"}
    if unit := record.get("unit"):
        words["value"] += f" {_counted(unit) if record['value'] == 1 else unit}"
    if "inputs" in record:
        words["inputs"] = ", ".join(f"{name} = {in_text(value)}" for name, value in record["inputs"].items())
    return words


def in_text(value: Any) -> str:
    """A value as a site's file would have it: `false`, not Python's `False`."""
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


def _counted(unit: str) -> str:
    """The unit of one: `GPU` of `GPUs`, and seconds as they are."""
    first, *rest = unit.split(" ")
    return " ".join([first.removesuffix("s") or first, *rest])
