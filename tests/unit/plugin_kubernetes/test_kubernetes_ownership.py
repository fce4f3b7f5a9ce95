"""Who owns which field, what a conflict says, how bundles are ordered, and where charts are found."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from lab.plugins.kubernetes import charts, deleting, ordering, rendering, resources, yaml_components
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.config import ProviderConfig
from lab.plugins.kubernetes.errors import ApiError, ProviderError, conflict_text
from lab.plugins.kubernetes.ownership import absorb, leave_ignored, written_by_provider
from lab.plugins.kubernetes.session import Log, Operation, ProviderSession


def entry(manager: str, operation: str, fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


MINE = "pulumi-kubernetes-12345678"


def test_the_first_update_takes_over_what_creating_wrote() -> None:
    status = entry("kube-controller-manager", "Update", {"f:status": {}}, subresource="status")
    created = entry("pulumi-kubernetes", "Update", {"f:data": {"f:a": {}}})
    assert absorb([created, status], MINE) == [entry(MINE, "Apply", {"f:data": {"f:a": {}}}), status]


def test_fields_of_several_writers_are_merged() -> None:
    entries = [
        entry(MINE, "Apply", {"f:data": {"f:a": {}}}),
        entry("kubectl", "Update", {"f:data": {"f:b": {}}}),
        entry("other", "Apply", {"f:data": {"f:c": {}}}),
    ]
    assert absorb(entries, MINE) == [entry(MINE, "Apply", {"f:data": {"f:a": {}, "f:b": {}}}), entries[2]]


def test_nothing_moves_when_nobody_else_wrote() -> None:
    entries = [entry(MINE, "Apply", {}), entry("kubectl", "Update", {}, subresource="scale")]
    assert absorb(entries, MINE) is None
    assert not written_by_provider({"metadata": {"managedFields": entries}})
    assert written_by_provider({"metadata": {"managedFields": [entry("pulumi-kubernetes", "Update", {})]}})


LIVE: dict[str, Any] = {
    "metadata": {
        "managedFields": [
            entry(MINE, "Apply", {"f:spec": {"f:image": {}, "f:list": {'k:{"name":"a"}': {"f:x": {}}}}}),
            entry("autoscaler", "Update", {"f:spec": {"f:replicas": {}, "f:image": {}}}),
        ]
    },
    "spec": {"replicas": 7, "image": "live", "list": [{"name": "a", "x": 5}], "server": "set"},
}


def test_an_ignored_field_of_somebody_else_is_left_out() -> None:
    body = leave_ignored({"spec": {"replicas": 1, "image": "new"}}, LIVE, ["spec.replicas"], MINE)
    assert body == {"spec": {"image": "new"}}


def test_an_ignored_field_of_ours_stays_as_it_is() -> None:
    inputs = {"spec": {"image": "new", "list": [{"name": "a", "x": 1}], "absent": 1}}
    body = leave_ignored(inputs, LIVE, ["spec.image", "spec.list[*].x", "spec.absent", "spec.server"], MINE)
    assert body["spec"] == {"image": "live", "list": [{"name": "a", "x": 5}], "absent": 1, "server": "set"}


def test_a_conflict_names_managers_fields_and_the_way_out() -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl"', "field": ".data.a"}
    error = ApiError(409, "Conflict", "Apply failed with 1 conflict", {"causes": [cause]})
    assert error.field_conflict
    text = conflict_text(error, MINE)
    for part in (MINE, '.data.a: conflict with "kubectl"', "pulumi.com/patchForce", "ignoreChanges"):
        assert part in text


@dataclass
class Refusing:
    """A cluster that has all kinds and refuses each apply."""

    error: ApiError

    def knows(self, _: object) -> bool:
        return True

    namespaced = knows

    def apply(self, *_: object, **_options: object) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("message", "immutable"),
    [
        ("spec.selector: Invalid value: {}: field is immutable", True),
        ("spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden", False),
        ("spec: Forbidden: spec is immutable after creation except resources.requests for bound claims", False),
        ('spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set', False),
        ("spec.replicas: Invalid value: -1: must be greater than or equal to 0", False),
    ],
)
def test_which_refusals_the_provider_takes_for_a_replacement(message: str, immutable: bool) -> None:
    """Of an object that is applied over the one that it replaces; the inputs are shown for it, or preview fails."""
    claim = named("v1", "PersistentVolumeClaim", "chat", "m", spec={"storageClassName": "fast"})
    urn = "urn:pulumi:dev::plugin::kubernetes:core/v1:PersistentVolumeClaim::chat"
    cluster = cast("Cluster", Refusing(ApiError(422, "Invalid", message)))
    session = ProviderSession(ProviderConfig(upsert=True), cast("Log", None), threading.Event(), reachable=cluster)
    with nullcontext() if immutable else pytest.raises(ProviderError, match="PersistentVolumeClaim m/chat: spec"):
        assert resources.create(Operation(session, urn, preview=True), claim) is None
    with pytest.raises(ProviderError, match="PersistentVolumeClaim m/chat: spec"):
        resources.create(Operation(session, urn), claim)


@pytest.mark.parametrize(
    ("annotation", "policy"),
    [("", "Foreground"), ("orphan", "Orphan"), ("Background", "Background"), ("other", "Foreground")],
)
def test_deletion_policy(annotation: str, policy: str) -> None:
    inputs = {"metadata": {"annotations": {"pulumi.com/deletionPropagationPolicy": annotation}}}
    assert deleting.propagation(inputs) == policy


def named(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def test_namespaces_and_crds_come_before_what_needs_them() -> None:
    crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com")
    crd["spec"] = {"group": "example.com", "names": {"kind": "Widget"}, "scope": "Namespaced"}
    objects = [named("example.com/v1", "Widget", "w", "ns"), named("v1", "Namespace", "ns"), crd]
    needed = ordering.dependencies(objects)
    names = [obj["metadata"]["name"] for obj in ordering.in_order(objects, needed)]
    assert names == ["ns", "widgets.example.com", "w"]


def test_explicit_dependencies_and_circles() -> None:
    key = "config.kubernetes.io/depends-on"
    first = named("v1", "ConfigMap", "a", "n", metadata={"annotations": {key: "apps/namespaces/n/Deployment/b"}})
    second = named("apps/v1", "Deployment", "b", "n")
    needed = ordering.dependencies([first, second])
    assert ordering.in_order([first, second], needed) == [second, first]
    second["metadata"]["annotations"] = {key: "/namespaces/n/ConfigMap/a"}
    objects = [first, second]
    with pytest.raises(ProviderError, match="in a circle: ConfigMap/n/a"):
        ordering.in_order(objects, ordering.dependencies(objects))


def test_children_are_named_after_their_component_and_object() -> None:
    assert yaml_components.child_name(named("v1", "ConfigMap", "a", "n"), "chart") == "chart:n/a"
    assert yaml_components.child_name(named("v1", "Namespace", "n"), "chart") == "chart:n"
    assert yaml_components.child_name(named("v1", "Namespace", "n"), "") == "n"
    assert yaml_components.type_token(named("v1", "ConfigMap", "a")) == "kubernetes:core/v1:ConfigMap"
    assert yaml_components.type_token(named("e.com/v1", "X", "a")) == "kubernetes:e.com/v1:X"


def test_yaml_keeps_dates_as_text_and_says_where_it_is_broken() -> None:
    assert yaml_components.parse_documents("a: 2024-01-01\n---\n---\nb: 1\n", "x") == [{"a": "2024-01-01"}, {"b": 1}]
    with pytest.raises(ProviderError, match="x is not YAML"):
        yaml_components.parse_documents("a: [", "x")
    with pytest.raises(ProviderError, match="holds a list where an object must be"):
        yaml_components.parse_documents("- a", "x")


def test_files_are_local_and_globs_sorted(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"n": name}))
    assert yaml_components.read_files([f"{tmp_path}/*.yaml"], globbing=True) == [{"n": "a"}, {"n": "b"}]
    with pytest.raises(ProviderError, match="cannot read manifest"):
        yaml_components.read_files([f"{tmp_path}/no.yaml"], globbing=False)
    with pytest.raises(ProviderError, match="local files only"):
        yaml_components.read_files(["https://example.com/a.yaml"], globbing=True)


def test_charts_are_local(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert charts.locate({"chart": str(tmp_path / "plain")}) == tmp_path / "plain"
    repository = {"chart": str(tmp_path / "plain"), "repositoryOpts": {"repo": "https://charts.example.com"}}
    registry = {"chart": "oci://docker.io/envoyproxy/gateway-helm", "version": "v1.9.1"}
    for remote in (repository, registry, {"chart": "./nowhere"}):
        assert charts.find(remote) is None
        with pytest.raises(ProviderError, match="is not a local path"):
            charts.locate(remote)


def test_rendered_files_sort_crds_first(tmp_path: Path) -> None:
    crd = named("apiextensions.k8s.io/v1", "CustomResourceDefinition", "a.b")
    assert rendering.path_of(crd, "out") == Path(
        "out/0-crd/apiextensions.k8s.io_v1-customresourcedefinition-default-a.b.yaml"
    )
    written = rendering.write(named("v1", "ConfigMap", "x", "n"), str(tmp_path))
    assert written == tmp_path / "1-manifest" / "v1-configmap-n-x.yaml"
    assert written.stat().st_mode & 0o077 == 0
