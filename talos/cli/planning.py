"""`plan`: what a config and an image would do to a machine, as text, before anything is changed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import click
import yaml

from talos.api.errors import MachineApiError
from talos.cli import inputs
from talos.cli.apply import classify
from talos.cli.failures import CommandError
from talos.cli.kubernetes import Kubernetes, KubernetesError
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import Contact, Reach, reach
from talos.cli.skew import require_next_api_server, require_no_newer_kubelet
from talos.cli.upgrade import Target, difference, require_no_minor_left_out, running
from talos.cli.waiting import PendingError, Watch, seconds
from talos.secrets import variables

Step = Literal["none", "live", "reboot", "upgrade", "install", "refused", "unreachable", "unknown"]

DESCRIPTION = f"""\
Show what `roll`, or for a new machine `apply`, would do, without doing it. The config comes from stdin; without one,
only the machine's state is checked. A machine that does not answer is no failure. `change` in the result:

  none         nothing
  live         the config takes effect at once
  reboot       the node is drained and the machine reboots
  upgrade      the same, into another Talos version or schematic; `config` shows what the config alone would take
  install      the machine is in maintenance mode: Talos is installed on its disk
  refused      the machine does not accept it, or belongs to another cluster; `reason` and `fix` state why
  unreachable  it does not answer, so this is unknown
  unknown      it is part of the cluster, and no config was given

  python -m talos plan --address 10.0.0.11 --name hgx-1 --image REF --insecure < hgx-1.yaml
  (${variables.SECRETS} or a talosconfig as for every command)"""

_DIFF_LINE = re.compile(r"^(?P<mark>[-+ ])(?P<indent>\s*(?:-\s+)*)(?P<key>[A-Za-z0-9_./-]+):")
_PATHS_SHOWN = 8


@dataclass(frozen=True)
class Plan:
    """What would happen; `paths` are places in the config, none of its values."""

    change: Step
    reason: str = ""
    fix: str = ""
    paths: tuple[str, ...] = ()
    config: str = ""
    system: str = ""
    warnings: tuple[str, ...] = field(default=())


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="20s", maintenance=True)
@click.option("--image", required=True, metavar="REF", help="installer image, with the version as its tag")
@click.option("--config", metavar="FILE", help="the machine config (stdin)")
def command(options: MachineOptions, *, image: str, config: str | None) -> int:
    """Plan; prints one JSON object."""
    given = os.environ.get(variables.CONFIG) or inputs.text_of(config or "-", "machine config")
    inputs.print_result(question(options, image, given)())
    return 0


def question(options: MachineOptions, image: str, config: str) -> Callable[[], dict[str, Any]]:
    """What asks the machine and returns the result; InputError here, before any machine is asked."""
    target, machine = Target.parse(image), reach(options)
    timeout_s, cluster = seconds(options.timeout), Kubernetes.from_environment()
    return lambda: _answer(machine, config.encode(), target, machine.watch(timeout_s), cluster)


def _answer(machine: Reach, config: bytes, target: Target, watch: Watch, cluster: Kubernetes | None) -> dict[str, Any]:
    try:
        plan = watch.until("for its answer", lambda: look(machine, config, target, watch, cluster))
    except CommandError as error:
        away = error.exit.name == "AWAY"
        plan = Plan("unreachable" if away else "refused", reason=error.problem.what, fix=error.problem.fix)
    except MachineApiError as error:
        plan = Plan("refused", reason=f"{error.call}: {error.cause}", fix=error.fix)
    return {"node": machine.name, **vars(plan), "says": words(plan, target)}


def look(machine: Reach, config: bytes, target: Target, watch: Watch, cluster: Kubernetes | None = None) -> Plan:
    """One look at the machine; PendingError while it is on its way into another state."""
    with machine.contact(watch) as contact:
        if not config.strip():
            return Plan("install" if contact.state == "maintenance" else "unknown")
        verdict = classify(contact, config)
        if verdict.change == "refused":
            return Plan("refused", reason=verdict.reason, fix=verdict.fix)
        if cluster is not None and verdict.change in {"live", "reboot"}:
            # A worker waits for the control planes, and a cluster that does not answer now may do so then.
            with contextlib.suppress(PendingError, KubernetesError):
                require_next_api_server(machine.name, config, cluster)
                require_no_newer_kubelet(machine.name, config, cluster)
        paths = changed_paths(verdict.details, config) if verdict.change in {"live", "reboot"} else ()
        system = _system_change(machine.name, contact, target)
        return Plan(
            "upgrade" if system else verdict.change,
            reason=system,
            paths=paths,
            config=verdict.change,
            system=system,
            warnings=verdict.warnings,
        )


def _system_change(name: str, contact: Contact, target: Target) -> str:
    """What the machine runs and what it should run; empty where that is the same, and on a machine without Talos.

    NotAllowedError for a step that Talos does not support.
    """
    if contact.state == "maintenance":
        return ""
    now = running(contact.client)
    require_no_minor_left_out(name, now, target)
    return difference(now, target)


def changed_paths(details: str, config: bytes) -> tuple[str, ...]:
    """Places that a dry run's diff touches, in their order and each once; names of keys alone.

    A diff shows a few lines around each change. What is above them is looked up in the new config; where it has the
    place not at all, or several times, the path begins in the middle.
    """
    known = list(_paths(config))
    above: list[tuple[int, str]] = []
    touched: dict[str, None] = {}
    for line in details.partition("Config diff:")[2].splitlines():
        if line.startswith(("---", "+++", "@@")):
            above = []
            continue
        matched = _DIFF_LINE.match(line)
        if not matched:
            continue
        depth = len(matched["indent"])
        above = [(at, name) for at, name in above if at < depth]
        above.append((depth, matched["key"]))
        if matched["mark"] != " ":
            touched[_whole(tuple(name for _, name in above), known)] = None
    return tuple(path for path in touched if not any(other.startswith(f"{path}.") for other in touched))


def _whole(seen: tuple[str, ...], known: list[tuple[str, tuple[str, ...]]]) -> str:
    matching = {(document, path) for document, path in known if path[-len(seen) :] == seen}
    document, path = matching.pop() if len(matching) == 1 else ("", seen)
    return document + ".".join(path)


def _paths(config: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every place of a config: the document, empty for the main one, and keys from its top; of lists no positions."""
    for document in yaml.safe_load_all(config):
        if isinstance(document, dict):
            name = " ".join(str(document[key]) for key in ("kind", "name") if key in document)
            for path in _below(document, ()):
                yield f"{name} " if name else "", path


def _below(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, str(key))
            yield from _below(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _below(inner, path)


def words(plan: Plan, target: Target) -> str:
    """The plan as a sentence for people; no value of a config is in it."""
    shown = ", ".join(plan.paths[:_PATHS_SHOWN]) + (" and more" if len(plan.paths) > _PATHS_SHOWN else "")
    where = f": {shown}" if shown else ""
    match plan.change:
        case "none":
            return "nothing changes on the machine"
        case "live":
            return f"the config changes at once, without a reboot{where}"
        case "reboot":
            return f"the node is drained and the machine REBOOTS for its config{where}"
        case "upgrade":
            also = f"; its config changes too{where}" if plan.config != "none" else ""
            return f"{plan.system}: the node is drained and the machine REBOOTS into it{also}"
        case "install":
            return f"the machine is in maintenance mode: Talos {target.version} is INSTALLED on its disk"
        case "unknown":
            return "what it takes is not known before its config is"
        case "unreachable":
            return f"does not answer, so what the change does to it is unknown: {plan.reason}"
        case _:
            return f"REFUSED: {plan.reason}; fix: {plan.fix}"
