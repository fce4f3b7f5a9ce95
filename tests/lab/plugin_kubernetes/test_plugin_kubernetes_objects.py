"""An object's life by the engine's protocol on a real API server, and what previews say of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pulumi.runtime.proto import provider_pb2

from lab.plugins import values
from tests.lab.plugin_kubernetes.conftest import Plane
from tests.lab.plugin_kubernetes.declared import config_map, declare, deployment, named, workload
from tests.lab.provider_driver import Declared, Driver, FailedError
from tests.lab.waiting import eventually

FORCE = {"pulumi.com/patchForce": "true"}
ODD = {"ports": [{"port": 80, "colour": "red"}], "prots": [], "externalIPs": []}
AT_ONCE = {"pulumi.com/skipAwait": "true"}


def test_a_preview_names_exactly_what_changes(driver: Driver) -> None:
    driver.up(deployment("web"))
    driver.unchanged(deployment("web"))
    changed = deployment("web", replicas=2, container={"args": ["a", "b", "z"]})
    step = driver.preview(changed)["web"]
    assert step.op == "update"
    assert set(step.detailed_diff) == {"spec.replicas", "spec.template.spec.containers[0].args[2]"}
    driver.up(changed)
    driver.unchanged(changed)


def test_a_changed_selector_replaces_delete_first(driver: Driver, plane: Plane) -> None:
    driver.up(deployment("sel"))
    before = plane.get("deployment", "sel")["metadata"]["uid"]
    changed = deployment("sel", labels={"app": "sel", "x": "y"})
    step = driver.preview(changed)["sel"]
    assert (step.op, step.deletes_first) == ("replace", True)
    assert step.detailed_diff["spec.selector.matchLabels.x"] == "add-replace"
    driver.settings["upsertExistingObjects"] = "true"
    driver.preview(changed)
    del driver.settings["upsertExistingObjects"]
    driver.up(changed)
    assert plane.get("deployment", "sel")["metadata"]["uid"] != before


def claim(name: str, storage_class: str = "slow", mode: str = "ReadWriteMany") -> Declared:
    asked = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": storage_class}
    return declare("core/v1:PersistentVolumeClaim", "fixed", {**named(name, annotations=AT_ONCE), "spec": asked})


def stateful_set(service: str) -> Declared:
    """Awaited: nothing waits for the removal of a StatefulSet that says skipAwait."""
    spec = {**workload("fixed"), "serviceName": service, "replicas": 0}
    return declare("apps/v1:StatefulSet", "fixed", {**named("fixed"), "spec": spec})


def service(**address: str) -> Declared:
    spec = {"ports": [{"port": 80}], **address}
    return declare("core/v1:Service", "fixed", {**named("fixed", annotations=AT_ONCE), "spec": spec})


def storage_class(copies: str) -> Declared:
    content = {"metadata": {"name": "fixed"}, "provisioner": "x.example.com", "parameters": {"copies": copies}}
    return declare("storage.k8s.io/v1:StorageClass", "fixed", content)


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        (claim("fixed"), claim("fixed", "fast"), "spec is immutable after creation except resources.requests"),
        (claim("fixed"), claim("fixed", mode="ReadWriteOnce"), "spec is immutable after creation"),
        (stateful_set("a"), stateful_set("b"), "updates to statefulset spec for fields other than"),
        (service(), service(clusterIP="None"), "may not change once set"),
    ],
    ids=["class", "modes", "serviceName", "clusterIP"],
)
def test_a_preview_refuses_a_replacement_whose_refusal_has_other_words(
    driver: Driver, before: Declared, after: Declared, refusal: str
) -> None:
    """Where creates are applies. Without a preview, the old object is deleted first."""
    driver.settings["upsertExistingObjects"] = "true"
    driver.up(before)
    with pytest.raises(FailedError, match=refusal):
        driver.preview(after)
    step = driver.up(after)["fixed"]
    assert (step.op, step.deletes_first) == ("replace", True)
    driver.destroy()


def test_a_preview_passes_a_claim_under_another_name_and_a_refusal_in_the_words_it_knows(driver: Driver) -> None:
    driver.settings["upsertExistingObjects"] = "true"
    for before, after, first in (
        (claim("fixed-slow"), claim("fixed-fast", "fast"), False),
        (storage_class("2"), storage_class("3"), True),
    ):
        driver.up(before)
        step = driver.preview(after)["fixed"]
        assert (step.op, step.deletes_first) == ("replace", first)
        assert driver.up(after)["fixed"].op == "replace"
        driver.destroy()


def test_names_are_made_up_and_kept_and_a_replacement_gets_another(driver: Driver, plane: Plane) -> None:
    def auto(value: str) -> Declared:
        return declare("core/v1:ConfigMap", "auto", {"data": {"k": value}})

    driver.up(auto("1"))
    first = driver.state["auto"].id
    assert first.startswith("default/auto-")
    assert plane.get("configmap", first.partition("/")[2])["metadata"]["annotations"]["pulumi.com/autonamed"] == "true"
    driver.unchanged(auto("1"))
    step = driver.up(auto("2"))["auto"]
    assert (step.op, step.deletes_first) == ("replace", False)
    assert driver.state["auto"].id != first
    assert [name for name in plane.names("configmap") if "auto-" in name] == [
        f"configmap/{driver.state['auto'].id.partition('/')[2]}"
    ]


def test_what_the_state_holds(driver: Driver) -> None:
    driver.up(config_map("kept", {"k": "v"}))
    kept = driver.state["kept"]
    assert kept.id == "default/kept"
    assert kept.outputs["__initialApiVersion"] == "v1"
    assert kept.outputs["__fieldManager"].startswith("pulumi-kubernetes-")
    assert len(kept.outputs["__fieldManager"]) == len("pulumi-kubernetes-") + 8
    assert kept.outputs["__inputs"] == kept.inputs
    assert kept.outputs["metadata"]["uid"]


def test_an_object_that_exists_is_not_overwritten(driver: Driver, plane: Plane) -> None:
    plane.kubectl("create", "configmap", "theirs", "--from-literal=k=theirs")
    try:
        mine = config_map("mine", {"k": "mine"}, object_name="theirs")
        with pytest.raises(FailedError, match='configmaps "theirs" already exists') as failed:
            driver.up(mine)
        assert "upsertExistingObjects" in str(failed.value)
        assert driver.state == {}
        assert plane.get("configmap", "theirs")["data"] == {"k": "theirs"}
        driver.settings["upsertExistingObjects"] = "true"
        with pytest.raises(FailedError, match='conflict with "kubectl-create"') as failed:
            driver.up(mine)
        assert "pulumi.com/patchForce" in str(failed.value)
        driver.up(config_map("mine", {"k": "mine"}, object_name="theirs", annotations=FORCE))
        assert plane.get("configmap", "theirs")["data"] == {"k": "mine"}
    finally:
        plane.kubectl("delete", "configmap", "theirs", "--ignore-not-found")


def test_a_conflict_on_update_names_who_what_and_how(driver: Driver, plane: Plane) -> None:
    driver.up(deployment("tug", replicas=0))
    driver.up(deployment("tug", replicas=0, annotations={"a": "b"}))
    owners = {entry["manager"] for entry in plane.get("deployment", "tug")["metadata"]["managedFields"]}
    manager = driver.state["tug"].outputs["__fieldManager"]
    assert manager in owners
    assert "pulumi-kubernetes" not in owners
    live = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "tug"}, "spec": {"replicas": 0}}
    plane.kubectl("apply", "--server-side", "--field-manager=rival", "--force-conflicts", "-f", "-", given=live)
    with pytest.raises(FailedError, match=r"\.spec\.replicas") as failed:
        driver.up(deployment("tug", replicas=1, annotations={"a": "b"}))
    for part in (manager, "rival", "pulumi.com/patchForce"):
        assert part in str(failed.value)
    forced = deployment("tug", replicas=1, annotations={"a": "b", **FORCE})
    driver.up(forced)
    driver.unchanged(forced)


def seen_by_its_controller(plane: Plane, name: str) -> None:
    """Until then a refresh finds a Deployment that is not ready, which the next preview updates."""

    def seen() -> bool:
        live = plane.get("deployment", name)
        return bool(live["status"].get("observedGeneration") == live["metadata"]["generation"])

    eventually(seen)


def test_the_next_update_removes_what_kubectl_has_set(driver: Driver, plane: Plane) -> None:
    driver.up(deployment("hand", replicas=0))
    plane.kubectl("label", "deployment", "hand", "note=mine")
    plane.kubectl("set", "env", "deployment/hand", "DEBUG=1")
    plane.kubectl("rollout", "restart", "deployment/hand")
    seen_by_its_controller(plane, "hand")
    driver.refresh()
    driver.unchanged(deployment("hand", replicas=0))
    changed = deployment("hand", replicas=0, annotations={"a": "b"})
    assert set(driver.preview(changed)["hand"].detailed_diff) == {"metadata.annotations"}
    driver.up(changed)
    live = plane.get("deployment", "hand")
    template = live["spec"]["template"]
    assert "labels" not in live["metadata"]
    assert "annotations" not in template["metadata"]
    assert "env" not in template["spec"]["containers"][0]


def test_after_a_refused_update_the_earlier_file_previews_an_update(driver: Driver) -> None:
    def port(number: int) -> Declared:
        return declare("core/v1:Service", "ref", {**named("ref"), "spec": {"ports": [{"port": number}]}})

    driver.up(port(80))
    with pytest.raises(FailedError, match=r"spec\.ports\[0\]\.port: Invalid value"):
        driver.up(port(99999))
    assert driver.state["ref"].init_errors
    step = driver.preview(port(80))["ref"]
    assert (step.op, step.detailed_diff) == ("update", {})
    driver.up(port(80))
    driver.unchanged(port(80))


@pytest.mark.parametrize("upsert", ["false", "true"])
def test_a_wrong_type_fails_the_preview_and_an_unknown_field_is_dropped(driver: Driver, upsert: str) -> None:
    driver.settings["upsertExistingObjects"] = upsert
    wrong = deployment("typed", replicas="many")
    with pytest.raises(FailedError, match=r"replicas"):
        driver.preview(wrong)
    driver.up(deployment("typed", replicas=0))
    with pytest.raises(FailedError, match=r"replicas"):
        driver.preview(wrong)
    driver.unchanged(deployment("typed", replicas=0, replicaz=3))
    driver.up(deployment("typed", replicas=0), declare("core/v1:Service", "odd", {**named("odd"), "spec": ODD}))
    assert driver.state["odd"].inputs["spec"] == {"ports": [{"port": 80}]}


def test_ignored_changes_stay_ignored(driver: Driver, plane: Plane) -> None:
    ignoring = {"ignore_changes": ("spec.replicas",)}
    driver.up(deployment("ign", replicas=1, options=ignoring))
    plane.kubectl("scale", "deployment", "ign", "--replicas=2")
    driver.refresh()
    changed = deployment("ign", replicas=5, container={"image": "nginx:2"}, options=ignoring)
    assert set(driver.preview(changed)["ign"].detailed_diff) == {"spec.template.spec.containers[0].image"}
    driver.up(changed)
    assert plane.get("deployment", "ign")["spec"]["replicas"] == 2


def test_drift_is_shown_and_deleted_objects_come_back(driver: Driver, plane: Plane) -> None:
    space = declare("core/v1:Namespace", "drift", {"metadata": {"name": "drift", "labels": {"a": "1"}}})
    program = (space, config_map("lost", {"k": "v"}))
    driver.up(*program)
    plane.kubectl("label", "namespace", "drift", "a=2", "--overwrite")
    plane.kubectl("delete", "configmap", "lost")
    driver.refresh()
    assert driver.state.keys() == {"drift"}
    assert driver.state["drift"].outputs["metadata"]["labels"]["a"] == "2"
    steps = driver.preview(*program)
    assert set(steps["drift"].detailed_diff) == {"metadata.labels.a"}
    assert steps["lost"].op == "create"
    driver.up(*program)
    assert plane.get("namespace", "drift")["metadata"]["labels"]["a"] == "1"
    driver.unchanged(*program)


def test_get_and_import(driver: Driver, plane: Plane) -> None:
    plane.kubectl("create", "configmap", "found", "--from-literal=k=v")
    got = driver.read("kubernetes:core/v1:ConfigMap", "got", "default/found")
    assert got.outputs["data"] == {"k": "v"}
    assert driver.read("kubernetes:core/v1:ConfigMap", "got", "default/nowhere").id == ""
    driver.take_over("kubernetes:core/v1:ConfigMap", "taken", "default/found")
    other = config_map("taken", {"k": "w"}, object_name="found")
    assert set(driver.preview(other)["taken"].detailed_diff) == {"data.k"}
    right = config_map("taken", {"k": "v"}, object_name="found")
    driver.unchanged(right)
    driver.up(right)
    driver.destroy()
    assert "configmap/found" not in plane.names("configmap")


def test_patches_manage_their_fields_and_give_them_back(driver: Driver, plane: Plane) -> None:
    def ours(value: str) -> Declared:
        inputs = {"apiVersion": "v1", "kind": "ConfigMap", **named("shared"), "data": {"ours": value}}
        return Declared(type="kubernetes:core/v1:ConfigMapPatch", name="ours", inputs=inputs)

    plane.kubectl("create", "configmap", "shared", "--from-literal=theirs=1")
    try:
        driver.up(ours("1"))
        driver.unchanged(ours("1"))
        assert plane.get("configmap", "shared")["data"] == {"theirs": "1", "ours": "1"}
        assert driver.preview(ours("2"))["ours"].op == "update", "a patch never replaces the object"
        driver.up(ours("2"))
        driver.destroy()
        assert plane.get("configmap", "shared")["data"] == {"theirs": "1"}
    finally:
        plane.kubectl("delete", "configmap", "shared", "--ignore-not-found")


def test_lists_are_refused_and_invalid_objects_fail_the_preview(driver: Driver) -> None:
    with pytest.raises(FailedError, match="ConfigMapList cannot be a resource"):
        driver.preview(declare("core/v1:ConfigMapList", "many", {"items": []}))
    bad = declare("core/v1:Service", "bad", {**named("bad"), "spec": {"ports": [{"port": 99999}]}})
    with pytest.raises(FailedError, match=r"spec\.ports\[0\]\.port: Invalid value"):
        driver.preview(bad)


def test_previews_without_the_namespace_the_kind_or_the_value(driver: Driver) -> None:
    steps = driver.preview(
        declare("core/v1:Namespace", "later", {"metadata": {"name": "later"}}),
        declare("core/v1:ConfigMap", "inside", {**named("inside", "later"), "data": {"k": "v"}}),
        declare("nobody.example.com/v1:Nothing", "kind", {**named("kind")}),
        config_map("unknown", {"k": values.UNKNOWN}),
    )
    assert {name: step.op for name, step in steps.items()} == dict.fromkeys(
        ("later", "inside", "kind", "unknown"), "create"
    )


def test_deletion_names_the_finalizers_that_hold_it(driver: Driver, plane: Plane) -> None:
    content = named("held", finalizers=["example.com/hold"])
    driver.up(declare("core/v1:ConfigMap", "held", content, timeouts={"delete": 3}))
    with pytest.raises(FailedError, match=r"was not deleted within 3 s.*example\.com/hold"):
        driver.destroy()
    assert driver.state["held"].id == "default/held", "it is still there, so the state still knows it"
    plane.kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    driver.destroy()


def test_what_is_gone_already_is_deleted(driver: Driver, plane: Plane) -> None:
    driver.up(config_map("gone"))
    plane.kubectl("delete", "configmap", "gone")
    driver.destroy()
    assert driver.state == {}


def test_orphans_stay(driver: Driver, plane: Plane) -> None:
    driver.up(deployment("orph", annotations={"pulumi.com/deletionPropagationPolicy": "orphan"}))
    driver.destroy()
    left = [name for name in plane.names("replicaset") if "orph-" in name]
    assert left
    plane.kubectl("delete", *left)


def test_many_objects_at_once(driver: Driver, plane: Plane) -> None:
    program = [config_map(f"many-{number}", {"k": "v"}) for number in range(60)]
    requests = [
        provider_pb2.CreateRequest(urn=entry.urn, properties=values.to_struct(entry.inputs)) for entry in program
    ]
    try:
        with driver.provider() as stub, ThreadPoolExecutor(len(program)) as pool:
            made = list(pool.map(stub.Create, requests))
        assert [answer.id for answer in made] == [f"default/{entry.name}" for entry in program]
        assert sum("many-" in name for name in plane.names("configmap")) == len(program)
    finally:
        plane.kubectl("delete", "configmap", "--ignore-not-found", *(entry.name for entry in program))


def test_another_cluster_replaces_the_provider_and_another_spelling_does_not(driver: Driver, plane: Plane) -> None:
    content = plane.kubeconfig.read_text()
    same = content.replace("kind: Config", "kind: Config\npreferences: {colors: true}")
    other = content.replace("server: https://127.0.0.1", "server: https://localhost")
    assert other != content
    driver.settings["kubeconfig"] = content
    assert driver.settings_change(kubeconfig=same) == (["kubeconfig"], [])
    assert driver.settings_change(kubeconfig=other) == (["kubeconfig"], ["kubeconfig"])
