"""Verdicts on changes that no lab of today makes: charts, certificates, and changes without a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.gateway.front_door import listed_models
from components.gateway.traffic_policies import target_gateway
from floor.gpu_nodes import WHOLE_LABEL
from sitectl.change.changes import Change, Op
from sitectl.change.report import Price, folded, of_preview_document, report
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity
from sitectl.output.words import figures
from stacks.proof import money

pytestmark = pytest.mark.row("opening 3")

GONE, ANEW, AGAIN, LIVE = Severity.IRREVERSIBLE, Severity.REPLACED, Severity.RESTARTS, Severity.LIVE


def kube(op: Op, kind: str, before: dict[str, Any], after: dict[str, Any], **more: Any) -> Change:
    def body(spec: dict[str, Any]) -> dict[str, Any]:
        own = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "thing", "namespace": "space"}}
        return {**own, **spec} if spec else {}

    return Change(op=op, type=f"kubernetes:v1:{kind}", name="thing", before=body(before), after=body(after), **more)


def release(op: Op, before: dict[str, Any], after: dict[str, Any]) -> Change:
    return Change(op=op, type="kubernetes:helm.sh/v3:Release", name="eg", before=before, after=after)


def listener(port: int, certificate: str) -> dict[str, Any]:
    tls = {"certificateRefs": [{"name": certificate}]}
    return {"spec": {"listeners": [{"port": port, "protocol": "HTTPS", "tls": tls}]}}


def claim(size: str) -> dict[str, Any]:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


def picker(replicas: int) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "endpoint-picker"}
    return {"spec": {"replicas": replicas, "template": {"metadata": {"labels": labels}}}}


def envoys(count: int) -> dict[str, Any]:
    return {"spec": {"provider": {"kubernetes": {"envoyDeployment": {"replicas": count}}}}}


def measured_envoys(count: int) -> dict[str, Any]:
    pod = {"annotations": {"inference-platform/measured": "requests"}}
    return {"spec": {"provider": {"kubernetes": {"envoyDeployment": {"replicas": count, "pod": pod}}}}}


def traced(parts: int) -> dict[str, Any]:
    return {"spec": {"telemetry": {"tracing": {"samplingFraction": {"numerator": parts}}}}}


def patched(kind: str, value: str) -> dict[str, Any]:
    return {"spec": {"jsonPatches": [{"type": f"envoy.{kind}", "operation": {"op": "add", "value": value}}]}}


def aliased(**models: str) -> dict[str, Any]:
    aliases = {alias.replace("_", "."): model for alias, model in models.items()}
    return listed_models("g", target_gateway(), listener="g/i/i", model_lists={}, names=aliases)


CASES = {
    "router's timers": (
        kube("update", "CiliumBGPPeerConfig", {"spec": {"ebgpMultihop": 1}}, {"spec": {"ebgpMultihop": 2}}),
        (AGAIN, "changes spec.ebgpMultihop"),
    ),
    "machine without routers": (kube("delete", "CiliumBGPClusterConfig", {"spec": {}}, {}), (ANEW, "deleted")),
    "another machine with routers": (kube("create", "CiliumBGPClusterConfig", {}, {"spec": {"a": 1}}), (LIVE, "made")),
    "alias gone": (
        kube("update", "EnvoyPatchPolicy", aliased(glm_5="glm-5", glm_4="glm-4"), aliased(glm_5="glm-5")),
        (ANEW, "no model is called glm.4 any more"),
    ),
    "alias of another model": (
        kube("update", "EnvoyPatchPolicy", aliased(glm_5="glm-5-1"), aliased(glm_5="glm-5-2")),
        (ANEW, "another model answers under glm.5: glm-5-2 instead of glm-5-1"),
    ),
    "alias new": (
        kube("update", "EnvoyPatchPolicy", aliased(), aliased(glm_5="glm-5-1")),
        (LIVE, "Envoy changes its routes"),
    ),
    "routes patched": (
        kube("update", "EnvoyPatchPolicy", patched("RouteConfiguration", "a"), patched("RouteConfiguration", "b")),
        (LIVE, "Envoy changes its routes"),
    ),
    "listener patched": (
        kube("update", "EnvoyPatchPolicy", patched("Listener", "a"), patched("Listener", "b")),
        (AGAIN, "Envoy replaces its listener"),
    ),
    "controllers' chart bump": (
        release("update", {"name": "eg", "version": "v1.9.1"}, {"name": "eg", "version": "v1.9.2"}),
        (AGAIN, "eg v1.9.1 -> v1.9.2"),
    ),
    "controllers' values": (
        release("update", {"name": "eg", "version": "v1", "values": {"a": 1}}, {"name": "eg", "version": "v1"}),
        (AGAIN, "with other values"),
    ),
    "GPU operator's chart bump": (
        release("update", {"name": "gpu-operator", "version": "v1"}, {"name": "gpu-operator", "version": "v2"}),
        (AGAIN, "gpu-operator v1 -> v2"),
    ),
    "controllers uninstalled": (release("delete", {"name": "eg", "version": "v1.9.1"}, {}), (ANEW, "uninstalls eg")),
    "certificate on an https port": (
        kube("update", "Gateway", listener(443, "old"), listener(443, "new")),
        (LIVE, "certificate old -> new"),
    ),
    "port and certificate": (
        kube("update", "Gateway", listener(443, "old"), listener(8443, "new")),
        (ANEW, "HTTPS 443 -> HTTPS 8443"),
    ),
    "another name in the certificate": (
        kube("update", "Certificate", {"spec": {"dnsNames": ["a"]}}, {"spec": {"dnsNames": ["a", "b"]}}),
        (LIVE, "changes spec.dnsNames"),
    ),
    "certificate left to others": (kube("delete", "Certificate", {"spec": {"dnsNames": ["a"]}}, {}), (LIVE, "deleted")),
    "another entry for a Secret": (
        kube("update", "ExternalSecret", {"spec": {"refreshInterval": "60s"}}, {"spec": {"refreshInterval": "9s"}}),
        (LIVE, "changes spec.refreshInterval"),
    ),
    "Secret filled from now on": (kube("create", "ExternalSecret", {}, {"spec": {}}), (LIVE, "made")),
    "Secret filled no more": (kube("delete", "ExternalSecret", {"spec": {}}, {}), (ANEW, "deletes the Secret of its")),
    "what fills Secrets uninstalled": (
        release("delete", {"name": "external-secrets", "version": "2.9.0"}, {}),
        (ANEW, "uninstalls external-secrets"),
    ),
    "RDMA devices for more": (kube("update", "NicClusterPolicy", {"spec": 1}, {"spec": 2}), (AGAIN, "changes spec")),
    "RDMA devices no more": (kube("delete", "NicClusterPolicy", {"spec": {}}, {}), (ANEW, "deleted")),
    "operator of RDMA devices": (release("delete", {"name": "network-operator"}, {}), (ANEW, "uninstalls network-op")),
    "gateway removed": (kube("delete", "Gateway", listener(443, "a"), {}), (GONE, "address go")),
    "volume grows": (kube("update", "PersistentVolumeClaim", claim("1Gi"), claim("2Gi")), (LIVE, "1Gi -> 2Gi")),
    "volume shrinks": (kube("update", "PersistentVolumeClaim", claim("2Ti"), claim("900Gi")), (ANEW, "2Ti -> 900Gi")),
    "volume kept": (
        kube("delete", "PersistentVolumeClaim", claim("2Gi"), {}, retained=True),
        (LIVE, "leaves the volume to itself"),
    ),
    "standby picker more": (kube("update", "Deployment", picker(2), picker(3)), (LIVE, "2 -> 3 pickers")),
    "envoys measured": (
        kube("update", "EnvoyProxy", envoys(3), measured_envoys(3)),
        (AGAIN, "restarts Envoy (3 of them)"),
    ),
    "ledger gone": (kube("delete", "Deployment", {"metadata": {"name": "ledger"}}, {}), (ANEW, "stops its pods")),
    "another share traced": (
        kube("update", "EnvoyProxy", traced(1), traced(2)),
        (AGAIN, "Envoy replaces its listener"),
    ),
    "measurements go": (
        kube("delete", "Prometheus", {"spec": {"replicas": 1}}, {}),
        (GONE, "deletes what was measured"),
    ),
    "measured for longer": (
        kube("update", "Prometheus", {"spec": {"retention": "1d"}}, {"spec": {"retention": "2d"}}),
        (AGAIN, "may restart: spec.retention"),
    ),
    "alerts of others": (
        kube("update", "PrometheusRule", {"spec": {"groups": 1}}, {"spec": {"groups": 2}}),
        (LIVE, "changes spec.groups"),
    ),
    "fewer envoys": (kube("update", "EnvoyProxy", envoys(3), envoys(2)), (AGAIN, "3 -> 2 Envoy pods")),
    "security policy gone": (kube("delete", "SecurityPolicy", {"spec": {}}, {}), (ANEW, "keys are taken away")),
    "definition bumped": (
        kube(
            "update",
            "CustomResourceDefinition",
            {"spec": {"names": {"kind": "Thing"}, "versions": 1}},
            {"spec": {"names": {"kind": "Thing"}, "versions": 2}},
        ),
        (LIVE, "another definition of Thing"),
    ),
    "network policy gone": (
        kube("delete", "NetworkPolicy", {"spec": {"podSelector": {}}}, {}),
        (LIVE, "open to all, unless another policy selects them"),
    ),
    "network policy opened": (
        kube("update", "NetworkPolicy", {"spec": {"ingress": [{}]}}, {"spec": {"ingress": [{}, {}]}}),
        (LIVE, "who may reach its pods changes: spec.ingress"),
    ),
    "unknown kind changed": (
        kube("update", "Widget", {"spec": {"a": 1}}, {"spec": {"a": 2}}),
        (LIVE, "changes spec.a"),
    ),
    "unknown kind deleted": (kube("delete", "Widget", {"spec": {"a": 1}}, {}), (ANEW, "deleted")),
    "unknown kind replaced": (
        kube("replace", "Widget", {"spec": {"a": 1}}, {"spec": {"a": 2}}, replaced_by=("spec.a",)),
        (ANEW, "deleted and created again: spec.a"),
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_change_is_judged(name: str) -> None:
    change, (severity, what) = CASES[name]
    first = classify(change)[0]
    assert first.severity is severity
    assert what in first.what


def test_a_release_is_judged_by_what_it_brings() -> None:
    """Who uninstalls the GPU operator reads of GPUs, not of Envoy."""
    gone = {
        name: classify(release("delete", {"name": name, "version": "v1"}, {}))[0] for name in ("eg", "gpu-operator")
    }
    assert "Envoy" in gone["eg"].reason
    assert "offer no GPU" in gone["gpu-operator"].reason


def test_a_change_of_rdma_devices_is_not_waited_for_in_full() -> None:
    verdict = classify(CASES["RDMA devices for more"][0])[0]
    assert "the plugin restarts on each node, and `up` may end before that" in verdict.reason


def test_what_nobody_knows_says_so() -> None:
    verdict = classify(CASES["unknown kind changed"][0])[0]
    assert "not known here" in verdict.reason


@pytest.mark.parametrize("op", ["create", "update", "replace", "delete"])
@pytest.mark.parametrize(
    "type_",
    [
        "kubernetes:apps/v1:Deployment",
        "kubernetes:core/v1:Secret",
        "kubernetes:core/v1:Namespace",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:gateway.envoyproxy.io/v1alpha1:EnvoyProxy",
        "kubernetes:gateway.networking.k8s.io/v1:Gateway",
        "kubernetes:networking.k8s.io/v1:NetworkPolicy",
        "kubernetes:helm.sh/v3:Release",
        "command:local:Command",
        "pulumi:providers:kubernetes",
        "some:other:Thing",
    ],
)
def test_every_operation_on_anything_has_a_verdict(type_: str, op: Op) -> None:
    """Also of bodies that say nothing: a preview must not fail on what it cannot read."""
    kind = type_.rpartition(":")[2]
    body = {"kind": kind, "metadata": {"name": "a"}}
    before, after = ({} if op == "create" else body), ({} if op == "delete" else {**body, "spec": {"x": 1}})
    verdicts = classify(Change(op=op, type=type_, name="a", before=before, after=after))
    assert all(verdict.what and verdict.reason for verdict in verdicts)
    assert verdicts or (op == "update" and kind == "Deployment")


def test_cost_is_gpus_by_price_by_hours() -> None:
    """8 GPUs at 2.50 an hour are 14,600 a month."""

    def body(replicas: int) -> dict[str, Any]:
        gpus = {"nvidia.com/gpu": "4"}
        containers = [{"name": "engine", "resources": {"limits": gpus, "requests": gpus}}]
        return {"spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}}

    change = kube("update", "Deployment", body(1), body(3))
    total = report("a", [change], {}, price=Price(gpu_hour=2.5, currency="EUR"))
    assert (total.gpus, total.cost_per_month, total.currency) == (8, 8 * 2.5 * money.HOURS_A_MONTH, "EUR")
    assert total.cost_per_month == 14_600
    assert report("a", [change], {}).cost_per_month is None


def test_slices_are_counted_and_paid_as_parts_of_gpus() -> None:
    """7 slices 1g.18gb are the GPU that they are cut from."""

    def body(replicas: int) -> dict[str, Any]:
        slices = {"nvidia.com/mig-1g.18gb": "1"}
        containers = [{"name": "engine", "resources": {"limits": slices, "requests": slices}}]
        return {"spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}}}

    change, price = kube("update", "Deployment", body(2), body(9)), Price(gpu_hour=2.5, currency="EUR")
    total = report("a", [change], {}, price=price)
    assert total.gpus == pytest.approx(1, abs=0.002)
    assert total.cost_per_month == pytest.approx(2.5 * money.HOURS_A_MONTH, rel=0.002)
    new = report("a", [kube("create", "Deployment", {}, body(3))], {}, price=price)
    assert [row.what for row in new.rows] == ["starts 3 replicas on 3 slices 1g.18gb of GPUs"]
    assert dict(figures(new))["GPUs"] == "+0.43"


def test_rows_that_say_the_same_are_one_with_all_names() -> None:
    changes = [
        Change(
            op="delete",
            type="kubernetes:v1:CustomResourceDefinition",
            name=f"d{number}",
            before={
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"d{number}"},
                "spec": {"names": {"kind": f"K{number}"}},
            },
        )
        for number in range(7)
    ]
    rows = report("a", changes, {"acme": set()}).rows
    assert len(rows) == 7
    (row,) = folded(rows)
    assert row.resource == "7 x CustomResourceDefinition"
    assert all(f"d{number}" in row.reason for number in range(7))
    assert folded(rows[:3]) == rows[:3]
    mixed = [*reversed(rows)]
    (row,) = folded(mixed)
    assert "(d0, d1, d2, d3, d4, d5, d6)" in row.reason, "names in their order, whichever model they belong to"


def engine(image: str, *, model: str = "Qwen/Qwen3-32B-FP8", replicas: int = 2) -> dict[str, Any]:
    """A Deployment whose start may take 500 s."""
    container = {
        "name": "engine",
        "image": image,
        "args": [model],
        "startupProbe": {"periodSeconds": 5, "failureThreshold": 100},
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    pod = {"containers": [container], "terminationGracePeriodSeconds": 10}
    meta = {"name": "chat", "namespace": "models"}
    return {"metadata": meta, "spec": {"replicas": replicas, "template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("op", "before", "after", "cold_start_s"),
    [
        ("update", engine("v1"), engine("v2"), 2 * (500 + 10)),
        ("update", engine("v1"), engine("v1", replicas=3), 500),
        ("create", {}, engine("v1"), 500),
        ("replace", engine("v1"), engine("v1"), 500),
    ],
    ids=["restart", "more replicas", "first", "replaced"],
)
def test_each_start_counts_with_what_its_probe_allows(
    op: Op, before: dict[str, Any], after: dict[str, Any], cold_start_s: int
) -> None:
    change = kube(op, "Deployment", before, after)
    assert max((verdict.cold_start_s for verdict in classify(change)), default=0) == cold_start_s


def test_the_model_that_a_server_checks_is_the_one_that_answers() -> None:
    """The engine reads a folder, which is called the same for every model."""

    def serving(repository: str) -> dict[str, Any]:
        made = engine("v1", model="/models/weights")
        checks = [{"name": "check-weights", "args": ["--folder=/models/weights", f"--repository={repository}"]}]
        made["spec"]["template"]["spec"]["initContainers"] = checks
        return made

    reported = [verdict.what for verdict in classify(kube("update", "Deployment", serving("a/one"), serving("a/two")))]
    assert "another model answers under this name: a/two instead of a/one" in reported
    moved = classify(kube("update", "Deployment", engine("v1", model="a/one"), serving("a/one")))
    assert not [verdict for verdict in moved if "another model" in verdict.what]


def test_a_rotated_key_touches_its_own_tenant_whatever_dashes_the_names_have() -> None:
    """`access-first-team-weekly-report`: the tenant was shown as `first`, and init calls its own `first-team`."""
    tenants = {
        "first": {"models": ["chat"], "keys": {"laptop": {}}},
        "first-team": {"models": ["chat"], "keys": {"weekly-report": {"rotation": 2}}},
    }
    name = "access-first-team-weekly-report"
    state = {"type": "command:local:Command", "inputs": {"triggers": [1]}}
    step = {
        "op": "replace",
        "urn": f"urn:pulumi:a::p::command:local:Command::{name}",
        "oldState": state,
        "newState": {**state, "inputs": {"triggers": [2]}},
        "replaceReasons": ["triggers"],
    }
    config = {"inference-platform:site": json.dumps({"tenants": tenants})}
    reported = of_preview_document("a", {"steps": [step], "config": config})
    assert reported.tenants == ["first-team"]
    (row,) = reported.rows
    assert row.tenants == ("first-team",)


def test_replicas_of_whole_nodes_may_wait_for_smaller_ones() -> None:
    reasons = {}
    for whole in ("Exists", "DoesNotExist"):
        term = {"preference": {"matchExpressions": [{"key": WHOLE_LABEL, "operator": whole}]}, "weight": 100}
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
        pods = {"replicas": 1, "template": {"spec": {"affinity": affinity, "containers": []}}}
        (row,) = classify(kube("create", "Deployment", {}, {"spec": pods}))
        reasons[whole] = row.reason
    assert "each takes a whole node, and waits while smaller replicas run" in reasons["Exists"]
    assert reasons["DoesNotExist"] == "new"


@pytest.mark.parametrize(("named", "waits"), [("models-glm-waiting-100", True), ("models-glm-5", False)])
def test_a_group_waits_for_its_nodes_unless_it_stops_others(named: str, waits: bool) -> None:
    term = {"preference": {"matchExpressions": [{"key": WHOLE_LABEL, "operator": "Exists"}]}, "weight": 100}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    leader = {"spec": {"affinity": affinity, "priorityClassName": named, "containers": []}}
    groups = {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "leaderTemplate": leader}}
    (row,) = classify(kube("create", "LeaderWorkerSet", {}, {"spec": groups}))
    assert row.reason.partition(", and waits")[0::2] == (
        ("new; each takes 2 whole nodes", " while smaller replicas run on all of them") if waits else ("new", "")
    )
