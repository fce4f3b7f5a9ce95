"""The rules as a stack transform: preview fails with every violation at once, and `up` touches nothing before.

Call `watch` before the first resource and `Watch.decide` after the last one. Every registration waits for the
decision, so that `up --skip-preview` cannot create what the rules forbid.
"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi.runtime.stack import register_stack_transformation

from components.rules.model import HIDDEN, Resource, SiteFacts
from components.rules.waivers import Waiver, judge


class RulesError(pulumi.RunError):
    """Everything that the rules found; the engine prints it without a traceback."""


class Watch:
    """Collects the resources of a program and decides on them once."""

    def __init__(self, facts: SiteFacts, waivers: Sequence[Waiver], today: datetime.date) -> None:
        self._facts = facts
        self._waivers = waivers
        self._today = today
        self._seen: list[Resource] = []
        self._decision: asyncio.Future[list[pulumi.Resource]] | None = None

    def transform(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        """Note the resource and let its registration wait for the decision."""
        if isinstance(args.resource, pulumi.CustomResource):
            self._seen.append(
                Resource(
                    type=args.type_,
                    name=args.name,
                    body=body_of(args.type_, args.props),
                    protected=bool(args.opts.protect),
                    retained=bool(args.opts.retain_on_delete),
                )
            )
        gate = pulumi.ResourceOptions(depends_on=pulumi.Output.from_input(self._gate()))
        return pulumi.ResourceTransformationResult(args.props, pulumi.ResourceOptions.merge(args.opts, gate))

    def decide(self) -> None:
        """Open the gate. Raises RulesError with every violation that no waiver covers, and keeps the gate shut."""
        found = judge(self._seen, self._facts, self._waivers, self._today)
        for one in found.advice:
            pulumi.log.warn(f"advice: {one}")
        error = RulesError(message(self._facts.name, [str(one) for one in found.errors])) if found.errors else None
        gate = self._gate()
        if error:
            gate.set_exception(error)
            # Whoever waits for the gate gets it too; this raise alone would let the registrations run first.
            raise error
        gate.set_result([])

    def _gate(self) -> asyncio.Future[list[pulumi.Resource]]:
        if self._decision is None:
            self._decision = asyncio.get_event_loop().create_future()
        return self._decision


def watch(facts: SiteFacts, waivers: Sequence[Waiver], today: datetime.date) -> Watch:
    """Watch every resource that the running program declares from now on."""
    made = Watch(facts, waivers, today)
    register_stack_transformation(made.transform)
    return made


def message(site: str, lines: Sequence[str]) -> str:
    """All violations in the project's one form."""
    count = "1 violation" if len(lines) == 1 else f"{len(lines)} violations"
    shown = [line.replace("\n", "\n  ") for line in lines]
    return f"{site}: {count} of the platform's rules\n" + "\n".join(f"  {line}" for line in shown)


def body_of(type_: str, props: Mapping[str, Any]) -> dict[str, Any]:
    """Wire format of a resource's arguments: top-level names in camelCase, whatever is an Output hidden."""
    body = {_camel(str(key)): _plain(value) for key, value in props.items() if value is not None}
    if type_.startswith("kubernetes:") and "kind" not in body:
        body["kind"] = type_.rpartition(":")[2]
    return body


def _plain(value: Any) -> Any:
    if isinstance(value, pulumi.Output):
        return HIDDEN
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), key)
