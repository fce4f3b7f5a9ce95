"""The Kubernetes stand-in under the real engine: an object's life, and what previews say of it."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.lab.plugin_kubernetes.conftest import Plane, Site

DEPLOYMENT = """
def deployment(name, **changes):
    container = {"name": "c", "image": "nginx", "args": ["a", "b", "c"],
                 "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}, **changes.pop("container", {})}
    spec = {"hostNetwork": False, "volumes": [], "containers": [container]}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    annotations = changes.pop("annotations", {})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template, **changes}
    return {**named(name, annotations=annotations), "spec": spec}
"""


def test_the_typed_sdk_up_again_and_down(site: Site, plane: Plane) -> None:
    (site.folder / "__main__.py").write_text(
        """
import pulumi
import pulumi_kubernetes as k8s

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


def test_a_preview_names_exactly_what_changes(site: Site) -> None:
    site.declare(DEPLOYMENT + 'declare("apps/v1:Deployment", "web", deployment("web"))')
    site.up()
    site.unchanged()
    program = 'declare("apps/v1:Deployment", "web", deployment("web", replicas=2, container={"args": ["a", "b", "z"]}))'
    site.declare(DEPLOYMENT + program)
    step = site.steps()["web"]
    assert step["op"] == "update"
    assert set(step["detailedDiff"]) == {"spec.replicas", "spec.template.spec.containers[0].args[2]"}
    site.up()
    site.unchanged()


