"""When objects are ready, what they are waiting for, and the waitFor annotation."""

from __future__ import annotations

from typing import Any

import pytest

from lab.plugins.kubernetes.awaiting import expressions, readiness, services
from lab.plugins.kubernetes.awaiting.waiting import what_holds
from lab.plugins.kubernetes.errors import ProviderError


def deployment(generation: int = 1, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "generation": generation},
        "spec": {"replicas": 2},
        "status": status,
    }


AVAILABLE = {"type": "Available", "status": "True"}


def test_a_deployment_is_ready_when_its_rollout_is_complete() -> None:
    done = deployment(observedGeneration=1, replicas=2, updatedReplicas=2, availableReplicas=2, conditions=[AVAILABLE])
    assert readiness.deployment(done).ready


@pytest.mark.parametrize(
    ("generation", "status", "message"),
    [
        (2, {"observedGeneration": 1}, "waiting for the Deployment controller"),
        (1, {}, "waiting for the Deployment controller"),
        (1, {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}, "1/2 Pods updated, 0/2 available"),
        (
            1,
            {
                "observedGeneration": 1,
                "replicas": 3,
                "updatedReplicas": 2,
                "availableReplicas": 3,
                "conditions": [{"type": "Available", "status": "True"}],
            },
            "2/2 Pods updated, 3/2 available, 1 old ones to go",
        ),
    ],
)
def test_a_deployment_says_what_it_waits_for(generation: int, status: dict[str, Any], message: str) -> None:
    result = readiness.deployment(deployment(generation, **status))
    assert not result.ready
    assert message in result.message


def test_a_deployment_repeats_the_reason_of_its_conditions() -> None:
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    result = readiness.deployment(deployment(observedGeneration=1, conditions=[stuck]))
    assert "[ProgressDeadlineExceeded] timed out" in result.reasons
    assert not result.failed


def stateful_set(**status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": {"observedGeneration": 1, **status}}


def test_a_stateful_set_needs_its_replicas_and_its_revision() -> None:
    revisions = {"currentRevision": "a", "updateRevision": "a"}
    full = {"replicas": 2, "readyReplicas": 2, "currentReplicas": 2}
    assert readiness.stateful_set(stateful_set(**revisions, **full)).ready
    result = readiness.stateful_set(stateful_set(**revisions, replicas=2, readyReplicas=1, currentReplicas=2))
    assert result.reasons == ["1 of 2 Pods are ready"]
    moving = readiness.stateful_set(stateful_set(currentRevision="a", updateRevision="b", **full))
    assert 'revision "b" in place of "a"' in moving.reasons[0]


def test_a_daemon_set_is_ready_on_all_nodes() -> None:
    status = {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}
    obj = {"metadata": {"generation": 1}, "status": {**status, "numberAvailable": 3}}
    assert readiness.daemon_set(obj).ready
    assert not readiness.daemon_set({"metadata": {"generation": 1}, "status": status}).ready


def test_a_job_succeeds_fails_or_runs() -> None:
    def job(*conditions: dict[str, Any], **status: Any) -> readiness.Readiness:
        return readiness.job({"metadata": {"name": "j"}, "status": {"conditions": list(conditions), **status}})

    assert job({"type": "Complete", "status": "True"}).ready
    failed = job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no more"})
    assert failed.failed and failed.reasons == ["[BackoffLimitExceeded] no more"]
    assert job(startTime="t", active=1).message == "the Job has not ended; its Pods: 1 active, 0 succeeded, 0 failed"


def pod(*containers: dict[str, Any], **conditions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p"},
        "status": {
            "conditions": [{"type": key, "status": value} for key, value in conditions.items()],
            "containerStatuses": list(containers),
        },
    }


def test_a_pod_names_the_container_that_does_not_start() -> None:
    waiting = {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    result = readiness.pod(pod(waiting, PodScheduled="True", Initialized="True", Ready="False"))
    assert result.reasons == ['[Pod p]: container "c": [ImagePullBackOff] no such image']
    crashed = {
        "name": "c",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "now", "message": "boom"}},
    }
    problems = readiness.pod_problems(pod(crashed, Ready="False"))
    assert problems[1] == '[Pod p]: container "c": the run before ended at now, Error, code 3: boom'
    assert readiness.pod(pod(PodScheduled="True", Initialized="True", Ready="True")).ready


def test_a_crd_is_ready_when_established() -> None:
    assert readiness.crd({"status": {"conditions": [{"type": "Established", "status": "True"}]}}).ready
    taken = {"type": "NamesAccepted", "status": "False", "reason": "KindConflict", "message": "taken"}
    assert readiness.crd({"status": {"conditions": [taken]}}).reasons == ["[KindConflict] taken"]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"selector": {"a": "b"}, "clusterIP": "10.0.0.1"}, True),
        ({"selector": {"a": "b"}, "clusterIP": "None"}, False),
        ({"type": "ExternalName", "selector": {"a": "b"}}, False),
        ({"clusterIP": "10.0.0.1"}, False),
    ],
)
def test_which_services_wait_for_endpoints(spec: dict[str, Any], wanted: bool) -> None:
    assert services.wants_endpoints({"spec": spec}) is wanted


