"""What a preview shows about machines: a dry run on each, a report, and a refusal before anything happens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi_command import local

from components.machines import machine_commands
from components.machines.machine_commands import LIMITS, Limits, Machine
from talos.secrets import variables

# Texts shorter than this are parts of ordinary words.
_SHORTEST_SECRET = 8
_DEAD = "is marked dead and is not asked; it is removed from etcd and Kubernetes, unless it is gone there already"
_LOUD = frozenset({"reboot", "upgrade", "install", "unreachable"})


class RefusedError(pulumi.RunError):
    """Machines that do not accept what `up` would give them, all of them at once."""


class LeakError(Exception):
    """An answer that quotes a secret; it is shown nowhere."""


@dataclass(frozen=True, kw_only=True)
class Announced:
    """A machine, the config that it would get, and the resource that its lines are shown at."""

    machine: Machine
    config: pulumi.Output[str]
    resource: pulumi.Resource


def announce(
    nodes: Sequence[Announced],
    bundle: pulumi.Output[str],
    kubeconfig: pulumi.Output[str],
    *,
    imported: str | None,
    factory: str | None,
    talos_version: str,
    at_once: int,
    limits: Limits = LIMITS,
) -> pulumi.Output[list[str]]:
    """In a preview, report for each node what `up` will do with its machine; the output is the report.

    `imported` is the file that the first `up` takes the secrets from. `factory` judges the machines' schematics; None
    where their images were built before. Nothing runs in `up` itself. A machine that does not answer is a warning.
    RefusedError for all that are refused.
    """
    if not pulumi.runtime.is_dry_run():
        return pulumi.Output.from_input([])
    return pulumi.Output.from_input(
        _announced(nodes, bundle, kubeconfig, imported, factory, talos_version, at_once, limits)
    )


async def _announced(
    nodes: Sequence[Announced],
    bundle: pulumi.Output[str],
    kubeconfig: pulumi.Output[str],
    imported: str | None,
    factory: str | None,
    talos_version: str,
    at_once: int,
    limits: Limits,
) -> list[str]:
    # Machines of a cluster that is taken over would refuse a client without its secrets.
    known = await _known(bundle) or _content(imported)
    cluster = await _known(kubeconfig)
    kinds = {node.machine.schematic_id: node.machine for node in nodes}
    answers = await _plans(nodes, known, cluster, at_once, limits)
    refusals = list[str]()
    if factory is not None:
        for kind in kinds.values():
            refusals += await _schematic_problems(kind, factory, talos_version)
    lines = []
    for node, answer in zip(nodes, answers, strict=True):
        line = f"{node.machine.name}: {answer['says']}"
        lines.append(line)
        if answer["change"] == "refused":
            refusals.append(line)
        elif answer["change"] in _LOUD:
            pulumi.log.warn(line, node.resource)
        else:
            pulumi.log.info(line, node.resource)
    if refusals:
        raise RefusedError("`up` would fail on these machines:\n" + "\n".join(f"  {line}" for line in refusals))
    return lines


async def _known(value: pulumi.Output[str]) -> str:
    """The value, or nothing while a first preview does not know it."""
    return str(await value.future() or "") if await value.is_known() else ""


def _content(file: str | None) -> str:
    """A file's text; nothing where it cannot be read, which the command that imports it reports better."""
    try:
        return Path(file).read_text(encoding="utf-8") if file else ""
    except (OSError, UnicodeDecodeError):
        return ""


async def _plans(
    nodes: Sequence[Announced], bundle: str, kubeconfig: str, at_once: int, limits: Limits
) -> list[dict[str, str]]:
    """Each machine's own answer, asked by one process.

    Without the cluster's secrets, which a first preview has not, a machine is asked for its state alone.
    """
    asked = {
        node.machine.name: machine_commands.plan_entry(
            node.machine, await _known(node.config) if bundle else "", limits
        )
        for node in nodes
        if not node.machine.dead
    }
    entries = json.dumps(list(asked.values()))
    stdin: pulumi.Output[str] = pulumi.Output.secret(entries) if bundle else pulumi.Output.from_input(entries)
    environment: dict[str, Any] = {}
    if bundle:
        credentials = {variables.SECRETS: bundle} | ({variables.KUBECONFIG: kubeconfig} if kubeconfig else {})
        environment = {name: pulumi.Output.secret(text) for name, text in credentials.items()}
    result = local.run_output(
        command=machine_commands.plan_all(at_once),
        logging=local.Logging.NONE,
        stdin=stdin,
        environment=environment or None,
    )
    text = str(await result.stdout.future())
    require_no_secret(text, bundle)
    answers = dict(zip(asked, json.loads(text), strict=True))
    return [answers.get(node.machine.name, {"change": "none", "says": _DEAD}) for node in nodes]


def require_no_secret(text: str, bundle: str) -> None:
    """LeakError if the text quotes any value of a secrets bundle."""
    if any(secret in text for secret in _texts(yaml.safe_load(bundle)) if len(secret) >= _SHORTEST_SECRET):
        raise LeakError("a machine's answer quotes a secret of the cluster; it is not shown. This is a bug: report it")


def _texts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [text for key, inner in value.items() if key != "id" for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


async def _schematic_problems(machine: Machine, factory: str, talos_version: str) -> list[str]:
    """Why the factory cannot build the machine's image; nothing where it can, or where it does not answer."""
    command = machine_commands.check_schematic(machine, factory, talos_version)
    result = local.run_output(command=command, stdin=machine.schematic, logging=local.Logging.NONE)
    text = str(await result.stdout.future())
    if not text.startswith("error:"):
        return []
    problem = text.removeprefix("error: ").strip()
    if "no answer" in problem:
        pulumi.log.warn(f"the image of {machine.name} and its like was not checked: {problem}")
        return []
    return [f"{machine.name} and its like: {problem}"]
