"""The objects that the lab makes beside and inside the charts'."""

import copy
from typing import Any

import pytest

from lab.controllers import charts, crd_gate, installation, releases
from lab.controllers.charts import Release
from lab.paths import Lab


def deployment(name: str, namespace: str) -> dict[str, Any]:
    container = {"name": "main", "image": "docker.io/example/controller:v1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"serviceAccountName": f"{name}-account", "containers": [container]}}},
    }


def gate_steps(original: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = crd_gate.gated(original)["spec"]["template"]["spec"]["initContainers"]
    return steps


def test_the_gates_last_step_asks_for_every_kind() -> None:
    *_, last = gate_steps(deployment("a", "n"))
    command, kinds, *_ = last["args"]
    assert command == "get"
    assert tuple(kinds.split(",")) == crd_gate.REQUIRED_CRDS


def test_every_group_has_a_step_without_an_end_that_names_one_crd() -> None:
    *steps, _ = gate_steps(deployment("a", "n"))
    waited = []
    for step in steps:
        assert "--for=create" in step["args"]
        assert "--timeout=-1s" in step["args"]
        # kubectl gives up at once when it is to wait for the creation of two.
        (one,) = [argument for argument in step["args"] if argument.startswith("crd/")]
        waited.append(one.partition(".")[2])
    assert sorted(waited) == sorted({name.partition(".")[2] for name in crd_gate.REQUIRED_CRDS})


def test_step_names_are_unique() -> None:
    names = [step["name"] for step in gate_steps(deployment("a", "n"))]
    assert len(set(names)) == len(names)


def test_the_gate_changes_nothing_else() -> None:
    original = deployment("a", "n")
    before = copy.deepcopy(original)
    gated = crd_gate.gated(original)
    assert original == before
    del gated["spec"]["template"]["spec"]["initContainers"]
    assert gated == before


def test_the_gate_comes_before_the_charts_own_init_containers() -> None:
    original = deployment("a", "n")
    original["spec"]["template"]["spec"]["initContainers"] = [{"name": "own"}]
    assert [step["name"] for step in gate_steps(original)][-2:] == ["wait-for-crds", "own"]


def test_required_crds_are_full_names_without_repetition() -> None:
    assert len(set(crd_gate.REQUIRED_CRDS)) == len(crd_gate.REQUIRED_CRDS)
    assert all(name.count(".") >= 3 for name in crd_gate.REQUIRED_CRDS)


def test_the_gates_permissions_are_to_read_and_bound_to_the_given_accounts_alone() -> None:
    role, binding = crd_gate.permissions([("n", "a")])
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    listed = {group for rule in role["rules"] for group in rule["apiGroups"]}
    assert {name.partition(".")[2] for name in crd_gate.REQUIRED_CRDS} <= listed
    assert binding["subjects"] == [{"kind": "ServiceAccount", "namespace": "n", "name": "a"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_quota_fails_closed_and_its_store_is_where_the_gateway_looks() -> None:
    rate_limit = releases.ENVOY_GATEWAY.values["config"]["envoyGateway"]["rateLimit"]
    assert rate_limit["failClosed"] is True
    (service,) = [manifest for manifest in releases.quota_store() if manifest["kind"] == "Service"]
    host, port = rate_limit["backend"]["redis"]["url"].split(":")
    assert host.split(".")[:2] == [service["metadata"]["name"], service["metadata"]["namespace"]]
    assert int(port) == service["spec"]["ports"][0]["port"]


def test_namespaces_enforce_the_restricted_profile() -> None:
    labels = releases.namespace("n")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    def render(lab: Lab, release: Release) -> list[dict[str, Any]]:
        job = {"kind": "Job", "metadata": {"name": "certgen", "namespace": release.namespace}}
        return [job, deployment(release.name, release.namespace)]

    monkeypatch.setattr(charts, "render", render)


def test_the_plan_gates_both_controllers_and_lets_their_accounts_read_crds(rendered: None) -> None:
    plan = installation.plan(Lab.from_environment())
    gated = [
        m["metadata"]["name"] for m in plan if "initContainers" in m.get("spec", {}).get("template", {}).get("spec", {})
    ]
    assert gated == ["eg", "aieg"]
    (binding,) = [manifest for manifest in plan if manifest["kind"] == "ClusterRoleBinding"]
    assert {(subject["namespace"], subject["name"]) for subject in binding["subjects"]} == {
        (releases.ENVOY_GATEWAY_NAMESPACE, "eg-account"),
        (releases.AI_GATEWAY_NAMESPACE, "aieg-account"),
    }


def test_the_plan_makes_namespaces_first_and_certificates_before_controllers(rendered: None) -> None:
    kinds = [manifest["kind"] for manifest in installation.plan(Lab.from_environment())]
    assert kinds[: len(releases.NAMESPACES)] == ["Namespace"] * len(releases.NAMESPACES)
    assert max(i for i, kind in enumerate(kinds) if kind == "Job") < kinds.index("Deployment")
