"""The Pod's status from what the runner knows; no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.runner import podspec
from lab.runner.state import ContainerState, Object, Running, Terminated, Waiting

_OWN_CONDITIONS = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the pod is; addresses are empty until it has them."""

    host_ip: str
    pod_ip: str = ""
    start_time: str = ""


def pod_status(
    pod: Object, states: Sequence[ContainerState], placement: Placement, *, now: str, over: bool = False
) -> Object:
    """The runner's part of the status, to be merged into the Pod's.

    `over` means that no container will run again whatever the restart policy asks, as after a deletion.
    """
    phase = _phase(pod, states, over=over)
    status: Object = {
        "phase": phase,
        "hostIP": placement.host_ip,
        "hostIPs": [{"ip": placement.host_ip}],
        "conditions": _conditions(pod, states, phase, placement, now),
        "containerStatuses": [_container_status(s) for s in states if s.kind == "main"],
        "observedGeneration": pod["metadata"].get("generation", 1),
    }
    if any(state.kind != "main" for state in states):
        status["initContainerStatuses"] = [_container_status(s) for s in states if s.kind != "main"]
    if placement.start_time:
        status["startTime"] = placement.start_time
    if placement.pod_ip:
        status["podIP"] = placement.pod_ip
        status["podIPs"] = [{"ip": placement.pod_ip}]
    return status


def _not_initialized(states: Sequence[ContainerState]) -> list[str]:
    waiting = []
    for state in states:
        done = isinstance(state.current, Terminated) and state.current.exit_code == 0
        if (state.kind == "init" and not done) or (state.kind == "sidecar" and not (state.started or done)):
            waiting.append(state.name)
    return waiting


def _phase(pod: Object, states: Sequence[ContainerState], *, over: bool) -> str:
    policy = "Never" if over else podspec.restart_policy(pod)
    mains = [state for state in states if state.kind == "main"]
    begun = [state for state in mains if not isinstance(state.current, Waiting) or state.last]
    if len(begun) < len(mains):
        inits_failed = any(
            s.kind == "init" and isinstance(s.current, Terminated) and s.current.exit_code != 0 for s in states
        )
        return "Failed" if policy == "Never" and (inits_failed or over) else "Pending"
    if any(state.running for state in mains):
        return "Running"
    codes = [end.exit_code for state in mains if (end := _last_end(state))]
    if policy == "Always":
        return "Running"
    if all(code == 0 for code in codes):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def _last_end(state: ContainerState) -> Terminated | None:
    return state.current if isinstance(state.current, Terminated) else state.last


def _conditions(
    pod: Object, states: Sequence[ContainerState], phase: str, placement: Placement, now: str
) -> list[Object]:
    before = {item["type"]: item for item in (pod.get("status") or {}).get("conditions") or []}
    uninitialized = _not_initialized(states)
    unready = [s.name for s in states if s.kind != "init" and not s.ready]
    finished = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")

    wanted: dict[str, tuple[bool, str, str]] = {
        "PodScheduled": (True, "", ""),
        "PodReadyToStartContainers": (bool(placement.pod_ip) and not finished, "", ""),
    }
    if uninitialized and not finished:
        names = " ".join(uninitialized)
        wanted["Initialized"] = (False, "ContainersNotInitialized", f"containers with incomplete status: [{names}]")
    else:
        wanted["Initialized"] = (True, finished if finished == "PodCompleted" else "", "")
    if finished:
        ready = (False, finished, "")
    elif unready:
        ready = (False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = (True, "", "")
    wanted["ContainersReady"] = ready
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]
    if ready[0] and closed:
        missing = "; ".join(f'the status of pod readiness gate "{gate}" is not "True"' for gate in closed)
        ready = (False, "ReadinessGatesNotReady", missing)
    wanted["Ready"] = ready
    return [_condition(kind, *wanted[kind], before.get(kind), pod, now) for kind in _OWN_CONDITIONS]


def _condition(
    kind: str,
    value: bool,  # noqa: FBT001 - with the others of a row
    reason: str,
    message: str,
    before: Mapping[str, Any] | None,
    pod: Object,
    now: str,
) -> Object:
    status = "True" if value else "False"
    same = before is not None and before.get("status") == status
    # null clears a field in a strategic merge, so an old reason does not stay with a new value.
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": before["lastTransitionTime"] if before and same else now,
        "reason": reason or None,
        "message": message or None,
        "observedGeneration": pod["metadata"].get("generation", 1),
    }


def _container_status(state: ContainerState) -> Object:
    return {
        "name": state.name,
        "image": state.image,
        "imageID": state.image_id,
        "containerID": state.container_id,
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": _state(state.current),
        "lastState": _state(state.last) if state.last else {},
    }


def _state(state: Waiting | Running | Terminated) -> Object:
    if isinstance(state, Waiting):
        return {"waiting": _filled(reason=state.reason, message=state.message)}
    if isinstance(state, Running):
        return {"running": {"startedAt": state.started_at}}
    ended = _filled(
        reason=state.reason,
        message=state.message,
        startedAt=state.started_at,
        finishedAt=state.finished_at,
        containerID=state.container_id,
    )
    return {"terminated": {"exitCode": state.exit_code, **ended}}


def _filled(**fields: str) -> Object:
    return {name: value for name, value in fields.items() if value}
