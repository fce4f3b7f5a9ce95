"""`kubelet_config`: fields that the kubelet knows, with values that it and Talos take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from floor.durations import is_duration, seconds_of
from floor.problems import Path, Problem, nearest, shown
from stacks.facts import kubelet_fields
from stacks.facts.kubelet_fields import Kind
from stacks.site.checks import gates, kubelet_rules
from stacks.site.reading.levels import LEVELS, MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, mapping, matching, number

# What the machine config itself writes around the kubelet's configuration.
_ENVELOPE = frozenset({"apiVersion", "kind"})
_QUANTITY = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)%")
_RESERVED = ("cpu", "memory", "ephemeral-storage", "pid")
_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
)
_SOFT, _GRACE = "evictionSoft", "evictionSoftGracePeriod"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_duration(value: Any) -> bool:
    return isinstance(value, str) and is_duration(value)


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _by_name(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(fits, value.values()))


_TYPES: Mapping[Kind, tuple[Callable[[Any], bool], str]] = {
    "switch": (_is_switch, "true or false"),
    "integer": (_is_integer, "a whole number without quotes"),
    "number": (lambda value: number(value) is not None, "a number without quotes"),
    "text": (_is_text, "a text"),
    "duration": (_is_duration, "a time with its unit, such as 30s or 5m"),
    "texts": (_list_of(_is_text), "a list of texts"),
    "integers": (_list_of(_is_integer), "a list of whole numbers"),
    "section": (lambda value: isinstance(value, Mapping), "a section"),
    "sections": (_list_of(lambda value: isinstance(value, Mapping)), "a list of sections"),
    "text_by_name": (_by_name(_is_text), "a section of names and texts"),
    "switch_by_name": (_by_name(_is_switch), "a section of names, each true or false"),
    "duration_by_name": (_by_name(_is_duration), "a section of names and times, such as 1m30s"),
    "quantities": (_by_name(_is_text), f"a section of quantities in quotes for {', '.join(_RESERVED)}"),
    "thresholds": (_by_name(_is_text), "a section of signals and texts, such as memory.available: 500Mi"),
}
# The same of what is below a name.
_INNER: Mapping[Kind, tuple[Callable[[Any], bool], str]] = {
    "text_by_name": (_is_text, "a text in quotes"),
    "switch_by_name": (_is_switch, "true or false"),
    "duration_by_name": _TYPES["duration"],
    "quantities": (_is_text, "a quantity in quotes"),
    "thresholds": (_is_text, "a quantity or a share in quotes"),
}
# A field, its value without one, and the field whose value it may not pass, with that one's; whether both may be equal.
_PAIRS: tuple[tuple[str, Any, str, Any, bool], ...] = (
    ("shutdownGracePeriodCriticalPods", "10s", "shutdownGracePeriod", "30s", True),
    ("imageGCLowThresholdPercent", 80, "imageGCHighThresholdPercent", 85, False),
)


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields that the kubelet does not know, that are decided elsewhere, and values that it refuses."""
    machines = at(values, *MACHINES)
    wrong: set[str] = set()
    for level in LEVELS:
        for path, value in matching(machines, f"{level}kubelet_config.<name>"):
            if not isinstance(at(machines, *path[:-1]), Mapping):
                continue
            for problem in _of_field((*MACHINES, *path), path[-1], value):
                wrong.add(path[-1])
                yield problem
    for machine in machines_of(machines):
        yield from _of_pairs(machine, wrong)


def _of_field(path: Path, field: str, value: Any) -> Iterator[Problem]:
    table = kubelet_fields.load()
    decision = table.decisions.get(field)
    if field in _ENVELOPE:
        yield Problem(path=path, what="is written by Talos, not by the site", fix="take it out")
    elif decision is not None:
        if decision.always is not None and (type(value), value) == (type(decision.always), decision.always):
            return
        site_key = decision.by not in ("Talos", "the platform")
        yield Problem(
            path=path,
            what=f"is decided by {decision.by}" + (f": {decision.why}" if decision.why else ""),
            got=shown(value),
            allowed="" if decision.always is None else shown(decision.always),
            fix="take it out" + (f", and use {decision.by}" if site_key else ""),
        )
    elif field not in table.kinds:
        near = nearest(field, (*table.kinds, *table.decisions))
        yield Problem(
            path=path,
            what="is no field of the kubelet's configuration",
            near=near,
            fix=f"write {near}" if near else "take it out; stacks/facts/kubelet_fields.yaml lists all fields",
        )
    else:
        yield from _of_value(path, (field,), table.kinds[field], value)


def _of_value(path: Path, place: tuple[str, ...], kind: Kind, value: Any) -> Iterator[Problem]:
    """A field, or one below it at `place`."""
    table, field = kubelet_fields.load(), ".".join(place)
    fits, called = _TYPES[kind]
    if isinstance(value, Mapping) and kind in _INNER and not fits(value):
        inner_fits, called = _INNER[kind]
        for name, inner in value.items():
            if not inner_fits(inner):
                yield Problem(path=(*path, str(name)), what=f"is not {called}", got=shown(inner), fix=f"write {called}")
        return
    if not fits(value):
        yield Problem(path=path, what=f"is not {called}", got=shown(value), fix=f"write {called}, or take it out")
        return
    yield from _of_table(path, field, value)
    if field in table.inner:
        for index, section in enumerate(value) if isinstance(value, list) else [("", value)]:
            here = (*path, str(index)) if isinstance(value, list) else path
            for name, inner in section.items():
                yield from _of_inner(here, place, str(name), inner, table.inner[field])
    if kind == "quantities":
        yield from _of_quantities(path, value)
    elif kind == "thresholds":
        yield from _of_thresholds(path, value)
    elif field == "featureGates":
        yield from gates.problems(path, value)