def test_a_changed_selector_replaces_delete_first(site: Site, plane: Plane) -> None:
    site.declare(DEPLOYMENT + 'declare("apps/v1:Deployment", "sel", deployment("sel"))')
    site.up()
    before = plane.get("deployment", "sel")["metadata"]["uid"]
    labels = '{"app": "sel", "x": "y"}'
    site.declare(
        DEPLOYMENT + f'p = deployment("sel"); p["spec"]["selector"]["matchLabels"] = {labels}\n'
        f'p["spec"]["template"]["metadata"]["labels"] = {labels}\ndeclare("apps/v1:Deployment", "sel", p)'
    )
    step = site.steps()["sel"]
    assert step["op"] in ("replace", "delete-replaced", "create-replacement")
    assert step["detailedDiff"]["spec.selector.matchLabels.x"]["kind"] == "add-replace"
    site.environment["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"
    site.pulumi("preview")
    del site.environment["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"]
    site.up()
    assert plane.get("deployment", "sel")["metadata"]["uid"] != before


def test_names_are_made_up_and_kept_and_a_replacement_gets_another(site: Site, plane: Plane) -> None:
    program = 'declare("core/v1:ConfigMap", "auto", {{"data": {{"k": "{}"}}}})'
    site.declare(program.format(1))
    site.up()
    first = site.state("auto")["id"]
    assert first.startswith("default/auto-")
    assert plane.get("configmap", first.partition("/")[2])["metadata"]["annotations"]["pulumi.com/autonamed"] == "true"
    site.unchanged()
    site.declare(program.format(2))
    site.up()
    assert site.state("auto")["id"] != first
    assert [name for name in plane.names("configmap") if "auto-" in name] == [
        f"configmap/{site.state('auto')['id'].partition('/')[2]}"
    ]


def test_what_the_state_holds(site: Site) -> None:
    site.declare('declare("core/v1:ConfigMap", "kept", {**named("kept"), "data": {"k": "v"}})')
    site.up()
    state = site.state("kept")
    outputs = state["outputs"]
    assert state["id"] == "default/kept"
    assert state["type"] == "kubernetes:core/v1:ConfigMap"
    assert outputs["__initialApiVersion"] == "v1"
    assert outputs["__fieldManager"].startswith("pulumi-kubernetes-")
    assert len(outputs["__fieldManager"]) == len("pulumi-kubernetes-") + 8
    assert outputs["__inputs"] == state["inputs"]
    assert outputs["metadata"]["uid"]


def test_secrets_stay_secret_and_unlogged(site: Site, plane: Plane) -> None:
    program = """
    declare("core/v1:Secret", "key", {{**named("key"), "stringData": {{"k": "{}"}}}})
    declare("core/v1:ConfigMap", "map", {{**named("map"), "data": {{"a": pulumi.Output.secret("canary-7"), "b": "x"}}}})
    """
    site.declare(program.format("canary-8"))
    said = site.up() + site.pulumi("preview", "--diff")
    state = site.pulumi("stack", "export")
    assert "canary" not in said + state
    assert "Y2FuYXJ5" not in said + state, "nor its base64"
    assert site.state("map")["outputs"]["data"]["b"] == "x", "only the secret leaf is secret"
    site.unchanged()
    site.declare(program.format("canary-9"))
    assert "canary" not in site.up("--diff")
    assert plane.get("secret", "key")["data"] == {"k": "Y2FuYXJ5LTk="}


def test_an_object_that_exists_is_not_overwritten(site: Site, plane: Plane) -> None:
    plane.kubectl("create", "configmap", "theirs", "--from-literal=k=theirs")
    try:
        site.declare('declare("core/v1:ConfigMap", "mine", {**named("theirs"), "data": {"k": "mine"}})')
        said = site.up(check=False)
        assert 'configmaps "theirs" already exists' in said
        assert "upsertExistingObjects" in said
        assert site.state("mine") == {}
        assert plane.get("configmap", "theirs")["data"] == {"k": "theirs"}
        site.environment["PULUMI_K8S_UPSERT_EXISTING_OBJECTS"] = "true"
        said = site.up(check=False)
        assert 'conflict with "kubectl-create"' in said and "pulumi.com/patchForce" in said
        force = '{"pulumi.com/patchForce": "true"}'
        site.declare(
            f'declare("core/v1:ConfigMap", "mine", {{**named("theirs", annotations={force}), "data": {{"k": "mine"}}}})'
        )
        site.up()
        assert plane.get("configmap", "theirs")["data"] == {"k": "mine"}
    finally:
        plane.kubectl("delete", "configmap", "theirs", "--ignore-not-found")


def test_a_conflict_on_update_names_who_what_and_how(site: Site, plane: Plane) -> None:
    program = 'declare("apps/v1:Deployment", "tug", deployment("tug", replicas={}, annotations={}))'
    site.declare(DEPLOYMENT + program.format(0, "{}"))
    site.up()
    site.declare(DEPLOYMENT + program.format(0, '{"a": "b"}'))
    site.up()
    owners = {entry["manager"] for entry in plane.get("deployment", "tug")["metadata"]["managedFields"]}
    manager = site.state("tug")["outputs"]["__fieldManager"]
    assert manager in owners and "pulumi-kubernetes" not in owners
    live = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tug"}, "spec": {"replicas": 0}}
    plane.kubectl("apply", "--server-side", "--field-manager=rival", "--force-conflicts", "-f", "-", given=live)
    site.declare(DEPLOYMENT + program.format(1, '{"a": "b"}'))
    said = site.up(check=False)
    for part in (manager, ".spec.replicas", "rival", "pulumi.com/patchForce"):
        assert part in said
    site.declare(DEPLOYMENT + program.format(1, '{"a": "b", "pulumi.com/patchForce": "true"}'))
    site.up()
    site.unchanged()


def test_ignored_changes_stay_ignored(site: Site, plane: Plane) -> None:
    program = (
        'declare("apps/v1:Deployment", "ign", deployment("ign", replicas={}, container={{"image": "{}"}}),'
        ' ignore_changes=["spec.replicas"])'
    )
    site.declare(DEPLOYMENT + program.format(1, "nginx"))
    site.up()
    plane.kubectl("scale", "deployment", "ign", "--replicas=2")
    site.pulumi("refresh", "--yes")
    site.declare(DEPLOYMENT + program.format(5, "nginx:2"))
    assert set(site.steps()["ign"]["detailedDiff"]) == {"spec.template.spec.containers[0].image"}
    site.up()
    assert plane.get("deployment", "ign")["spec"]["replicas"] == 2


def test_drift_is_shown_and_deleted_objects_come_back(site: Site, plane: Plane) -> None:
    site.declare(
        """
        declare("core/v1:Namespace", "drift", {"metadata": {"name": "drift", "labels": {"a": "1"}}})
        declare("core/v1:ConfigMap", "lost", {**named("lost"), "data": {"k": "v"}})
        """
    )
    site.up()
    plane.kubectl("label", "namespace", "drift", "a=2", "--overwrite")
    plane.kubectl("delete", "configmap", "lost")
    said = site.pulumi("refresh", "--yes", "--diff")
    assert '"1" => "2"' in said
    assert "- 1 deleted" in said
    steps = site.steps()
    assert set(steps["drift"]["detailedDiff"]) == {"metadata.labels.a"}
    assert steps["lost"]["op"] == "create"
    assert 'conflict with "kubectl-label"' in site.up(check=False), "whoever changed it owns it now"
    site.environment["PULUMI_K8S_ENABLE_PATCH_FORCE"] = "true"
    site.up()
    assert plane.get("namespace", "drift")["metadata"]["labels"]["a"] == "1"
    site.unchanged()


def test_get_and_import(site: Site, plane: Plane) -> None:
    plane.kubectl("create", "configmap", "found", "--from-literal=k=v")
    site.declare(
        """
        found = pulumi.CustomResource("kubernetes:core/v1:ConfigMap", "found", {"data": None},
                                      pulumi.ResourceOptions(id="default/found", version="4.34.2"))
        pulumi.export("data", found.data) if hasattr(found, "data") else None
        """
    )
    site.up()
    assert site.state("found")["outputs"]["data"] == {"k": "v"}
    program = 'declare("core/v1:ConfigMap", "taken", {{**named("found"), "data": {{"k": "{}"}}}}, import_={})'
    site.declare(program.format("w", '"default/found"'))
    assert "previously-imported resources that still specify an ID may not be replaced" in site.up(check=False)
    site.declare(program.format("v", '"default/found"'))
    site.up()
    site.declare(program.format("v", None))
    site.unchanged()
    site.pulumi("destroy", "--yes", "--skip-preview")
    assert "configmap/found" not in plane.names("configmap")


def test_patches_manage_their_fields_and_give_them_back(site: Site, plane: Plane) -> None:
    plane.kubectl("create", "configmap", "shared", "--from-literal=theirs=1")
    try:
        program = """
        pulumi.CustomResource("kubernetes:core/v1:ConfigMapPatch", "ours",
            {{"apiVersion": "v1", "kind": "ConfigMap", **named("shared"), "data": {{"ours": "{}"}}}},
            pulumi.ResourceOptions(version="4.34.2"))
        """
        site.declare(program.format(1))
        site.up()
        site.unchanged()
        assert plane.get("configmap", "shared")["data"] == {"theirs": "1", "ours": "1"}
        site.declare(program.format(2))
        assert site.steps()["ours"]["op"] == "update", "a patch never replaces the object"
        site.up()
        site.pulumi("destroy", "--yes", "--skip-preview")
        assert plane.get("configmap", "shared")["data"] == {"theirs": "1"}
    finally:
        plane.kubectl("delete", "configmap", "shared", "--ignore-not-found")


def test_lists_are_refused_and_invalid_objects_fail_the_preview(site: Site) -> None:
    site.declare('declare("core/v1:ConfigMapList", "many", {"items": []})')
    assert "ConfigMapList cannot be a resource" in site.pulumi("preview", check=False)
    site.declare('declare("core/v1:Service", "bad", {**named("bad"), "spec": {"ports": [{"port": 99999}]}})')
    assert "spec.ports[0].port: Invalid value" in site.pulumi("preview", check=False)


def test_previews_without_the_namespace_the_kind_or_the_value(site: Site) -> None:
    site.declare(
        """
        space = declare("core/v1:Namespace", "later", {"metadata": {"name": "later"}})
        declare("core/v1:ConfigMap", "inside", {**named("inside", "later"), "data": {"k": "v"}})
        declare("nobody.example.com/v1:Nothing", "kind", {**named("kind")})
        declare("core/v1:ConfigMap", "unknown", {**named("unknown"), "data": {"k": space.id}})
        """
    )
    assert {name: step["op"] for name, step in site.steps().items() if name != "plugin-dev"} == dict.fromkeys(
        ("later", "inside", "kind", "unknown"), "create"
    )


def test_deletion_names_the_finalizers_that_hold_it(site: Site, plane: Plane) -> None:
    site.declare(
        """
        declare("core/v1:ConfigMap", "held", {**named("held", finalizers=["example.com/hold"])},
                custom_timeouts=pulumi.CustomTimeouts(delete="3s"))
        """
    )
    site.up()
    said = site.pulumi("destroy", "--yes", "--skip-preview", check=False)
    assert "was not deleted within 3 s" in said and "example.com/hold" in said
    assert site.state("held")["id"] == "default/held", "it is still there, so the engine still knows it"
    plane.kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    site.pulumi("destroy", "--yes", "--skip-preview")


def test_what_is_gone_already_is_deleted(site: Site, plane: Plane) -> None:
    site.declare('declare("core/v1:ConfigMap", "gone", {**named("gone")})')
    site.up()
    plane.kubectl("delete", "configmap", "gone")
    site.pulumi("destroy", "--yes", "--skip-preview")


def test_orphans_stay(site: Site, plane: Plane) -> None:
    policy = '{"pulumi.com/deletionPropagationPolicy": "orphan"}'
    site.declare(DEPLOYMENT + f'declare("apps/v1:Deployment", "orph", deployment("orph", annotations={policy}))')
    site.up()
    site.pulumi("destroy", "--yes", "--skip-preview")
    left = [name for name in plane.names("replicaset") if "orph-" in name]
    assert left
    plane.kubectl("delete", *left)


def test_many_objects_at_once(site: Site, plane: Plane) -> None:
    site.declare(
        """
        for number in range(60):
            declare("core/v1:ConfigMap", f"many-{number}", {**named(f"many-{number}"), "data": {"k": "v"}})
        """
    )
    site.up("--parallel", "60")
    assert sum("many-" in name for name in plane.names("configmap")) == 60
    site.unchanged()


def test_ctrl_c_ends_a_wait_and_the_next_up_goes_on(site: Site, plane: Plane) -> None:
    wait = '{"pulumi.com/waitFor": "jsonpath={.data.go}=yes"}'
    site.declare(f'declare("core/v1:ConfigMap", "slow", {{**named("slow", annotations={wait}), "data": {{"k": "v"}}}})')
    engine = site.begin_up(until="slow")
    engine.send_signal(signal.SIGINT)
    said, _ = engine.communicate(timeout=30)
    assert engine.returncode != 0
    assert "cancelled" in said
    state: dict[str, Any] = site.state("slow")
    assert state["id"] == "default/slow", json.dumps(state)
    plane.kubectl("patch", "configmap", "slow", "--type=merge", "-p", '{"data":{"go":"yes"}}')
    site.up()
