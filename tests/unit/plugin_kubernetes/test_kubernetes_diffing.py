"""Differences: named to the leaf, silent about the server's own spelling, and clear about what replaces."""

from __future__ import annotations

from typing import Any

import pytest

from lab.plugins.kubernetes.diffing import ChangeKind, compare, parse_path, path_text, without_ignored
from lab.plugins.kubernetes.kinds import forces_replacement, is_list, is_patch, replacing_fields
from lab.plugins.kubernetes.normalizing import canonical_quantity, keep_zero_values, normalize, prune
from lab.plugins.kubernetes.objects import GroupVersionKind
from lab.plugins.kubernetes.properties import UNKNOWN


def changes(live: dict[str, Any], new: dict[str, Any], asked: dict[str, Any] | None = None) -> dict[str, ChangeKind]:
    items = compare(live, new, live if asked is None else asked, ())
    return {path: item.change for path, item in items.items()}


def test_paths_name_the_leaf() -> None:
    live = {"spec": {"replicas": 1, "template": {"spec": {"containers": [{"args": ["a", "b", "c"], "image": "x"}]}}}}
    new = {"spec": {"replicas": 2, "template": {"spec": {"containers": [{"args": ["a", "b", "z"], "image": "x"}]}}}}
    assert changes(live, new) == {
        "spec.replicas": ChangeKind.UPDATE,
        "spec.template.spec.containers[0].args[2]": ChangeKind.UPDATE,
    }


def test_added_and_dropped_properties() -> None:
    live = {"metadata": {"labels": {"a": "1"}}, "list": [1, 2, 3]}
    new = {"metadata": {"labels": {"b.c/d": "1"}, "annotations": {"x": "y"}}, "list": [1]}
    assert changes(live, new) == {
        "metadata.labels.a": ChangeKind.DELETE,
        'metadata.labels["b.c/d"]': ChangeKind.ADD,
        "metadata.annotations": ChangeKind.ADD,
        "list[1]": ChangeKind.DELETE,
        "list[2]": ChangeKind.DELETE,
    }


def test_an_unknown_is_a_change() -> None:
    assert changes({"a": "1"}, {"a": UNKNOWN, "b": UNKNOWN}) == {
        "a": ChangeKind.UPDATE,
        "b": ChangeKind.ADD,
    }


def test_true_is_not_one() -> None:
    assert changes({"a": 1}, {"a": True}) == {"a": ChangeKind.UPDATE}
    assert changes({"a": 2}, {"a": 2.0}) == {}


def test_a_zero_value_that_the_server_forgot_is_no_change() -> None:
    new = {"spec": {"hostNetwork": False, "env": [], "note": ""}}
    assert changes({"spec": {}}, new, asked=new) == {}
    assert changes({"spec": {}}, new, asked={"spec": {}}) == dict.fromkeys(
        ("spec.hostNetwork", "spec.env", "spec.note"), ChangeKind.ADD
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("spec", "replicas"), "spec.replicas"),
        (("metadata", "annotations", "pulumi.com/waitFor"), 'metadata.annotations["pulumi.com/waitFor"]'),
        (("a", 0, "b", 12), "a[0].b[12]"),
        (("a.b", 'c"d'), '["a.b"]["c\\"d"]'),
    ],
)
def test_path_text_and_back(path: tuple[str | int, ...], text: str) -> None:
    assert path_text(path) == text
    assert parse_path(text) == path


def test_a_broken_path_is_refused() -> None:
    with pytest.raises(ValueError, match="not a property path"):
        parse_path("a[b")


def test_ignored_changes_are_left_out_with_all_below_them() -> None:
    differences = compare(
        {"spec": {"replicas": 1, "c": [{"i": 1}]}}, {"spec": {"replicas": 2, "c": [{"i": 2}]}}, {}, ()
    )
    assert set(without_ignored(differences, ["spec.replicas"])) == {"spec.c[0].i"}
    assert set(without_ignored(differences, ["spec.c[*].i"])) == {"spec.replicas"}
    assert without_ignored(differences, ["spec"]) == {}


@pytest.mark.parametrize(
    ("api_version", "kind", "path", "replaces"),
    [
        ("apps/v1", "Deployment", ("spec", "selector", "matchLabels", "app"), True),
        ("apps/v1", "Deployment", ("spec", "replicas"), False),
        ("apps/v1", "Deployment", ("metadata", "name"), True),
        ("apps/v1", "StatefulSet", ("spec", "volumeClaimTemplates", 0, "spec"), True),
        ("apps/v1", "StatefulSet", ("spec", "selector", "matchLabels"), True),
        ("apps/v1", "StatefulSet", ("spec", "template"), False),
        ("batch/v1", "Job", ("spec", "template", "spec", "containers", 0, "image"), True),
        ("batch/v1", "Job", ("spec", "backoffLimit"), False),
        ("v1", "Service", ("spec", "clusterIP"), True),
        ("v1", "Service", ("spec", "ports", 0), False),
        ("v1", "PersistentVolumeClaim", ("spec", "storageClassName"), True),
        ("v1", "PersistentVolumeClaim", ("spec", "resources", "requests", "storage"), False),
        ("v1", "Pod", ("spec", "containers", 1, "image"), True),
        ("v1", "Pod", ("metadata", "labels", "a"), False),
        ("v1", "ConfigMap", ("data", "a"), True),
        ("v1", "Secret", ("data", "a"), True),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", ("roleRef", "name"), True),
        ("storage.k8s.io/v1", "StorageClass", ("parameters", "x"), True),
        ("example.com/v1", "Deployment", ("spec", "selector"), False),
    ],
)
def test_immutable_fields_replace(api_version: str, kind: str, path: tuple[str | int, ...], replaces: bool) -> None:
    patterns = replacing_fields(
        {"apiVersion": api_version, "kind": kind}, mutable_secrets=False, mutable_config_maps=False
    )
    assert forces_replacement(path, "new", patterns) is replaces


