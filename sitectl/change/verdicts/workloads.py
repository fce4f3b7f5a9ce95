"""Verdicts on what runs: model servers, pickers, other workloads, and the volumes under them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from components.addons.gateways import COUNTERS
from components.specs.inference_pool import PICKER
from components.specs.model_server import ENGINE_IMAGE, SCALED
from floor import gpu_nodes
from floor.counts import counted
from policy.model import Resource
from policy.pods import asks, containers, pod_spec, pods_of_a_replica, startup_budget_s
from sitectl.change.changes import Change, FieldChange
from sitectl.change.verdicts import ground
from sitectl.change.verdicts.model import Severity, Verdict, verdict
from stacks.facts.mig import part_of_a_gpu

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "": 1}
# Engine arguments whose cut takes something from callers, with what it takes.
_CONTEXT_FLAG = "--max-model-len"
_MOST_CAUSES = 5
# What every pod of a Deployment, and of the groups of a model over several nodes, follows from.
_PODS = ("spec.template", "spec.leaderWorkerTemplate")
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
# Nothing moves replicas that run (docs/adr/0045-whole-nodes-are-avoided.md).
_WAITS = "; each takes {}, and waits while smaller replicas run on all of them"
# Of a class that stops no other replica (components/models/model_server.py); all of them did before there were classes.
_WAITING_CLASS = re.compile(r"$|.+-waiting-\d+")
_OF_ENDS = r"spec\.(minReplicaCount|maxReplicaCount|fallback\.replicas)"


def deployment(change: Change) -> list[Verdict]:
    """A Deployment, or groups of pods where a replica spans several nodes: what its pods and GPUs do."""
    if _is_picker(change):
        return _picker(change)
    before, after = _shape(change, change.before), _shape(change, change.after)
    gpus = after.gpus - before.gpus
    if change.op == "create":
        what = (
            f"{counted(after.replicas, 'replica')} on {after.hardware}"
            if after.gpus
            else f"{counted(after.replicas, 'replica')}"
            if after.replicas
            else "no replica until it is asked"
        )
        return [
            verdict(
                change,
                Severity.LIVE,
                f"starts {what}",
                f"new{after.waits}",
                gpus=gpus,
                cold_start_s=after.budget_s if gpus else 0,
            )
        ]
    if change.op == "delete":
        return [
            verdict(
                change,
                Severity.REPLACED,
                f"stops all {before.counted} for good",
                "nothing serves in their place",
                gpus=gpus,
                restarts=before.most,
            )
        ]
    if change.op == "replace":
        return [
            verdict(
                change,
                Severity.REPLACED,
                f"stops all {before.counted} and creates them again",
                f"{', '.join(change.replaced_by)} cannot be changed in place, so nothing serves until they have loaded",
                gpus=gpus,
                restarts=before.most,
                cold_start_s=after.budget_s,
            )
        ]
    return [
        *_template(change, before, after),
        *_replicas(change, before, after, gpus),
        *_context(change),
        *_another_model(change),
    ]


class _Shape:
    """What a Deployment's inputs set for its pods."""

    def __init__(self, resource: Resource) -> None:
        spec: Mapping[str, Any] = resource.body.get("spec") or {}
        of_pod = containers(resource)
        self.replicas = int(spec.get("replicas", 1)) if resource.body else 0
        mark = str(((resource.body.get("metadata") or {}).get("annotations") or {}).get(SCALED, ""))
        ends = re.fullmatch(r"(\d+) to (\d+) replicas", mark)
        self.follows_load = ends is not None
        self.may_have_none = ends is not None and ends[1] == "0"
        # Of what follows the load, the number that runs is not in any input.
        self.most = max(self.replicas, int(ends[2])) if ends else self.replicas
        self.counted = mark if ends else counted(self.replicas, "replica")
        asked = [item for container in of_pod for item in asks(container, "limits").items()]
        # Each pod of a group has as many.
        pods = self.replicas * int((spec.get("leaderWorkerTemplate") or {}).get("size", 1))
        gpus = pods * sum(int(count) for name, count in asked if name == gpu_nodes.RESOURCE)
        slices = {profile: int(count) for name, count in asked if (profile := gpu_nodes.profile_of(name))}
        parts = self.replicas * sum(part_of_a_gpu(profile) * count for profile, count in slices.items())
        # Whole numbers where nothing is cut.
        self.gpus: float = gpus + round(parts, 3) if slices else gpus
        self.hardware = counted(gpus, "GPU")
        if slices:
            profiles = ", ".join(sorted(slices))
            self.hardware = f"{counted(self.replicas * sum(slices.values()), 'slice')} {profiles} of GPUs"
        self.budget_s = max((startup_budget_s(container) for container in of_pod), default=0)
        nodes = pods_of_a_replica(resource)
        taken = "a whole node" if nodes == 1 else counted(nodes, "whole node")
        self.waits = _WAITS.format(taken) if _waits_for_whole_nodes(pod_spec(resource)) else ""
        self.at_once = max(self.replicas, 1) if (spec.get("strategy") or {}).get("type") == "Recreate" else 1
        self.grace_s = int(pod_spec(resource).get("terminationGracePeriodSeconds", 30))


