from __future__ import annotations

from typing import Any

import pytest

from lab.runner.adoption import initial_states
from lab.runner.podspec import named_port, references, should_restart
from lab.runner.records import RunRecord
from lab.runner.state import ContainerState, Kind, Running, Terminated, Waiting
from lab.runner.status import Placement, pod_status

NOW = "2026-11-21T12:00:00Z"
EARLIER = "2026-11-21T11:00:00Z"
PLACED = Placement(host_ip="198.18.0.10", pod_ip="198.18.1.2", start_time=EARLIER)


def pod(policy: str = "Always", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "team", "uid": "u", "generation": 3},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "python"}]},
        "status": status,
    }


def ended(code: int) -> Terminated:
    return Terminated(exit_code=code, reason="Error", started_at=EARLIER, finished_at=NOW)


def container(current: Any, kind: Kind = "main", name: str = "main", **fields: Any) -> ContainerState:
    return ContainerState(name=name, image="python", kind=kind, current=current, **fields)


RUNNING = Running(started_at=EARLIER)
WAITING = Waiting(reason="ContainerCreating")


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Always", [container(WAITING)], "Pending"),
        ("Always", [container(RUNNING)], "Running"),
        ("Always", [container(ended(0))], "Running"),
        ("Always", [container(WAITING, last=ended(1))], "Running"),
        ("Never", [container(ended(0))], "Succeeded"),
        ("Never", [container(ended(1))], "Failed"),
        ("Never", [container(ended(1)), container(RUNNING, name="two")], "Running"),
        ("OnFailure", [container(ended(0))], "Succeeded"),
        ("OnFailure", [container(WAITING, last=ended(1))], "Running"),
        ("Never", [container(ended(1), kind="init", name="i"), container(WAITING)], "Failed"),
        ("Always", [container(ended(1), kind="init", name="i"), container(WAITING)], "Pending"),
        ("Never", [container(RUNNING, kind="sidecar", name="s"), container(ended(0))], "Succeeded"),
    ],
)
def test_phase(policy: str, states: list[ContainerState], phase: str) -> None:
    assert pod_status(pod(policy), states, PLACED, now=NOW)["phase"] == phase


def test_deleted_pod_ends_in_a_final_phase_whatever_its_policy() -> None:
    assert pod_status(pod("Always"), [container(ended(0))], PLACED, now=NOW, over=True)["phase"] == "Succeeded"
    assert pod_status(pod("Always"), [container(ended(1))], PLACED, now=NOW, over=True)["phase"] == "Failed"


def conditions(subject: dict[str, Any], states: list[ContainerState]) -> dict[str, dict[str, Any]]:
    return {item["type"]: item for item in pod_status(subject, states, PLACED, now=NOW)["conditions"]}


def test_ready_needs_every_container_and_every_gate() -> None:
    ready = container(RUNNING, ready=True, started=True)
    assert conditions(pod(), [ready])["Ready"]["status"] == "True"
    by_type = conditions(pod(), [ready, container(RUNNING, name="slow")])
    assert by_type["Ready"]["message"] == "containers with unready status: [slow]"
    gated = pod()
    gated["spec"]["readinessGates"] = [{"conditionType": "site/loaded"}]
    assert conditions(gated, [ready])["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert conditions(gated, [ready])["ContainersReady"]["status"] == "True"
    gated["status"]["conditions"] = [{"type": "site/loaded", "status": "True", "lastTransitionTime": NOW}]
    assert conditions(gated, [ready])["Ready"]["status"] == "True"


def test_initialized_waits_for_init_containers_and_started_sidecars() -> None:
    states = [
        container(ended(0), kind="init", name="i"),
        container(RUNNING, kind="sidecar", name="s"),
        container(WAITING),
    ]
    assert conditions(pod(), states)["Initialized"]["message"] == "containers with incomplete status: [s]"
    states[1].started = True
    assert conditions(pod(), states)["Initialized"]["status"] == "True"


def test_transition_time_moves_only_with_the_value() -> None:
    before = [{"type": "Ready", "status": "False", "lastTransitionTime": EARLIER}]
    unready = conditions(pod(conditions=before), [container(RUNNING)])["Ready"]
    assert unready["lastTransitionTime"] == EARLIER
    ready = conditions(pod(conditions=before), [container(RUNNING, ready=True)])["Ready"]
    assert ready["lastTransitionTime"] == NOW
    # An earlier reason has to be cleared in a merge, so it is named.
    assert ready["reason"] is None


def test_container_status_is_complete() -> None:
    state = container(
        RUNNING, last=ended(7), ready=True, started=True, restarts=2, container_id="lab://x", image_id="i"
    )
    status = pod_status(pod(), [state], PLACED, now=NOW)["containerStatuses"][0]
    assert status["state"] == {"running": {"startedAt": EARLIER}}
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert (status["restartCount"], status["ready"], status["started"]) == (2, True, True)


@pytest.mark.parametrize(
    ("policy", "kind", "code", "expected"),
    [
        ("Always", "main", 0, True),
        ("OnFailure", "main", 0, False),
        ("OnFailure", "main", 1, True),
        ("Never", "main", 1, False),
        ("Never", "sidecar", 0, True),
        ("Always", "init", 0, False),
        ("Always", "init", 1, True),
        ("Never", "init", 1, False),
    ],
)
def test_should_restart(policy: str, kind: Kind, code: int, expected: bool) -> None:
    assert should_restart(policy, kind, code) is expected


def status_of(**fields: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "restartCount": 4, **fields}]}


