"""Fields of a site's objects that others have set: named with their manager, and taken back by a command.

after_kubectl.json was recorded on a lab after `kubectl set env`, `patch`, `scale`, `label`, `annotate` and
`rollout restart`: the objects in the engine's state, and the same in the cluster.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import previews
from floor.metadata import FIELD_MANAGER, PROTECTED
from sitectl.change.field_owners import ForeignField, ForeignFields, foreign_fields
from sitectl.change.known_writers import KNOWN_WRITERS
from sitectl.shell.errors import Exit
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = pytest.mark.row("opening 13")

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = json.loads((FIXTURES / "managed_fields" / "after_kubectl.json").read_text())
STACK = "inference-platform-lab"
PICKER = "Deployment inference-models/qwen3-32b-epp"


def recorded() -> dict[str, ForeignFields]:
    return {
        entry_of.resource: entry_of for entry_of in foreign_fields(RECORDED["declared"], RECORDED["live"], stack="lab")
    }


def operations(command: str) -> Any:
    """The JSON patch of a kubectl command."""
    (patch,) = (word for word in shlex.split(command) if word.startswith("--patch="))
    return json.loads(patch.removeprefix("--patch="))


def test_fields_are_named_with_their_managers() -> None:
    assert {
        name: [(field.path, field.manager) for field in foreign.fields] for name, foreign in recorded().items()
    } == {
        "Deployment inference-models/glm-5-1-epp": [("metadata.labels[example.com/team]", "kubectl-label")],
        PICKER: [
            ("spec.replicas", "kubectl"),
            ("spec.revisionHistoryLimit", "kubectl-patch"),
            ("spec.template.spec.containers[epp].env[DEBUG]", "kubectl-set"),
        ],
        "SecurityPolicy inference-gateway/tenants": [("metadata.annotations.note", "kubectl-annotate")],
        "Service inference-models/qwen3-32b-epp": [("spec.ports[9999, TCP]", "kubectl-patch")],
    }


def test_what_the_program_declares_comes_back_by_up_and_the_rest_by_kubectl() -> None:
    """By kubectl first: the update of `up` would remove it too, and the patch fail."""
    by_kubectl, by_up = recorded()[PICKER].take_back
    assert by_up == "pulumi up --refresh --stack lab"
    assert shlex.split(by_kubectl)[:5] == [
        *("kubectl", "patch", "deployment.apps/qwen3-32b-epp", "--namespace=inference-models", "--type=json")
    ]
    env = "/spec/template/spec/containers/0"
    assert operations(by_kubectl) == [
        {"op": "test", "path": f"{env}/name", "value": "epp"},
        {"op": "test", "path": f"{env}/env/2/name", "value": "DEBUG"},
        {"op": "remove", "path": f"{env}/env/2"},
        {"op": "remove", "path": "/spec/revisionHistoryLimit"},
    ]


def test_a_default_that_comes_back_is_not_kubectls_and_the_front_door_knows_the_stack() -> None:
    foreign = recorded()
    assert "--field-manager=pulumi-kubernetes" in shlex.split(foreign[PICKER].take_back[0])
    (door,) = foreign["SecurityPolicy inference-gateway/tenants"].take_back
    assert f"--field-manager={STACK}" in shlex.split(door)


def test_the_order_of_objects_and_entries_does_not_matter() -> None:
    live = copy.deepcopy(RECORDED["live"])[::-1]
    for live_object in live:
        live_object["metadata"]["managedFields"].reverse()
    assert foreign_fields(RECORDED["declared"][::-1], live, stack="lab") == list(recorded().values())


def entry(manager: str, fields: Mapping[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": fields, **more}


def look(
    spec: Mapping[str, Any], *entries: Mapping[str, Any], declared: Any = None, **more: Any
) -> list[ForeignFields]:
    """Of one object; `declared` is what the program declares in addition to its metadata."""
    annotations = {FIELD_MANAGER: STACK}
    body = {
        "apiVersion": "v1",
        "kind": more.pop("kind", "Service"),
        "metadata": {"name": "x", "annotations": annotations},
    }
    meta = {**body["metadata"], "managedFields": [*entries], **more}
    return foreign_fields([{**body, **(declared or {})}], [{**body, "metadata": meta, **spec}], stack="berlin")


def test_items_of_a_list_go_from_the_last_one_on() -> None:
    """A removal moves what is behind it."""
    keys: dict[str, Any] = {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, "f:value": {}} for name in "bcd"}
    items = [{"name": name, "value": "1"} for name in "abcd"]
    (foreign,) = look({"spec": {"env": items}}, entry("someone", {"f:spec": {"f:env": keys}}))
    assert [field.path for field in foreign.fields] == ["spec.env[b]", "spec.env[c]", "spec.env[d]"]
    removed = [operation["path"] for operation in operations(foreign.take_back[0]) if operation["op"] == "remove"]
    assert removed == ["/spec/env/3", "/spec/env/2", "/spec/env/1"]


@pytest.mark.parametrize("count", [12, 101])
def test_places_are_numbers_not_texts(count: int) -> None:
    items = [f"item-{number}" for number in range(count)]
    fields: dict[str, Any] = {f'v:"{item}"': {} for item in items}
    (foreign,) = look({"metadata_like": items}, entry("someone", {"f:metadata_like": fields}))
    removed = [operation["path"] for operation in operations(foreign.take_back[0]) if operation["op"] == "remove"]
    assert removed == [f"/metadata_like/{place}" for place in reversed(range(count))]


def test_a_field_that_the_program_owns_too_is_no_drift() -> None:
    fields: dict[str, Any] = {"f:spec": {"f:type": {}}}
    ours = {**entry(STACK, fields), "operation": "Apply"}
    assert look({"spec": {"type": "ClusterIP"}}, ours, entry("argocd", fields)) == []
    assert look({"spec": {"type": "ClusterIP"}}, entry("pulumi-kubernetes", fields), entry("argocd", fields)) == []


def test_a_key_in_a_secret_is_removed_and_then_up_puts_back_what_it_declares() -> None:
    """Which keys a Secret has, only the engine can tell: `up` leaves the key of others that it does not know."""
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:..."}
    theirs = entry("kubectl-edit", {"f:data": {"f:acme.laptop": {}}})
    (foreign,) = look({"data": {"acme.laptop": "eA=="}}, theirs, declared={"stringData": secret}, kind="Secret")
    removal, up = foreign.take_back
    assert operations(removal) == [{"op": "remove", "path": "/data/acme.laptop"}]
    assert up == "pulumi up --refresh --stack berlin"
    (foreign,) = look({"data": {"acme.laptop": "eA=="}}, theirs, declared={"stringData": {"other": "1"}}, kind="Secret")
    assert foreign.take_back[0].startswith("kubectl patch secret/x ")
    assert "eA==" not in str(foreign)


def test_an_immutable_secret_in_the_place_of_ours_is_deleted_before_up() -> None:
    """No patch changes it: whoever added a key has made it again."""
    theirs = entry("kubectl-create", {"f:data": {".": {}, "f:evil": {}}, "f:immutable": {}})
    body = {"data": {"evil": "eA=="}, "immutable": True}
    (foreign,) = look(body, theirs, declared={"stringData": {"a": "1"}, "immutable": True}, kind="Secret")
    assert foreign.take_back == ("kubectl delete secret/x", "pulumi up --refresh --stack berlin")


def test_an_object_that_is_not_ours_or_not_there_is_not_looked_at() -> None:
    assert foreign_fields(RECORDED["declared"], [], stack="lab") == []
    assert foreign_fields([], RECORDED["live"], stack="lab") == []


@pytest.mark.parametrize(
    ("kind", "manager", "fields", "subresource"),
    [
        ("Deployment", "kube-controller-manager", {"f:status": {"f:replicas": {}}}, "status"),
        ("Gateway", "some-controller", {"f:status": {"f:addresses": {}}}, ""),
        ("Deployment", "kube-controller-manager", {"f:spec": {"f:replicas": {}}}, "scale"),
        (
            "ValidatingWebhookConfiguration",
            "cainjector",
            {"f:webhooks": {'k:{"name":"a"}': {"f:clientConfig": {"f:caBundle": {}}}}},
            "",
        ),
        ("PersistentVolumeClaim", "kube-scheduler", {"f:spec": {"f:volumeName": {}}}, ""),
        ("GatewayClass", "envoy-gateway", {"f:metadata": {"f:finalizers": {".": {}, 'v:"held"': {}}}}, ""),
    ],
)
def test_controllers_own_writes_are_no_drift(kind: str, manager: str, fields: dict[str, Any], subresource: str) -> None:
    body = {
        "status": {"replicas": 1, "addresses": []},
        "spec": {"replicas": 3, "volumeName": "pv-1"},
        "webhooks": [{"name": "a", "clientConfig": {"caBundle": "x"}}],
    }
    more = {"subresource": subresource} if subresource else {}
    assert look(body, entry(manager, fields, **more), kind=kind, finalizers=["held"]) == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"f:spec": {"f:replicas": {}}}, "spec.replicas"),
        ({"f:metadata": {"f:finalizers": {".": {}, 'v:"held"': {}}}}, "metadata.finalizers[held]"),
    ],
)
def test_the_same_by_kubectl_is_drift(fields: dict[str, Any], path: str) -> None:
    (foreign,) = look({"spec": {"replicas": 3}}, entry("kubectl", fields), kind="Deployment", finalizers=["held"])
    assert foreign.fields == (ForeignField(path=path, manager="kubectl"),)


def test_each_known_writer_has_a_reason_and_valid_patterns() -> None:
    for known in KNOWN_WRITERS:
        assert known.why
        for pattern in (known.manager, known.kind, known.field):
            re.compile(pattern)


def test_protected_objects_are_those_of_the_front_door() -> None:
    theirs = entry("kubectl", {"f:spec": {"f:x": {}}})
    (foreign,) = look({"spec": {"x": 1}}, theirs, labels=dict(PROTECTED))
    assert f"--field-manager={STACK}" in foreign.take_back[0]


@pytest.fixture
def drifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `pulumi` and `kubectl` answer as a lab did: nothing to change, and fields of others."""
    state = {
        "deployment": {"resources": [{"type": "kubernetes:x:Y", "inputs": inputs} for inputs in RECORDED["declared"]]}
    }
    (tmp_path / "state.json").write_text(json.dumps(state))
    (tmp_path / "live.json").write_text(json.dumps({"items": RECORDED["live"]}))
    (tmp_path / "quiet.json").write_text(kept.text("no-change"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "pulumi": f'case "$*" in *export*) cat {tmp_path}/state.json;; *output*) echo \'"kubeconfig"\';; '
        f"*) cat {tmp_path}/quiet.json;; esac",
        "kubectl": f'test "$(cat "${{1#--kubeconfig=}}")" = kubeconfig && cat {tmp_path}/live.json',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return make_checkout(tmp_path / "project", sites=("lab",))


def test_drift_looks_at_a_site_now(drifted: Path) -> None:
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert shown.status == Exit.REFUSED
    assert "spec.template.spec.containers[epp].env[DEBUG]  set by kubectl-set" in shown.out
    assert all(command in shown.out for command in recorded()[PICKER].take_back)
    record = json.loads(run(drifted, "drift", "--site", "lab", "--json").out)
    assert record["lab"]["foreign"] == json.loads(json.dumps([foreign.record() for foreign in recorded().values()]))


def test_drift_goes_to_code_scanning_and_jobs(drifted: Path) -> None:
    log = json.loads(run(drifted, "drift", "--site", "lab", "--format", "sarif", "--quiet").out)
    results = log["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == ["set-by-others"] * 4
    assert {result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results} == {
        "Pulumi.lab.yaml"
    }
    lines = run(drifted, "drift", "--site", "lab", "--format", "github", "--quiet").out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("::error file=Pulumi.lab.yaml,") for line in lines)


def test_without_foreign_fields_there_is_no_drift(drifted: Path) -> None:
    (drifted.parent / "live.json").write_text(json.dumps({"items": []}))
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert (shown.status, shown.out) == (Exit.OK, "lab: no drift\n")


def test_what_others_set_of_an_object_that_the_site_only_patches_is_theirs(drifted: Path) -> None:
    state = drifted.parent / "state.json"
    state.write_text(state.read_text().replace('"kubernetes:x:Y"', '"kubernetes:x:YPatch"'))
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert (shown.status, shown.out) == (Exit.OK, "lab: no drift\n")


def test_the_nightly_job_keeps_them_for_its_issue(drifted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert previews.main(["--project", str(drifted), "--out", str(folder), "--refresh"], {}) == Exit.OK
    shown = run(drifted, "drift", str(folder), "--dry-run", "--quiet")
    assert shown.status == Exit.OK
    assert "env[DEBUG]  set by kubectl-set" in shown.out
    assert recorded()[PICKER].take_back[0] in shown.out


def test_a_cluster_that_cannot_be_read_is_said(drifted: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "kubectl").write_text("#!/bin/sh\necho 'Unable to connect to the server' >&2; exit 1\n")
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert shown.status == Exit.UNABLE
    assert "kubectl could not list the site's objects: Unable to connect to the server" in shown.err
    (tmp_path / "bin" / "kubectl").chmod(0o644)
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert shown.status == Exit.UNABLE


def test_a_site_whose_cluster_exists_is_read_by_its_own_kubeconfig(drifted: Path) -> None:
    file = drifted / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["inference-platform:site"]["cluster"] = {"kubeconfig": "kubeconfig.lab"}
    file.write_text(yaml.safe_dump(document))
    shown = run(drifted, "drift", "--site", "lab", "--quiet")
    assert shown.status == Exit.UNABLE and "kubeconfig.lab" in shown.err
    (drifted / "kubeconfig.lab").write_text("kubeconfig")
    assert run(drifted, "drift", "--site", "lab", "--quiet").status == Exit.REFUSED


@pytest.mark.parametrize("words", [(), ("out", "--site", "lab"), ("out",)])
def test_what_to_look_at_is_one_of_two(drifted: Path, words: tuple[str, ...]) -> None:
    assert run(drifted, "drift", *words).status == Exit.USAGE
