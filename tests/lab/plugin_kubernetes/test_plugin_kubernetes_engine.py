"""What is the engine's own part: the typed SDK, what it shows and keeps, its interruption; and a true driver."""

from __future__ import annotations

import copy
import json
import os
import signal
from typing import Any

import pytest

from lab.plugins import values
from tests.lab.plugin_kubernetes.conftest import Plane, Site
from tests.lab.plugin_kubernetes.declared import config_map, declare, deployment, named
from tests.lab.provider_driver import Declared, Driver

WAIT = {"pulumi.com/waitFor": "jsonpath={.data.go}=yes"}
GO = '{"data":{"go":"yes"}}'


def test_the_typed_sdk_up_again_and_down(site: Site, plane: Plane) -> None:
    site.write(
        """
provider = k8s.Provider("here", namespace="typed")
options = pulumi.ResourceOptions(provider=provider)
space = k8s.core.v1.Namespace("space", metadata={"name": "typed"}, opts=options)
options = pulumi.ResourceOptions(provider=provider, depends_on=[space])
labels = {"app": "web"}
web = k8s.apps.v1.Deployment(
    "web",
    spec={
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "0.5"}}}]},
        },
    },
    opts=options,
)
service = k8s.core.v1.Service("web", spec={"selector": labels, "ports": [{"port": 80}]}, opts=options)
pulumi.export("address", service.spec.cluster_ip)
"""
    )
    preview = site.pulumi("preview")
    assert "+ 5 to create" in preview
    site.up()
    site.unchanged()
    site.up("--expect-no-changes")
    site.pulumi("refresh", "--yes", "--expect-no-changes")
    site.unchanged()
    assert len(plane.names("deployment", "typed")) == 1
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert "namespace/typed" not in plane.names("namespace")


def in_namespace(program: list[Declared], namespace: str) -> list[Declared]:
    placed = []
    for entry in copy.deepcopy(program):
        entry.inputs.setdefault("metadata", {})["namespace"] = namespace
        placed.append(entry)
    return placed


def comparable(kept: dict[str, Any], namespace: str) -> Any:
    """Inputs and outputs without what the server and chance decide."""
    resource = copy.deepcopy(kept)
    outputs = resource["outputs"]
    for key in ("status", "__fieldManager"):
        outputs.pop(key, None)
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        outputs["metadata"].pop(key)
    parts = {key: resource[key] for key in ("type", "inputs", "outputs")}
    return json.loads(json.dumps(parts, sort_keys=True).replace(namespace, "namespace"))


@pytest.mark.exhaustive
def test_the_engine_and_the_driver_leave_the_same_state(site: Site, driver: Driver, plane: Plane) -> None:
    """The same program through both: what the previews between its states say, and the states."""

    def secret(text: str) -> Declared:
        return declare("core/v1:Secret", "key", {**named("key"), "stringData": {"k": values.secret(text)}})

    ignoring = {"ignore_changes": ("spec.replicas",)}
    states = [
        [config_map("map", {"a": values.secret("one"), "b": "x"}), secret("first"), deployment("web", replicas=0)],
        [
            config_map("map", {"a": values.secret("two"), "b": "x"}),
            secret("second"),
            deployment("web", replicas=3, container={"args": ["a", "z"], "image": "nginx:2"}, options=ignoring),
            config_map("further", {"k": "v"}),
        ],
        [secret("second"), deployment("web", replicas=0, labels={"app": "web", "x": "y"}, options=ignoring)],
    ]
    for namespace in ("by-engine", "by-driver"):
        plane.kubectl("create", "namespace", namespace)
    for state in states:
        ours, theirs = in_namespace(state, "by-driver"), in_namespace(state, "by-engine")
        site.declare(*theirs)
        shown = {name: set(diff.items()) for name, diff in site.differences().items()}
        steps = {name: set(step.detailed_diff.items()) for name, step in driver.preview(*ours).items()}
        assert {name: diff for name, diff in steps.items() if diff} == shown
        site.up()
        driver.up(*ours)
        kept = site.state()
        for name, resource in driver.state.items():
            mine = {"type": resource.declared.type, "inputs": resource.inputs, "outputs": resource.outputs}
            assert comparable(mine, "by-driver") == comparable(kept[name], "by-engine")
        # In addition to the resources, the engine keeps its stack and its provider.
        assert len(kept) == len(driver.state) + 2
    site.unchanged()


def test_secrets_stay_secret_and_unlogged(site: Site, plane: Plane) -> None:
    def program(text: str) -> list[Declared]:
        key = declare("core/v1:Secret", "key", {**named("key"), "stringData": {"k": text}})
        return [key, config_map("map", {"a": values.secret("canary-7"), "b": "x"})]

    site.declare(*program("canary-8"))
    output = site.up() + site.pulumi("preview", "--diff")
    state = site.pulumi("stack", "export")
    assert "canary" not in output + state
    assert "Y2FuYXJ5" not in output + state, "nor its base64"
    assert site.state()["map"]["outputs"]["data"]["b"] == "x", "only the secret leaf is secret"
    site.declare(*program("canary-9"))
    assert "canary" not in site.up("--diff")
    assert plane.get("secret", "key")["data"] == {"k": "Y2FuYXJ5LTk="}


@pytest.mark.exhaustive
def test_ctrl_c_ends_a_wait_and_the_next_up_goes_on(site: Site, plane: Plane) -> None:
    site.declare(config_map("slow", {"k": "v"}, annotations=WAIT))
    engine = site.begin_up(until="slow")
    engine.send_signal(signal.SIGINT)
    output, _ = engine.communicate(timeout=120)
    assert engine.returncode != 0
    assert "cancelled" in output
    assert site.state()["slow"]["id"] == "default/slow"
    # As a controller: the update takes over what kubectl has set, and removes it.
    plane.kubectl("patch", "configmap", "slow", "--field-manager=controller", "--type=merge", "-p", GO)
    site.up()


@pytest.mark.exhaustive
def test_a_killed_engine_leaves_a_state_that_the_next_up_completes(site: Site, plane: Plane) -> None:
    site.declare(config_map("first", {"k": "v"}), config_map("mid", {"k": "v"}, annotations=WAIT))
    engine = site.begin_up(until="mid")
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    site.pulumi("cancel", "--yes")
    plane.kubectl("patch", "configmap", "mid", "--type=merge", "-p", GO)
    output = site.up(check=False)
    # The create of `mid` was never recorded: the object is there, and taking it over is the user's decision.
    assert 'configmaps "mid" already exists' in output
    site.environment["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"
    site.up()
    site.unchanged()
