"""A site's settings for the rules: facts that they need, and waivers with a reason and a last day."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import Field, field_validator

from floor import namespaces
from floor.problems import WrongValueError, nearest
from floor.spec import Spec
from floor.stateful import Keeping
from policy.boundaries import listed
from policy.listing import RULES, names
from policy.model import Resource, Rule, SiteFacts, Violation, violations


class Waiver(Spec):
    """Lets one resource break one rule until a date."""

    rule: str
    """Name of the rule, as `sitectl rules --list` shows it."""
    resource: str
    """The resource as violations name it: `Deployment inference-models/glm-5-1`."""
    reason: str = Field(min_length=10)
    """Why, for later readers."""
    expires: datetime.date
    """Last day on which it holds."""

    @field_validator("rule")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in names():
            near = nearest(value, names())
            raise WrongValueError(
                "there is no such rule",
                near=near,
                allowed="" if near else ", ".join(names()),
                fix="take a name of: python -m sitectl rules --list",
            )
        return value


class RulesSpec(Spec):
    """A site's file next to its stack file: `rules.<site>.yaml`."""

    sovereign: bool = False
    """Nothing of the site may reach out of it."""
    registries: tuple[str, ...] = ()
    """Hosts (and paths) that images, charts and weights of a sovereign site may come from."""
    privileged_namespaces: tuple[str, ...] = ()
    """Namespaces that may run privileged pods, in addition to those of the gateway controllers."""
    host_access: tuple[str, ...] = ()
    """Workloads that may reach into their host, as violations name them."""
    waivers: tuple[Waiver, ...] = ()
    """Exceptions, each with a reason and an end."""

    def facts(
        self,
        name: str,
        load_s: Mapping[str, float] = MappingProxyType({}),
        replaced: Mapping[str, Sequence[str]] = MappingProxyType({}),
        machine_secrets: Keeping | None = None,
        pepper: Keeping | None = None,
        locked_images: Sequence[str] | None = None,
        *,
        spans_nodes: bool = False,
    ) -> SiteFacts:
        """Facts of the site called `name`.

        load_s: by model, what a start takes to load the weights. replaced: registries with the endpoints that
        machines ask in their place, and no others. machine_secrets, pepper: what the site sets for those of its
        machines and its directory. locked_images: the images that may run; None for a site that locks none.
        spans_nodes: whether replicas span several nodes, whose pods keep memory for RDMA cards.
        """
        base = SiteFacts(name=name)
        mirrored = [
            name
            for name, endpoints in replaced.items()
            if all(listed(endpoint, self.registries) for endpoint in endpoints)
        ]
        return SiteFacts(
            name=name,
            sovereign=self.sovereign,
            registries=self.registries,
            mirrored=tuple(mirrored),
            locked_images=None if locked_images is None else tuple(locked_images),
            load_s=load_s,
            privileged_namespaces=(
                *base.privileged_namespaces,
                *((namespaces.MODELS,) if spans_nodes else ()),
                *self.privileged_namespaces,
            ),
            host_access=self.host_access,
            machine_secrets=machine_secrets,
            pepper=pepper,
        )


@dataclass(frozen=True, kw_only=True)
class Expired(Violation):
    """A waiver whose last day is over."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The rules' verdict of a site once its waivers are taken into account."""

    errors: list[Violation]
    advice: list[Violation]
    waived: list[tuple[Violation, Waiver]]


def judge(
    resources: Sequence[Resource],
    facts: SiteFacts,
    waivers: Sequence[Waiver],
    today: datetime.date,
    rules: Sequence[Rule] = RULES,
) -> Judgement:
    """All violations with `waivers` applied. An expired waiver is an error itself, one without use an advice."""
    errors: list[Violation] = []
    advice: list[Violation] = []
    waived: list[tuple[Violation, Waiver]] = []
    used: set[int] = set()
    for violation in violations(resources, facts, rules):
        holding = [
            (number, waiver)
            for number, waiver in enumerate(waivers)
            if waiver.rule == violation.rule and waiver.resource == violation.resource and waiver.expires >= today
        ]
        if holding:
            used |= {number for number, _ in holding}
            waived.append((violation, holding[0][1]))
        elif violation.level == "error":
            errors.append(violation)
        else:
            advice.append(violation)
    for number, waiver in enumerate(waivers):
        if waiver.expires < today:
            errors.append(
                Expired(
                    rule=waiver.rule,
                    level="error",
                    resource=waiver.resource,
                    problem=f"its waiver expired on {waiver.expires.isoformat()} (reason: {waiver.reason})",
                    fix="fix what it waived and remove the waiver, or give it a new date and reason",
                )
            )
        elif number not in used:
            advice.append(
                Violation(
                    rule=waiver.rule,
                    level="advice",
                    resource=waiver.resource,
                    problem="its waiver waives nothing: no such resource breaks this rule",
                    fix="remove the waiver",
                )
            )
    return Judgement(errors=errors, advice=advice, waived=waived)
