"""`extraArgs` of a patch: flags that the program knows, with values that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from floor.durations import DURATION
from floor.problems import Path, Problem, nearest, shown
from stacks.facts import feature_gates, program_flags
from stacks.facts.program_flags import Kind, Program
from stacks.site.reading.raw import at, mapping

# Program -> its place in a machine config, and what people call it.
_PROGRAMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "kubelet": (("machine", "kubelet"), "the kubelet"),
    "apiServer": (("cluster", "apiServer"), "the API server"),
    "controllerManager": (("cluster", "controllerManager"), "the controller manager"),
    "scheduler": (("cluster", "scheduler"), "the scheduler"),
    "proxy": (("cluster", "proxy"), "kube-proxy"),
    "etcd": (("cluster", "etcd"), "etcd"),
}
# As Go reads them: strconv.ParseBool, ParseInt with any base, and ParseFloat.
_ON = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_SWITCHES = _ON | {"0", "f", "F", "FALSE", "false", "False"}
_INTEGER = re.compile(r"[+-]?[0-9][0-9A-Fa-fxXoObB_]*")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_FORMS: Mapping[Kind, tuple[re.Pattern[str], str, str]] = {
    "switch": (re.compile("|".join(_SWITCHES)), "true or false", "true"),
    "integer": (_INTEGER, "a whole number", "1"),
    "number": (_NUMBER, "a number", "1"),
    "duration": (DURATION, "a time with its unit, such as 30s or 5m", "30s"),
}
_GATE = re.compile(r"(?:kube:)?([^=:]+)=(.*)")


def problems(
    path: Path, patch: Mapping[str, Any], reported: Collection[Path], has_key: Callable[[tuple[str, ...]], bool]
) -> Iterator[Problem]:
    """Flags with which a program would not start, or would open the cluster.

    reported: paths of other problems. has_key: whether a key of the site sets a field, so no patch may.
    """
    table = program_flags.load()
    for key, (place, called) in _PROGRAMS.items():
        for flag, value in mapping(at(patch, *place, "extraArgs")).items():
            where = (*path, *place, "extraArgs", str(flag))
            # A value that is no text, number or switch is reported by its form.
            readable = all(isinstance(item, str | int | float) for item in _as_list(value))
            if where not in reported and flag != "$patch" and readable:
                program = table.programs[key]
                if flag not in program.kinds:
                    yield _unknown(
                        where, program, called, [name for name in program.kinds if has_key((*place, "extraArgs", name))]
                    )
                else:
                    yield from _of_flag(where, program, called, value)


def _unknown(path: Path, program: Program, called: str, set_by_site: Collection[str]) -> Problem:
    written = path[-1]
    plain = written.lstrip("-").replace("_", "-")
    near = plain if plain in program.kinds else nearest(plain, program.kinds)
    if near in program.by_talos or near in set_by_site:
        near = ""
    # Kubernetes reads underscores as dashes, and etcd does not.
    same = written.replace("_", "-") in program.kinds and called != _PROGRAMS["etcd"][1]
    return Problem(
        path=path,
        what="is written with underscores, and Talos merges a flag with its own by dashes alone"
        if same
        else f"is no flag of {called}, which does not start with it",
        near=near,
        fix=f"write {near}" if near else "take it out of the patch",
    )


def _of_flag(path: Path, program: Program, called: str, value: Any) -> Iterator[Problem]:
    flag = path[-1]
    if flag in program.by_talos:
        yield Problem(
            path=path,
            what=f"is given by Talos alone, which starts {called} with no other",
            fix="take it out of the patch",
        )
    else:
        for item in _as_list(value):
            yield from _of_value(path, program, called, shown(item) if isinstance(item, bool) else str(item))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _of_value(path: Path, program: Program, called: str, text: str) -> Iterator[Problem]:
    flag, kind = path[-1], program.kinds[path[-1]]
    refused = program.refused.get(flag)
    if kind == "gates":
        yield from _of_gates(path, called, text)
    elif kind in _FORMS:
        form, allowed, example = _FORMS[kind]
        if not form.fullmatch(text):
            yield Problem(
                path=path,
                what=f"has a value that {called} cannot read",
                got=shown(text),
                allowed=allowed,
                fix=f'write it like "{example}", or take it out of the patch',
            )
    if refused and refused.value in [word.strip() for word in text.split(",")]:
        yield Problem(
            path=path,
            what=f"has the value {refused.value}: {refused.why}",
            got=shown(text),
            fix="take it out of the patch",
        )


def _of_gates(path: Path, called: str, text: str) -> Iterator[Problem]:
    """A=true,B=false; names are those of all programs of Kubernetes, or etcd's own."""
    own = called == _PROGRAMS["etcd"][1]
    table = feature_gates.load()
    names = program_flags.load().etcd_gates if own else tuple(table.names())
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _GATE.fullmatch(item)
        name, value = (match[1], match[2]) if match else (item, "")
        what, fix, near = "", "", ""
        if not match or value.strip() not in _SWITCHES:
            what, fix = f"has {item}, where {called} reads NAME=true or NAME=false", f"write {name}=true"
        elif name not in names:
            near = nearest(name, names)
            what = f"names {name}, which is no feature gate of {called}: it does not start with it"
            fix = f"write {near}" if near else f"take {name} out"
        elif not own and table.locked.get(name, value.strip() in _ON) is not (value.strip() in _ON):
            what, fix = f"turns {name}, which cannot be turned: {called} does not start with it", f"take {name} out"
        if what:
            yield Problem(path=path, what=what, got=shown(item), near=near, fix=fix)