def test_a_change_above_an_immutable_field_replaces_if_it_holds_it() -> None:
    assert forces_replacement(("spec",), {"selector": {}}, (".spec.selector",))
    assert not forces_replacement(("spec",), {"replicas": 1}, (".spec.selector",))
    assert forces_replacement(("spec", "containers"), [{"image": "x"}], (".spec.containers[*].image",))


def test_config_maps_and_secrets_change_in_place_where_that_is_switched_on() -> None:
    for kind in ("ConfigMap", "Secret"):
        obj: dict[str, Any] = {"apiVersion": "v1", "kind": kind}
        loose = replacing_fields(obj, mutable_secrets=True, mutable_config_maps=True)
        assert not forces_replacement(("data", "a"), "x", loose)
        fixed = replacing_fields({**obj, "immutable": True}, mutable_secrets=True, mutable_config_maps=True)
        assert forces_replacement(("data", "a"), "x", fixed)


def test_lists_and_patches_are_reported_by_their_type() -> None:
    assert is_list(GroupVersionKind("apps", "v1", "DeploymentList"))
    assert not is_list(GroupVersionKind("example.com", "v1", "AllowList"))
    assert is_patch("kubernetes:core/v1:ConfigMapPatch", "ConfigMap")
    assert not is_patch("kubernetes:example.com/v1:JSONPatch", "JSONPatch")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (2, "2"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("1000k", "1M"),
        ("0Gi", "0"),
        ("100n", "100n"),
        ("8", "8"),
        ("lots", "lots"),
        (True, True),
    ],
)
def test_quantities_are_spelt_as_the_server_spells_them(written: Any, kept: Any) -> None:
    assert canonical_quantity(written) == kept


def test_normalizing_a_workload() -> None:
    obj = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "creationTimestamp": None, "uid": "x", "labels": {}},
        "spec": {
            "template": {
                "metadata": {"creationTimestamp": None},
                "spec": {
                    "hostNetwork": False,
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{"resources": {"requests": {"cpu": "1000m"}}, "env": []}],
                },
            }
        },
    }
    result = normalize(obj)
    assert result["metadata"] == {"name": "a"}
    assert result["spec"]["template"] == {
        "metadata": {},
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        },
    }
    assert "uid" in obj["metadata"], "the argument stays as it was"


def policy(*, name: str = "networking.k8s.io/v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": name, "kind": "NetworkPolicy", "spec": {"podSelector": {}, **spec}}


def test_built_in_kinds_lose_unknown_fields_and_empty_lists_before_anything_is_compared_or_sent() -> None:
    assert normalize(policy(ingress=[], policyTyp=["Ingress"])) == policy()
    rule = {"ports": [{"port": 80, "colour": "red"}], "from": [{"podSelector": {}, "namespaceSelector": {}}]}
    assert normalize(policy(ingress=[rule])) == policy(ingress=[{**rule, "ports": [{"port": 80}]}])
    custom = policy(name="example.com/v1", ingress=[], policyTyp=["Ingress"])
    assert normalize(custom) == custom


def test_normalizing_leaves_custom_objects_alone() -> None:
    spec: dict[str, Any] = {"requests": {"cpu": "1000m"}, "nothing": None, "env": []}
    assert normalize({"apiVersion": "example.com/v1", "kind": "X", "spec": spec})["spec"] == spec


def test_text_of_a_secret_becomes_encoded_data() -> None:
    result = normalize(
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA=="}, "stringData": {"b": "y", "c": UNKNOWN}}
    )
    assert result == {"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA==", "b": "eQ==", "c": UNKNOWN}}


def test_only_fields_that_were_asked_for_are_compared() -> None:
    live = {"spec": {"replicas": 1, "default": "x", "list": [{"a": 1, "b": 2}, {"a": 3}]}, "status": {}}
    assert prune(live, {"spec": {"replicas": 9, "list": [{"a": 0}]}}) == {"spec": {"replicas": 1, "list": [{"a": 1}]}}


def test_a_refresh_keeps_zero_values_that_the_server_does_not_repeat() -> None:
    inputs = {"spec": {"hostIPC": False, "image": "x", "containers": [{"tty": False, "name": "c"}]}}
    pruned = {"spec": {"containers": [{"name": "c"}]}}
    assert keep_zero_values(pruned, inputs) == {"spec": {"hostIPC": False, "containers": [{"name": "c", "tty": False}]}}