def test_endpoints_that_end_are_not_pending() -> None:
    ready, unready = {"conditions": {"ready": True}}, {"conditions": {"ready": False}}
    ending = {"conditions": {"ready": False, "terminating": True}}
    assert services.count_endpoints([{"endpoints": [ready, unready, ending, {}]}, {"endpoints": None}]) == (2, 1)


OBJECT: dict[str, Any] = {
    "metadata": {"generation": 2, "annotations": {"a.b/c": "d"}},
    "spec": {"ports": [{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]},
    "status": {
        "observedGeneration": 2,
        "phase": "Running",
        "ready": True,
        "any-where": "x",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fine"},
            {"type": "Synced", "status": "False", "reason": "No", "message": "later"},
        ],
    },
}


@pytest.mark.parametrize(
    ("annotation", "ready"),
    [
        ("jsonpath={.status.phase}=Running", True),
        ("jsonpath={.status.phase}", True),
        ("jsonpath={.status.phase}=Failed", False),
        ("jsonpath={.status.missing}", False),
        ("jsonpath={.status.ready}=true", True),
        ("jsonpath={.spec.ports[1].port}=81", True),
        ("jsonpath={.spec.ports[*].name}=http", True),
        ('jsonpath={.spec.ports[?(@.name=="grpc")].port}=81', True),
        ("jsonpath={.spec.ports[?(@.port>=81)].name}=grpc", True),
        ("jsonpath={.spec.ports[?(@.port<=80)].name}", True),
        ('jsonpath={.spec.ports[?@.name=="x" || @.port==81].name}=grpc', True),
        ('jsonpath={.spec.ports[?(@.name=="a=b")].port}', False),
        ("jsonpath={.spec.ports[-1].port}=81", True),
        ("jsonpath={.spec.ports[7].port}", False),
        ("jsonpath={.spec.ports.port}", False),
        ('jsonpath={.status.conditions[?(@.type=="Ready")].status}=True', True),
        ("jsonpath={.metadata.annotations['a.b/c']}=d", True),
        ("jsonpath={.metadata.annotations.a\\.b/c}=d", False),
        ("jsonpath={..phase}=Running", True),
        ("jsonpath={$.status['phase']}=Running", True),
        ("jsonpath={.spec}", True),
        ("jsonpath={.status.any-where}=x", True),
        ("condition=Ready", True),
        ("condition=ready=true", True),
        ("condition=Synced", False),
        ("condition=Synced=False", True),
        ("condition=Missing", False),
    ],
)
def test_wait_for_expressions(annotation: str, ready: bool) -> None:
    try:
        checks = expressions.parse(annotation)
    except ProviderError:
        assert not ready
        return
    assert all(check(OBJECT).ready for check in checks) is ready


def test_several_expressions_must_all_hold() -> None:
    checks = expressions.parse('["condition=Ready", "jsonpath={.status.phase}=Failed"]')
    assert [check(OBJECT).ready for check in checks] == [True, False]


def test_a_stale_status_does_not_count() -> None:
    stale = {**OBJECT, "metadata": {"generation": 3}}
    for annotation in ("condition=Ready", "jsonpath={.status.phase}=Running"):
        assert not expressions.parse(annotation)[0](stale).ready


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("Ready", 'neither "jsonpath=" nor "condition="'),
        ("[]", "empty list"),
        ("jsonpath=.status.phase", "needs braces"),
        ("jsonpath='{.status.phase}'", "no quotes around it"),
        ("jsonpath={.a}=b=c", "more than one"),
        ("jsonpath={.a}=", "lacks its value"),
        ("jsonpath={.a[}", "cannot read JSONPath"),
        ("jsonpath={.a b}", "cannot read JSONPath"),
        ("jsonpath={.a.`len`}=1", '"`" is read in quotes alone'),
        ("jsonpath={.a.b/c}=1", '"/" is read in quotes alone'),
        ("jsonpath={.a where b}", '"where" is read in quotes alone'),
        ("jsonpath={.a - 1}=1", "it calculates"),
    ],
)
def test_broken_expressions_say_what_is_wrong(annotation: str, message: str) -> None:
    with pytest.raises(ProviderError, match=message.replace("(", "\\(")):
        expressions.parse(annotation)


def test_what_holds_a_deletion_names_the_finalizers() -> None:
    held = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    assert what_holds(held) == "held by its finalizers example.com/a, example.com/b"
    remaining = {"type": "NamespaceContentRemaining", "status": "True", "message": "Some pods are left"}
    assert "Some pods are left" in what_holds(
        {"spec": {"finalizers": ["kubernetes"]}, "status": {"conditions": [remaining]}}
    )
