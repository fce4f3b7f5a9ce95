"""Checks `extra_args`: flags of the pinned engine that nothing else sets, in the only form that is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.specs.model_server import ModelServerSpec
from floor.problems import Path, Problem, nearest, shown
from floor.secret_texts import looks_secret
from stacks.facts import catalogue, compatibility, engine_flags
from stacks.facts.engine_flags import DecidedFlags, EngineFlags, Flag

# Values up to here are shown in a fix.
_SHORT = 40
_ENGINE = str(ModelServerSpec.model_fields["engine"].default)


@dataclass(frozen=True, kw_only=True)
class _Model:
    """What messages name of a model."""

    key: str
    engine: str
    catalogue_file: str


def problems(models: Any) -> Iterator[Problem]:
    """What is wrong with the `extra_args` of a site's models, which may have any form."""
    for name, spec in models.items() if isinstance(models, Mapping) else ():
        server = spec.get("server") if isinstance(spec, Mapping) else None
        items = server.get("extra_args") if isinstance(server, Mapping) else None
        engine = str(server.get("engine", _ENGINE)) if isinstance(server, Mapping) else ""
        if not isinstance(items, list) or engine not in engine_flags.load():
            continue
        entry = spec.get("catalogue")
        model = _Model(
            key=f"models.{name}",
            engine="vLLM" if engine == "vllm" else "the simulator",
            catalogue_file=f"stacks/facts/catalogue/{entry}.yaml"
            if entry in catalogue.names()
            else "its catalogue file",
        )
        path = ("models", str(name), "server", "extra_args")
        yield from _of_model(path, items, engine_flags.load()[engine], model)


def _of_model(path: Path, items: Sequence[Any], flags: EngineFlags, model: _Model) -> Iterator[Problem]:
    given: set[str] = set()
    for index, item in enumerate(items):
        # Another check reports a secret, and a type other than text.
        if not isinstance(item, str) or looks_secret(item):
            continue
        here = (*path, str(index))
        if not item.startswith("-"):
            yield _no_flag(here, item, items[index - 1] if index else None)
            continue
        flag = flags.read(item)
        if not flag.name:
            yield from _unknown(here, flag, flags, model)
            continue
        decided = flags.decision[flag.name]
        if decided is not None:
            yield _decided_elsewhere(here, item, flag, decided, model)
        elif wrong := _wrong_form(here, item, flag, flags) or _wrong_value(here, item, flag, flags, model):
            yield wrong
        elif flag.name in given:
            yield Problem(path=here, what=f"{flag.name} is given twice", got=_value(item), fix="remove one")
        given.add(flag.name)


def _no_flag(path: Path, item: str, before: Any) -> Problem:
    fix = "write a flag like --seed=7, or remove it"
    if isinstance(before, str) and before.startswith("--") and "=" not in before and not looks_secret(before):
        fix = f"write it behind its flag, in one item: {before}={item if len(item) < _SHORT else 'VALUE'}"
    return Problem(path=path, what="not a flag of the engine", got=shown(item), fix=fix)


def _unknown(path: Path, flag: Flag, flags: EngineFlags, model: _Model) -> Iterator[Problem]:
    # What a release has removed, and what to use in its place, is a row of the compatibility table.
    if flag.written in compatibility.named_flags():
        return
    near = nearest(flag.written, flags.decision)
    decided = flags.decision[near] if near else None
    fix = f"write {near}, or remove it" if near else "remove it; stacks/facts/engine_flags.yaml lists all flags"
    yield Problem(
        path=path,
        what=f"the pinned release of {model.engine} has no flag {shown(flag.written)}",
        near=near,
        fix=_decision(decided, model)[1] if decided else fix,
    )


def _decision(decided: DecidedFlags, model: _Model) -> tuple[str, str]:
    """What decides a flag, and what to do in place of giving it."""
    match decided.by:
        case "catalogue":
            return "the model's catalogue entry", f"remove it; where the model needs it, change {model.catalogue_file}"
        case "proof":
            return "the proof", "remove it"
        case "platform":
            return "the platform", "remove it"
        case key:
            return f"{model.key}.{key}", f"remove it, and set {model.key}.{key} if need be"


def _decided_elsewhere(path: Path, item: str, flag: Flag, decided: DecidedFlags, model: _Model) -> Problem:
    decider, fix = _decision(decided, model)
    spelled = "" if flag.spelled_out else f" ({flag.name})"
    why = f": {decided.why}" if decided.why else ""
    what = f"{flag.written}{spelled} is decided by {decider}{why}"
    return Problem(path=path, what=what, got=_value(item), fix=fix)


def _wrong_form(path: Path, item: str, flag: Flag, flags: EngineFlags) -> Problem | None:
    """A free flag that the engine would understand, or end at, in another form than the one that is checked."""
    value = item[len(flag.written) + 1 :]
    if flag.name in flags.free_switches:
        right = f"{'--no-' if flag.written.startswith('--no-') else '--'}{flag.name[2:]}"
        what = f"{flag.name} takes no value" if value else "a flag needs its full name here"
        correct = item == right
    elif flag.keys:
        right = f"{flag.name}={_nested(flag.keys.strip('.').split('.'))}"
        what = "keys of a value are written as JSON here"
        correct = False
    else:
        right = f"{flag.name}={value if 0 < len(value) < _SHORT else 'VALUE'}"
        what = "a flag needs its full name and = before its value here" if value else f"{flag.name} needs a value"
        correct = bool(value) and item == f"{flag.name}={value}"
    return None if correct else Problem(path=path, what=what, got=shown(item), fix=f"write {right}")


def _wrong_value(path: Path, item: str, flag: Flag, flags: EngineFlags, model: _Model) -> Problem | None:
    """A value with which the engine would end as soon as it starts."""
    taken, value = flags.free_values.get(flag.name), item.partition("=")[2]
    if taken is None or taken.fits(value):
        return None
    near = nearest(value, taken.words)
    return Problem(
        path=path,
        what=f"{flag.name}: {taken.why or f'{model.engine} would not start with this value'}",
        got=shown(value),
        allowed=taken.allowed,
        near=near,
        fix=f"write {flag.name}={near or taken.example}" + ("" if near else ", or another value that is allowed"),
    )


def _nested(keys: Sequence[str]) -> str:
    return f'{{"{keys[0]}": {_nested(keys[1:])}}}' if keys else "VALUE"


def _value(item: str) -> str:
    _, _, value = item.partition("=")
    return shown(value) if value else ""