def _waits_for_whole_nodes(pod: Mapping[str, Any]) -> bool:
    if not _WAITING_CLASS.fullmatch(str(pod.get("priorityClassName", ""))):
        return False
    terms = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(_PREFERRED) or ()
    asked = [known for term in terms for known in (term.get("preference") or {}).get("matchExpressions") or ()]
    return any(known.get("key") == gpu_nodes.WHOLE_LABEL and known.get("operator") == "Exists" for known in asked)


def _shape(change: Change, body: Mapping[str, Any]) -> _Shape:
    return _Shape(Resource(type=change.type, name=change.name, body=body))


def _template(change: Change, before: _Shape, after: _Shape) -> list[Verdict]:
    causes = [leaf for leaf in change.fields() if leaf.path.startswith(_PODS)]
    if not causes:
        return []
    rounds = -(-after.most // after.at_once)
    starts_s = rounds * after.budget_s
    return [
        verdict(
            change,
            Severity.RESTARTS,
            f"restarts {before.counted}, one after the other",
            f"their pod changes: {_causes(causes)}",
            restarts=before.most,
            cold_start_s=starts_s + rounds * after.grace_s,
            rounds=rounds if after.at_once == 1 else 0,
        )
    ]


def _replicas(change: Change, before: _Shape, after: _Shape, gpus: float) -> list[Verdict]:
    if before.follows_load or after.follows_load:
        return _following(change, before, after)
    if before.replicas == after.replicas:
        if not gpus:
            return []
        reason = "each replica is given another number of GPUs"
        return [verdict(change, Severity.LIVE, f"{before.gpus} -> {after.gpus} GPUs", reason, gpus=gpus)]
    what = f"{before.replicas} -> {after.replicas} replicas"
    if after.replicas > before.replicas:
        # One by itself reads as fast as one in a rollout.
        rounds = 1 if after.replicas - before.replicas == 1 else 0
        return [
            verdict(
                change,
                Severity.LIVE,
                what,
                f"more replicas{after.waits}",
                gpus=gpus,
                cold_start_s=after.budget_s,
                rounds=rounds,
            ),
        ]
    gone = before.replicas - after.replicas
    reason = f"{counted(gone, 'replica')} less: streams there get their drain time, and their caches are lost"
    if after.replicas == 1:
        reason += "; the one that is left has no other when it restarts or its node fails"
    return [verdict(change, Severity.RESTARTS, what, reason, gpus=gpus, restarts=gone)]


def _following(change: Change, before: _Shape, after: _Shape) -> list[Verdict]:
    """A number that follows the load from now on, or no longer; another range is shown by its ScaledObject."""
    if before.follows_load and after.follows_load:
        return []
    if after.follows_load:
        what = f"{before.counted} -> {after.counted} by the load"
        return [verdict(change, Severity.LIVE, what, "no replica ends now; the autoscaler sets the number from now on")]
    what, gone = f"{before.counted} by the load -> {after.replicas}", before.most - after.replicas
    # Its order goes last, and no other `up` sees what it has set since.
    again = "the autoscaler may set another number until its order goes: run `up --refresh` after it"
    if before.may_have_none:
        reason = "KEDA may stop them before its order goes, and nothing starts them then: run `up --refresh` after it"
        return [verdict(change, Severity.RESTARTS, what, reason, restarts=before.most, cold_start_s=after.budget_s)]
    if gone > 0:
        reason = f"up to {counted(gone, 'replica')} less: streams there get their drain time, and their caches are lost"
        return [verdict(change, Severity.RESTARTS, what, f"{reason}; {again}", restarts=gone)]
    reason = f"those that are missing start; {again}"
    return [verdict(change, Severity.LIVE, what, reason, cold_start_s=after.budget_s)]


def scaled_object(change: Change) -> list[Verdict]:
    """A ScaledObject: between which numbers of replicas, and at which load one more is asked for."""
    old, new = _ends(change.before), _ends(change.after)
    if change.op == "create":
        what = f"{new[0]} to {new[1]} replicas by the load"
        reason = "; ".join(["new", "the Deployment's own number no longer counts", *_refusing(new)])
        return [verdict(change, Severity.LIVE, what, reason)]
    if change.op != "update":
        reason = "nothing sets it any more; `up --refresh` then sets that of the site's file"
        return [verdict(change, Severity.LIVE, "the number of replicas stays where it is", reason)]
    verdicts = []
    if old != new:
        what = f"{old[0]} to {old[1]} -> {new[0]} to {new[1]} replicas by the load"
        reasons = [f"up to {counted(new[0] - old[0], 'replica')} more at once"] if new[0] > old[0] else []
        if gone := max(0, old[1] - new[1]):
            reasons += [f"up to {counted(gone, 'replica')} less, whose streams get their drain time"]
        reasons += _refusing(new) if old[0] else []
        severity = Severity.RESTARTS if gone else Severity.LIVE
        reason = "; ".join(reasons) or "the autoscaler uses the new range from the next look on"
        verdicts.append(verdict(change, severity, what, reason, restarts=gone))
    if others := [leaf for leaf in change.fields() if not re.match(_OF_ENDS, leaf.path)]:
        verdicts.append(verdict(change, Severity.LIVE, "replicas start at other loads or times", _causes(others)))
    return verdicts


def _refusing(ends: tuple[int, int]) -> list[str]:
    """What clients notice of a model that may have no replica."""
    return [] if ends[0] else ["while it has no replica, its requests are refused until one has started"]


def _ends(body: Mapping[str, Any]) -> tuple[int, int]:
    spec: Mapping[str, Any] = body.get("spec") or {}
    return int(spec.get("minReplicaCount", 0)), int(spec.get("maxReplicaCount", 100))


def _context(change: Change) -> list[Verdict]:
    old, new = _last_flag(change, change.before), _last_flag(change, change.after)
    if old is None or new is None or new >= old:
        return []
    what = f"longest request {old:,} -> {new:,} tokens"
    return [verdict(change, Severity.REPLACED, what, f"requests above {new:,} tokens are refused from then on")]


def _another_model(change: Change) -> list[Verdict]:
    old, new = _answering(change, change.before), _answering(change, change.after)
    if not old or not new or old == new:
        return []
    what = f"another model answers under this name: {new} instead of {old}"
    reason = "clients notice by the answers alone, and while replicas restart both of them answer"
    return [verdict(change, Severity.REPLACED, what, reason)]


def _answering(change: Change, body: Mapping[str, Any]) -> str:
    """The model that answers: the one that vLLM loads, or that the simulator names in its --model."""
    pod = containers(Resource(type=change.type, name=change.name, body=body))
    words = [str(word) for container in pod for word in container.get("args") or ()]
    named = next((word.partition("=")[2] for word in words if word.startswith("--model=")), "")
    return named.removeprefix("simulator of ") or _repository(pod)


def _repository(pod: Sequence[Mapping[str, Any]]) -> str:
    """What vLLM loads: what is checked before it, or its first argument; empty for the simulator.

    Of earlier programs the first argument is a repository, of this one a folder.
    """
    words = [str(word) for container in pod for word in container.get("args") or ()]
    if checked := next((word.partition("=")[2] for word in words if word.startswith("--repository=")), ""):
        return checked
    first_words = (str((container.get("args") or [""])[0]) for container in pod)
    return next((word for word in first_words if word and not word.startswith("-")), "")


def _last_flag(change: Change, body: Mapping[str, Any]) -> int | None:
    """Value of the context flag; the last one counts, as in the engine."""
    values = [
        int(str(word).partition("=")[2])
        for container in containers(Resource(type=change.type, name=change.name, body=body))
        for word in container.get("args") or ()
        if re.fullmatch(rf"{_CONTEXT_FLAG}=\d+", str(word))
    ]
    return values[-1] if values else None


def _is_picker(change: Change) -> bool:
    spec: Mapping[str, Any] = change.body.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return labels.get("app.kubernetes.io/name") == PICKER


def _picker(change: Change) -> list[Verdict]:
    before, after = _shape(change, change.before), _shape(change, change.after)
    if change.op == "create":
        return [verdict(change, Severity.LIVE, f"starts {counted(after.replicas, 'picker')}", "new")]
    if change.op == "delete":
        what = f"stops {counted(before.replicas, 'picker')} for good"
        return [verdict(change, Severity.REPLACED, what, "no request of the model is routed", restarts=before.replicas)]
    causes = [leaf for leaf in change.fields() if leaf.path.startswith("spec.template")]
    if causes or change.op == "replace":
        reason, pickers = _causes(causes) or ", ".join(change.replaced_by), counted(before.replicas, "picker")
        what, effect = f"replaces {pickers}, each by a ready one", "what it knew of cached prefixes is lost"
        if change.op == "replace":
            what, effect = f"restarts {pickers} at once", f"the model refuses requests until one is back, and {effect}"
        return [verdict(change, Severity.RESTARTS, what, f"{reason}; {effect}", restarts=before.replicas)]
    if before.replicas == after.replicas:
        return []
    what = f"{before.replicas} -> {after.replicas} pickers"
    return [verdict(change, Severity.LIVE, what, "each knows the prefixes of the requests that it placed itself")]


def claim(change: Change) -> list[Verdict]:
    """A volume claim: with it go its data."""
    if change.op == "create":
        return [verdict(change, Severity.LIVE, f"makes a volume of {claim_size(change.after)}", "new")]
    if change.op in ("delete", "replace") and not change.retained:
        cause = f" because {', '.join(change.replaced_by)} changes" if change.op == "replace" else ""
        earlier, later = (str((body.get("metadata") or {}).get("name", "")) for body in (change.before, change.after))
        # The verdict's row has the later name.
        volume = f"the volume {earlier}," if cause and earlier != later else "the volume"
        if earlier.startswith(COUNTERS):
            what = f"deletes {volume} of {claim_size(change.before)} with the counts of tenants' limits{cause}"
            reason = "a minute, an hour and a day under way begin again for each tenant with a limit"
            return [verdict(change, Severity.REPLACED, what, reason)]
        return [
            verdict(
                change,
                Severity.IRREVERSIBLE,
                f"deletes {volume} of {claim_size(change.before)} and what is on it{cause}",
                "weights have to be fetched again, and whatever else was written to it is lost",
            )
        ]
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "leaves the volume to itself", "it is retained")]
    old, new = bytes_of(claim_size(change.before)), bytes_of(claim_size(change.after))
    if new < old:
        reason = "a volume cannot shrink: the API server refuses this, and the whole change with it"
        return [
            verdict(change, Severity.REPLACED, f"{claim_size(change.before)} -> {claim_size(change.after)}", reason)
        ]
    if new > old:
        reason = "grows in place where the storage class allows it, and not back"
        return [verdict(change, Severity.LIVE, f"{claim_size(change.before)} -> {claim_size(change.after)}", reason)]
    return [verdict(change, Severity.LIVE, "changed in place", "size and class stay")]