def test_running_container_is_lost_when_the_runner_restarts() -> None:
    before = status_of(state={"running": {"startedAt": EARLIER}})
    state = initial_states(pod(**before), {})[0]
    assert state.restarts == 5
    assert state.last is not None
    assert (state.last.exit_code, state.last.reason) == (137, "ContainerStatusUnknown")
    assert isinstance(state.current, Waiting)


def test_lost_container_of_a_job_stays_failed() -> None:
    before = status_of(state={"running": {"startedAt": EARLIER}})
    state = initial_states(pod("Never", **before), {})[0]
    assert isinstance(state.current, Terminated)
    assert state.restarts == 4


def test_back_off_goes_on_after_a_restart() -> None:
    last = {"terminated": {"exitCode": 3, "startedAt": EARLIER, "finishedAt": EARLIER}}
    state = initial_states(pod(**status_of(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=last)), {})[0]
    assert state.restarts == 5
    assert state.last is not None
    assert state.last.exit_code == 3


def survivor(number: int = 4) -> dict[str, RunRecord]:
    record = RunRecord(number=number, pid=1, birth=1, started_at=EARLIER, log="", uid=0, gid=0, groups=())
    return {"main": record}


def test_surviving_container_goes_on_as_ready_as_it_was() -> None:
    before = status_of(state={"running": {"startedAt": EARLIER}}, ready=True, started=True)
    state = initial_states(pod(**before), survivor())[0]
    assert state.current == Running(started_at=EARLIER)
    assert (state.restarts, state.ready, state.started) == (4, True, True)


def test_a_run_that_the_status_does_not_know_yet_is_not_ready() -> None:
    before = status_of(state={"running": {"startedAt": EARLIER}}, ready=True, started=True)
    state = initial_states(pod(**before), survivor(5))[0]
    assert (state.restarts, state.ready, state.started) == (5, False, False)


def test_end_that_the_status_knows_stays_as_it_is() -> None:
    ended = {"terminated": {"exitCode": 3, "startedAt": EARLIER, "finishedAt": EARLIER}}
    state = initial_states(pod("Never", **status_of(state=ended)), survivor())[0]
    assert isinstance(state.current, Terminated)
    assert state.current.finished_at == EARLIER


def test_fresh_pod_begins_at_zero() -> None:
    assert initial_states(pod(), {})[0].restarts == 0


def test_named_port_and_references() -> None:
    assert named_port({"ports": [{"name": "http", "containerPort": 8000}]}, "http") == 8000
    assert named_port({}, "81") == 81
    with pytest.raises(KeyError):
        named_port({}, "http")
    subject = pod()
    subject["spec"]["volumes"] = [
        {"name": "a", "secret": {"secretName": "s"}},
        {"name": "b", "projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "t"}}]}},
    ]
    assert references(subject) == {("Secret", "s"), ("ConfigMap", "c"), ("Secret", "t")}
