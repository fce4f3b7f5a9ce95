"""Who owns which field, what a conflict says, and which charts are local."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from lab.plugins.kubernetes import deleting, helm, release_inputs, resources
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


@pytest.mark.parametrize(
    ("manager", "operation", "taken"),
    [
        ("kubectl-set", "Update", True),
        ("kubectl-label", "Update", True),
        ("kubectl-rollout", "Update", True),
        ("kubectl-client-side-apply", "Update", True),
        ("kubectl", "Apply", True),
        ("kube-controller-manager", "Update", False),
        ("pulumi-kubernetes-87654321", "Apply", False),
    ],
)
def test_an_update_takes_over_every_manager_whose_name_begins_with_kubectl(
    manager: str, operation: str, taken: bool
) -> None:
    theirs = entry(manager, operation, {"f:metadata": {"f:labels": {"f:note": {}}}})
    assert absorb([theirs], MINE) == ([{**theirs, "manager": MINE, "operation": "Apply"}] if taken else None)


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


def test_yaml_keeps_dates_as_text_and_says_where_it_is_broken() -> None:
    assert release_inputs.parse_documents("a: 2024-01-01\n---\n---\nb: 1\n", "x") == [{"a": "2024-01-01"}, {"b": 1}]
    with pytest.raises(ProviderError, match="x is not YAML"):
        release_inputs.parse_documents("a: [", "x")
    with pytest.raises(ProviderError, match="holds a list where an object must be"):
        release_inputs.parse_documents("- a", "x")


def test_charts_are_local(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert helm.local_chart({"chart": str(tmp_path / "plain")}) == tmp_path / "plain"
    repository = {"chart": str(tmp_path / "plain"), "repositoryOpts": {"repo": "https://charts.example.com"}}
    registry = {"chart": "oci://docker.io/envoyproxy/gateway-helm", "version": "v1.9.1"}
    for remote in (repository, registry, {"chart": "./nowhere"}):
        assert helm.local_chart(remote) is None