def claim_size(body: Mapping[str, Any]) -> str:
    """What a claim, or a template of one, asks for, such as `50Gi`; `?` where it asks for nothing."""
    return str((((body.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage", "?"))


def bytes_of(size: str) -> float:
    """Bytes of a claim's size; 0 for what is none."""
    match = re.fullmatch(r"([\d.]+)(Ki|Mi|Gi|Ti|)", size)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


def _causes(leaves: Sequence[FieldChange]) -> str:
    """Changed leaves of a pod, short enough to read: lists of variables and volumes are named once."""
    words = [_word(leaf) for leaf in leaves]
    shown = list(dict.fromkeys(words))
    rest = len(shown) - _MOST_CAUSES
    return ", ".join(shown[:_MOST_CAUSES]) + (f" and {rest} more" if rest > 0 else "")


def _word(leaf: FieldChange) -> str:
    for part in ("env", "volumes", "volumeMounts"):
        if f".{part}[" in leaf.path:
            return part
    last = leaf.path.removesuffix('"]').rpartition('["' if leaf.path.endswith('"]') else ".")[2]
    if isinstance(leaf.before, list) and isinstance(leaf.after, list):
        gone = [f"without {item}" for item in leaf.before if item not in leaf.after]
        come = [f"with {item}" for item in leaf.after if item not in leaf.before]
        return _short(f"{last} {', '.join(come + gone)}", 200)
    return f"{last} {_short(leaf.before)} -> {_short(leaf.after)}"


def _short(value: Any, most: int = 80) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def daemon_set(change: Change) -> list[Verdict]:
    """What pulls the engine's image onto GPU nodes ahead of replicas; another one has no rule of its own."""
    if (change.body.get("metadata") or {}).get("name") != ENGINE_IMAGE:
        return ground.anything(change)
    match change.op:
        case "create":
            what = "pulls the engine's image onto each GPU node"
        case "delete":
            what = "pulls the engine's image onto no node ahead of a replica"
        case _:
            what = "pulls the engine's image onto each GPU node again"
    return [verdict(change, Severity.LIVE, what, "no replica waits for it, and none restarts by it")]
