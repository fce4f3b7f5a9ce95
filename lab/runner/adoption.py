"""How a pod begins on this runner: fresh, or taken up again after the runner (its node) restarted; no side effects."""

from __future__ import annotations

from lab.runner import podspec
from lab.runner.state import ContainerState, Kind, Object, Terminated, Waiting, timestamp

_LOST_EXIT_CODE = 137


def initial_states(pod: Object) -> list[ContainerState]:
    """Every container's first state. What the Pod's status says ran before counts as a run that was lost."""
    status = pod.get("status") or {}
    known = {
        item["name"]: item
        for item in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    }
    return [_state(pod, kind, container, known.get(container["name"])) for kind, container in podspec.containers(pod)]


def _state(pod: Object, kind: Kind, container: Object, before: Object | None) -> ContainerState:
    reason = "PodInitializing" if kind != "init" and pod["spec"].get("initContainers") else "ContainerCreating"
    fresh = ContainerState(
        name=container["name"],
        image=container["image"],
        kind=kind,
        current=Waiting(reason=reason),
        image_id=f"lab://{container['image']}",
    )
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


def _ended(before: Object | None) -> Terminated | None:
    """The earlier run as an ended one; None when there was none."""
    before = before or {}
    state = before.get("state") or {}
    if running := state.get("running"):
        return Terminated(
            exit_code=_LOST_EXIT_CODE,
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
