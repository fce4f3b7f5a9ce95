"""Verdicts on machines: what the commands of `python -m talos` that a site's nodes are made of do to them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict

_PROGRAM = "-m talos "
_JOINS = "the node is Ready before the next machine is looked at"
_ERASED = "its disks are erased; what only they held is lost"


def is_machine_call(change: Change) -> bool:
    """Whether the command is one of `python -m talos`."""
    return any(_PROGRAM in str(change.body.get(side, "")) for side in ("create", "update"))


def machine_call(change: Change) -> list[Verdict]:
    """What a command does to its machine, or to the cluster's identity. It is one that `is_machine_call` names."""
    verb, options = _words(change.body)
    judge = _BY_VERB.get(verb)
    if judge is None:
        return [verdict(change, Severity.LIVE, f"calls the machine: {verb}", "reads only")]
    return judge(change, options)


def _install(change: Change, options: Mapping[str, str]) -> list[Verdict]:
    node = options.get("--name", change.name)
    match change.op:
        case "create":
            return [verdict(change, Severity.LIVE, f"installs Talos on {node}", "a machine in maintenance mode")]
        case "delete" | "replace":
            again = ", and installed again" if change.op == "replace" else ""
            return [verdict(change, Severity.IRREVERSIBLE, f"{node} is reset{again}", _ERASED)]
    return [verdict(change, Severity.LIVE, "worded differently", "an installed machine is not installed again")]


def _roll(change: Change, options: Mapping[str, str]) -> list[Verdict]:
    node = options.get("--name", change.name)
    # The machine itself was asked in the preview; its answer is better than any guess from outside.
    answer = next((note.partition(": ")[2] for note in change.notes if note.startswith(f"{node}: ")), "")
    match change.op:
        case "create":
            return [verdict(change, Severity.LIVE, f"{node} joins the cluster", answer or _JOINS)]
        case "delete":
            what = f"{node} is drained and leaves the cluster"
            return [verdict(change, Severity.REPLACED, what, "its pods move to other nodes, or wait for room")]
        case "replace":
            what = f"{node} is taken out of the cluster and its successor put in"
            return [verdict(change, Severity.REPLACED, what, "its pods move to other nodes, or wait for room")]
    before, after = _version(_words(change.before)[1]), _version(options)
    bumped = before != after
    if not bumped and answer.startswith(("nothing changes", "the config changes at once")):
        return [verdict(change, Severity.LIVE, f"{node} takes another config", answer)]
    what = f"{node} goes from Talos {before} to {after}" if bumped else f"{node} takes another config"
    reason = answer or "the node is drained; what cannot change in place reboots the machine"
    return [verdict(change, Severity.RESTARTS, what, reason)]


def _bootstrap(change: Change, _options: Mapping[str, str]) -> list[Verdict]:
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "forgets that the cluster was founded", "its machines are not asked")]
    return [verdict(change, Severity.LIVE, "founds the cluster", "once in its life; one that runs stays as it is")]


def _secrets(change: Change, _options: Mapping[str, str]) -> list[Verdict]:
    if change.op == "create":
        return [verdict(change, Severity.LIVE, "makes the cluster's secrets", "new")]
    if change.op == "update":
        return [verdict(change, Severity.LIVE, "worded differently", "the secrets stay")]
    reason = "no one with only the new ones can reach the machines"
    return [verdict(change, Severity.IRREVERSIBLE, "the cluster's secrets go", reason)]


def _credential(change: Change, _options: Mapping[str, str]) -> list[Verdict]:
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "forgets an administrator's access", "it stays valid until it expires")]
    return [verdict(change, Severity.LIVE, "gives administrators a new access", "the old one goes on until it expires")]


def _factory(change: Change, _options: Mapping[str, str]) -> list[Verdict]:
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "forgets that the image factory was asked", "it keeps what it has")]
    return [verdict(change, Severity.LIVE, "asks the image factory for an image", "a factory only ever gains images")]


def _leftovers(change: Change, _options: Mapping[str, str]) -> list[Verdict]:
    before, after = (set(str(body.get("stdin", "")).splitlines()) for body in (change.before, change.after))
    if change.op == "delete":
        reason = "the objects stay, and no `up` changes them any more"
        return [verdict(change, Severity.LIVE, "leaves Cilium to the machines", reason)]
    gone = sorted(line.partition(" ")[2] for line in before - after)
    if not gone:
        return [verdict(change, Severity.LIVE, "lists Cilium's objects", "none is left over")]
    reason = "the new manifest lacks them; a Namespace stays, with what is in it"
    return [verdict(change, Severity.REPLACED, f"deletes {', '.join(gone)}", reason)]


_BY_VERB: Mapping[str, Callable[[Change, Mapping[str, str]], list[Verdict]]] = {
    "apply": _install,
    "roll": _roll,
    "bootstrap": _bootstrap,
    "secrets": _secrets,
    "talosconfig": _credential,
    "kubeconfig": _credential,
    "factory": _factory,
    "leftovers": _leftovers,
}


def _words(body: Mapping[str, object]) -> tuple[str, dict[str, str]]:
    """Verb and options of a command's line; of an option that is given twice the last."""
    line = next((text for side in ("update", "create") if _PROGRAM in (text := str(body.get(side, "")))), "")
    words = shlex.split(line.partition(_PROGRAM)[2])
    options = {word: value for word, value in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}
    return (words[0] if words else ""), options


def _version(options: Mapping[str, str]) -> str:
    return options.get("--image", "").rpartition(":")[2]
