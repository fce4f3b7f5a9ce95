"""How a pod begins on this runner: fresh, or taken up again after the runner (its node) restarted; no side effects."""

from __future__ import annotations

from collections.abc import Mapping

from lab.runner import podspec
from lab.runner.records import LOST_EXIT_CODE, RunRecord
from lab.runner.state import ContainerState, Kind, Object, Running, Terminated, Waiting, timestamp


def initial_states(pod: Object, survivors: Mapping[str, RunRecord]) -> list[ContainerState]:
    """Every container's first state.

    A run among the survivors goes on. Any other in the Pod's status counts as one that was lost.
    """
    status = pod.get("status") or {}
    known = {
        item["name"]: item
        for item in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    }
    return [
        _state(pod, kind, container, known.get(container["name"]), survivors.get(container["name"]))
        for kind, container in podspec.containers(pod)
    ]


def _state(
    pod: Object, kind: Kind, container: Object, before: Object | None, survivor: RunRecord | None
) -> ContainerState:
    reason = "PodInitializing" if kind != "init" and pod["spec"].get("initContainers") else "ContainerCreating"
    fresh = ContainerState(
        name=container["name"],
        image=container["image"],
        kind=kind,
        current=Waiting(reason=reason),
        image_id=str((before or {}).get("imageID", "")),
    )
    if survivor is not None:
        return _surviving(pod, fresh, before or {}, survivor)
    ended = _ended(before)
    if before is None or ended is None:
        return fresh
    fresh.restarts = int(before.get("restartCount", 0))
    fresh.container_id = str(before.get("containerID", ""))
    if kind == "main" and not podspec.should_restart(podspec.restart_policy(pod), kind, ended.exit_code):
        fresh.current = ended
        return fresh
    fresh.last = ended
    fresh.restarts += 1
    return fresh


def _surviving(pod: Object, state: ContainerState, before: Object, survivor: RunRecord) -> ContainerState:
    state.restarts = survivor.number
    state.container_id = str(before.get("containerID", ""))
    known_end = _ended({"state": {"terminated": (before.get("state") or {}).get("terminated")}})
    if known_end and not podspec.should_restart(podspec.restart_policy(pod), state.kind, known_end.exit_code):
        state.current = known_end
        state.ready = state.kind == "init" and known_end.exit_code == 0
        return state
    state.current = Running(started_at=survivor.started_at)
    # A ready container stays ready until its probe fails: the runner must not redirect any requests.
    if int(before.get("restartCount", 0)) == survivor.number and "running" in (before.get("state") or {}):
        state.ready, state.started = bool(before.get("ready")), bool(before.get("started"))
    state.last = _ended({"lastState": before.get("lastState")})
    return state


def _ended(before: Object | None) -> Terminated | None:
    """The earlier run as an ended one; None when there was none."""
    before = before or {}
    state = before.get("state") or {}
    if running := state.get("running"):
        return Terminated(
            exit_code=LOST_EXIT_CODE,
            reason="ContainerStatusUnknown",
            message="The container ended when the lab pod runner (its node) restarted",
            started_at=running.get("startedAt") or timestamp(),
            finished_at=timestamp(),
            container_id=before.get("containerID", ""),
        )
    # A container in its back-off is waiting; its last run is the one to go on from.
    ended = state.get("terminated") or (before.get("lastState") or {}).get("terminated")
    if not ended:
        return None
    return Terminated(
        exit_code=int(ended["exitCode"]),
        reason=ended.get("reason", "Error"),
        message=ended.get("message", ""),
        started_at=ended.get("startedAt") or timestamp(),
        finished_at=ended.get("finishedAt") or timestamp(),
        container_id=ended.get("containerID", ""),
    )