def _of_table(path: Path, field: str, value: Any) -> Iterator[Problem]:
    """Words, ranges, names and forms that the table has for a field."""
    table = kubelet_fields.load()
    if field in table.choices:
        yield from _of_choices(path, value, table.choices[field])
    if field in table.ranges:
        yield from _of_range(path, value, *table.ranges[field])
    for name in value if field in table.names else ():
        if name not in table.names[field]:
            yield _unknown((*path, name), "is none that the kubelet knows", table.names[field])
    if field in table.forms:
        yield from _of_forms(path, value, *table.forms[field])


def _of_inner(
    path: Path, place: tuple[str, ...], name: str, value: Any, fields: Mapping[str, Kind]
) -> Iterator[Problem]:
    kind = fields.get(name, fields.get("*"))
    if kind is None:
        yield _unknown((*path, name), f"is no field of the kubelet's {'.'.join(place)}", tuple(fields))
    else:
        yield from _of_value((*path, name), (*place, name), kind, value)


def _of_choices(path: Path, value: Any, words: Sequence[str]) -> Iterator[Problem]:
    for index, word in enumerate(value if isinstance(value, list) else [value]):
        if word not in words:
            yield Problem(
                path=(*path, str(index)) if isinstance(value, list) else path,
                what="is not one of the kubelet's words",
                got=shown(word),
                allowed=", ".join(filter(None, words)),
                near=nearest(word, words),
                fix="write one of these",
            )


def _of_forms(path: Path, value: Any, expression: str, example: str) -> Iterator[Problem]:
    """A text, or each in a list or below a name."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else []
    for where, text in [((*path, str(key)), item) for key, item in inner] if inner else [(path, value)]:
        if isinstance(text, str) and not re.fullmatch(expression, text):
            yield Problem(
                path=where, what="has a form that the kubelet refuses", got=shown(text), fix=f"write it like {example}"
            )


def _of_range(path: Path, value: Any, least: float | None, most: float | None) -> Iterator[Problem]:
    written, value, unit = value, _amount(value), "s" if isinstance(value, str) else ""
    if (least is not None and value < least) or (most is not None and value > most):
        allowed = f"{least:.15g}{unit} or more" if most is None else f"{least:.15g}{unit} to {most:.15g}{unit}"
        bound = least if least is not None and value < least else most
        fix = f"write {bound:.15g}{unit}"
        yield Problem(path=path, what="is out of its range", got=str(written), allowed=allowed, fix=fix)


def _of_quantities(path: Path, reserved: Mapping[str, str]) -> Iterator[Problem]:
    for name, amount in reserved.items():
        if name not in _RESERVED:
            yield _unknown((*path, name), "is nothing that the kubelet reserves", _RESERVED)
        elif not _QUANTITY.fullmatch(amount):
            yield Problem(
                path=(*path, name), what="is no Kubernetes quantity", got=shown(amount), fix="write it like 500m or 1Gi"
            )


def _unknown(path: Path, what: str, names: Sequence[str]) -> Problem:
    return Problem(
        path=path,
        what=what,
        allowed=", ".join(names),
        near=nearest(path[-1], names),
        fix="write one of these, or take it out",
    )


def _of_thresholds(path: Path, thresholds: Mapping[str, str]) -> Iterator[Problem]:
    for signal, amount in thresholds.items():
        percent = _PERCENT.fullmatch(amount)
        if signal not in _SIGNALS:
            yield _unknown((*path, signal), "is no eviction signal", _SIGNALS)
        elif percent is None and not _QUANTITY.fullmatch(amount):
            yield Problem(
                path=(*path, signal),
                what="is neither a Kubernetes quantity nor a share",
                got=shown(amount),
                fix="write it like 500Mi or 10%",
            )
        elif percent is not None and float(percent[1]) >= 100:
            yield Problem(
                path=(*path, signal),
                what="is a share that can never be left free, and the kubelet takes 100% for no threshold at all",
                got=shown(amount),
                allowed="less than 100%",
                fix="write a share such as 10%, or 0% for no threshold",
            )


def _of_pairs(machine: SiteMachine, wrong: set[str]) -> Iterator[Problem]:
    """Fields that go together; what is wrong by itself is not compared."""
    config = mapping(machine.keys.get("kubelet_config"))
    for lower, lower_default, upper, upper_default, may_be_equal in _PAIRS:
        if {lower, upper} & wrong or not {lower, upper} & set(config):
            continue
        low, high = config.get(lower, lower_default), config.get(upper, upper_default)
        if _amount(low) < _amount(high) or (may_be_equal and _amount(low) == _amount(high)):
            continue
        field, other = (lower, upper) if lower in config else (upper, lower)
        yield Problem(
            path=machine.path("kubelet_config", field),
            what=f"does not go with {other}, which is {high if field == lower else low}: the kubelet wants {lower} "
            f"{'at most' if may_be_equal else 'below'} {upper}",
            got=shown(config[field]),
            fix="change one of the two",
        )
    for rule in kubelet_rules.broken(config, _amount) if not wrong else ():
        yield Problem(
            path=machine.path("kubelet_config", *rule.field),
            what=f"{rule.why}: the kubelet does not start so",
            fix=rule.fix,
        )
    missing = sorted(set(mapping(config.get(_SOFT))) - set(mapping(config.get(_GRACE))))
    if missing and not {_SOFT, _GRACE} & wrong:
        yield Problem(
            path=machine.path("kubelet_config", _SOFT, missing[0]),
            what=f"has no time in {_GRACE}, without which the kubelet does not start",
            fix=f"add {missing[0]} there, such as 1m30s",
        )


def _amount(value: Any) -> float:
    """A number, or the seconds of a duration."""
    return seconds_of(value) if isinstance(value, str) else float(value)
