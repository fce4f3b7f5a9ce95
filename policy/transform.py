"""The rules as a stack transform: preview fails with every violation at once, and `up` changes nothing before.

`enforced` goes around everything that a program declares. Every registration waits for the decision at its end, so
that `up --skip-preview` cannot create what the rules forbid.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi._types import input_type_to_dict, is_input_type
from pulumi.runtime.stack import register_stack_transformation

from policy.model import HIDDEN, Resource, SiteFacts, Violation
from policy.waivers import Expired, Waiver, judge


class RulesError(pulumi.RunError):
    """Everything that the rules found; the engine prints it without a traceback."""


class RulesGate:
    """Collects the resources of a program and decides on them once."""

    def __init__(self, facts: SiteFacts, waivers: Sequence[Waiver], today: datetime.date) -> None:
        self._facts = facts
        self._waivers = waivers
        self._today = today
        self._seen: list[Resource] = []
        # Made for the loop that the program runs on.
        self._gate: asyncio.Future[list[pulumi.Resource]] = asyncio.get_event_loop().create_future()
        self._behind_it = pulumi.ResourceOptions(depends_on=pulumi.Output.from_input(self._gate))

    def transform(self, args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        """Note the resource and let its registration wait for the decision."""
        # A resource that is read by its id belongs to others; the program does not declare it.
        if isinstance(args.resource, pulumi.CustomResource) and not args.opts.id:
            seen = Resource(
                type=args.type_,
                name=args.name,
                body=body_of(args.type_, args.props),
                protected=bool(args.opts.protect),
                retained=bool(args.opts.retain_on_delete),
            )
            if self._gate.done():
                raise RulesError(_too_late(self._facts.name, seen))
            self._seen.append(seen)
        opts = pulumi.ResourceOptions.merge(args.opts, self._behind_it)
        return pulumi.ResourceTransformationResult(args.props, opts)

    def decide(self) -> None:
        """Open the gate. Raises RulesError with every violation that no waiver covers, and keeps the gate shut."""
        judgement = judge(self._seen, self._facts, self._waivers, self._today)
        if judgement.errors:
            error = RulesError(message(self._facts.name, judgement.errors))
            self.give_up(error)
            raise error
        if judgement.advice:
            pulumi.log.info(advice(self._facts.name, judgement.advice))
        self._gate.set_result([])

    def give_up(self, error: Exception) -> None:
        """Close the gate permanently. All that wait for it get the error instead of waiting forever."""
        self._gate.set_exception(error)
        # If a program declared nothing, nothing retrieves the error, and asyncio would warn about that.
        self._gate.exception()


@contextmanager
def enforced(facts: SiteFacts, waivers: Sequence[Waiver], today: datetime.date) -> Iterator[None]:
    """Everything that the running program declares in here is registered after its end, if it keeps the rules.

    Raises RulesError if it does not; then, and when the program fails in here, nothing is registered at all.
    """
    made = RulesGate(facts, waivers, today)
    register_stack_transformation(made.transform)
    try:
        yield
    except Exception as error:
        made.give_up(error)
        raise
    made.decide()


def message(site: str, broken: Sequence[Violation]) -> str:
    """All violations in the project's one form, and how to waive one."""
    count = "1 violation" if len(broken) == 1 else f"{len(broken)} violations"
    lines = [f"{site}: {count} of the platform's rules, so nothing was touched", *_indented(broken)]
    for violation in [violation for violation in broken if not isinstance(violation, Expired)][:1]:
        lines += [
            f"  fix them; or waive one for a while in rules.{site}.yaml, under its rule and resource:",
            "    waivers:",
            f"      - rule: {violation.rule}",
            f"        resource: {violation.resource}",
            "        reason: why it may be broken",
            "        expires: YYYY-MM-DD",
        ]
    return "\n".join([*lines, f"  the same without the engine: python -m sitectl rules {site}"])


def advice(site: str, violations: Sequence[Violation]) -> str:
    """What breaks no rule that is an error, in the same form."""
    return "\n".join([f"{site}: advised by the platform's rules", *_indented(violations)])


def _indented(violations: Sequence[Violation]) -> list[str]:
    return [f"  {line}" for violation in violations for line in str(violation).splitlines()]


def _too_late(site: str, resource: Resource) -> str:
    return (
        f"{site}: {resource.label} is declared after the rules have looked, inside an apply or behind the platform\n"
        "  fix: declare it with the others, and give it the output as an input"
    )


def body_of(type_: str, props: Mapping[str, Any]) -> dict[str, Any]:
    """Wire format of a resource's arguments: top-level names in camelCase, Outputs and promises hidden."""
    body = {_camel(str(key)): _plain(value) for key, value in props.items() if value is not None}
    if type_.startswith("kubernetes:") and "kind" not in body:
        body["kind"] = type_.rpartition(":")[2]
    return body


def _plain(value: Any) -> Any:
    # Text first: the definitions of custom resources are five megabytes of it.
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, pulumi.Output) or inspect.isawaitable(value):
        return HIDDEN
    if is_input_type(type(value)):
        return _plain(input_type_to_dict(value))
    return _plain(dict(value)) if isinstance(value, Mapping) else value


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), key)
