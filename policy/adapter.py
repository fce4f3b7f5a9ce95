"""From a stack as CrossGuard shows it to the rules' resources, and from violations to its reports. Knows no SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from policy.model import HIDDEN, Resource, Rule, SiteFacts, violations

# What the SDK has for a list and an object that are not known yet (pulumi_policy/proxy.py of 1.21).
_UNKNOWN_SECTIONS = ("6a19a0b0-7e62-4c92-b797-7f8e31da9cc2", "dd056dcd-154b-4c76-9bd3-c8f88648b5ff")


class Shown(Protocol):
    """One resource as the SDK gives it."""

    @property
    def resource_type(self) -> str: ...

    @property
    def props(self) -> Mapping[str, Any]: ...

    @property
    def urn(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def opts(self) -> Any: ...


class Stack(Protocol):
    """All resources of a stack as the SDK gives them."""

    @property
    def resources(self) -> Iterable[Any]: ...


Report = Callable[[str, str | None], None]
"""Message and URN."""


def resource(shown: Shown) -> Resource:
    """One resource. What is secret or unknown in a preview is hidden.

    A stack validation is shown outputs, where the Kubernetes provider keeps what was asked for as `__inputs`. Values of
    a Secret arrive in plain text whether or not the program marked them, so this host cannot judge them.
    """
    props = plain(shown.props)
    body = dict(props.get("__inputs") or props)
    if shown.resource_type.endswith(":Secret"):
        body |= {section: HIDDEN for section in ("data", "stringData") if section in body}
    return Resource(
        type=shown.resource_type,
        name=shown.name,
        body=body,
        protected=bool(getattr(shown.opts, "protect", False)),
    )


def plain(value: Any) -> Any:
    """Plain data out of the SDK's proxies, which raise for what is not known yet."""
    if isinstance(value, Mapping):
        return dict(_known(value, value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [inner for _, inner in _known(value, range(len(value)))]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return HIDDEN


def _known(owner: Any, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each part that is known, an unknown leaf as HIDDEN; unknown sections are left out."""
    for key in keys:
        try:
            value = owner[key]
        except Exception as error:  # noqa: BLE001 - the SDK's own, whose module need not be there
            if getattr(error, "unknown_type_sentinel", "") not in _UNKNOWN_SECTIONS:
                yield key, HIDDEN
            continue
        yield key, plain(value)


def validation(rule: Rule, facts: SiteFacts) -> Callable[[Stack, Report], None]:
    """What CrossGuard runs for one rule, on a whole stack: some rules look at several resources at once."""

    def validate(stack: Stack, report: Report) -> None:
        shown = list(stack.resources)
        there = [resource(declared) for declared in shown]
        urns = {judged.label: declared.urn for judged, declared in zip(there, shown, strict=True)}
        for violation in violations(there, facts, [rule]):
            report(f"{violation.resource}: {violation.problem}\nfix: {violation.fix}", urns.get(violation.resource))

    return validate
