"""Patches: order, the merge's rules, deletions, and errors that name patch and path but quote no value."""

from __future__ import annotations

from typing import Any

import pytest

from talos.documents import network
from talos.documents.document import Wire
from talos.documents.patches import Level, Patch, apply_patches, parse_patch
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.machine_config import MachineConfig
from tests.unit.talos import talos_examples as examples

CANARY = examples.CANARY


def base() -> list[Wire]:
    return [
        {
            "version": "v1alpha1",
            "machine": {
                "type": "worker",
                "certSANs": ["a"],
                "sysctls": {"one": "1"},
                "install": {"disk": "/dev/sda", "wipe": False},
                "kernel": {"modules": [{"name": "nvidia"}, {"name": "loop"}]},
            },
            "cluster": {"network": {"podSubnets": ["10.244.0.0/16"]}, "apiServer": {"extraArgs": {"v": "2"}}},
        },
        {"apiVersion": "v1alpha1", "kind": "LinkConfig", "name": "eth0", "mtu": 1500},
    ]


def patched(*texts: str, level: Level = "cluster") -> list[Wire]:
    return apply_patches(base(), [parse_patch(f"p{at}", level, text) for at, text in enumerate(texts)])


def machine(*texts: str) -> Wire:
    section: Wire = patched(*texts)[0]["machine"]
    return section


def test_cluster_then_role_then_node_whatever_the_order_given() -> None:
    levels: tuple[Level, ...] = ("node", "cluster", "role")
    patches = [
        Patch(name=level, level=level, documents=({"machine": {"sysctls": {"who": level}, "certSANs": [level]}},))
        for level in levels
    ]
    result = apply_patches(base(), patches)[0]["machine"]
    assert result["sysctls"]["who"] == "node"
    assert result["certSANs"] == ["a", "cluster", "role", "node"]


def test_mappings_merge_lists_append_and_scalars_win() -> None:
    result = machine("machine: {sysctls: {two: '2', one: '3'}, certSANs: [b], install: {wipe: true}}")
    assert result["sysctls"] == {"one": "3", "two": "2"}
    assert result["certSANs"] == ["a", "b"]
    assert result["install"] == {"disk": "/dev/sda", "wipe": True}


def test_some_places_replace() -> None:
    text = "cluster: {network: {podSubnets: [10.9.0.0/16]}, apiServer: {extraArgs: {v: '4', w: '1'}}}"
    cluster = patched(text)[0]["cluster"]
    assert cluster["network"]["podSubnets"] == ["10.9.0.0/16"]
    assert cluster["apiServer"]["extraArgs"] == {"v": "4", "w": "1"}


def test_documents_are_found_by_kind_and_name() -> None:
    result = patched("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: 9000\n---\nmachine: {certSANs: [z]}")
    assert result[1]["mtu"] == 9000
    assert result[0]["machine"]["certSANs"] == ["a", "z"]
    added = patched("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth1\nmtu: 9000")
    assert [document.get("name") for document in added] == [None, "eth0", "eth1"]


def test_deletions_take_fields_elements_and_documents() -> None:
    assert "sysctls" not in machine("machine: {sysctls: {$patch: delete}}")
    result = machine("machine: {kernel: {modules: [{name: loop, $patch: delete}, {name: nvidia_uvm}]}}")
    assert result["kernel"]["modules"] == [{"name": "nvidia"}, {"name": "nvidia_uvm"}]
    assert len(patched("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n$patch: delete")) == 1


def test_an_image_rule_of_the_same_glob_is_replaced() -> None:
    rules: list[Any] = [{"image": "*", "deny": True}, {"image": "a/*", "skip": True}]
    document = {"apiVersion": "v1alpha1", "kind": "ImageVerificationConfig", "rules": rules}
    patch = parse_patch(
        "p", "node", "apiVersion: v1alpha1\nkind: ImageVerificationConfig\nrules: [{image: '*', skip: true}]"
    )
    [result] = apply_patches([document], [patch])
    assert result["rules"] == [{"image": "*", "skip": True}, {"image": "a/*", "skip": True}]


def test_what_is_patched_stays_as_it_was() -> None:
    before = base()
    apply_patches(before, [parse_patch("p", "node", "machine: {certSANs: [b], kernel: {modules: [{name: x}]}}")])
    assert before == base()


@pytest.mark.parametrize(
    ("text", "path", "what"),
    [
        (f"machine: {{sysctls: [{CANARY}]}}", "machine.sysctls", "a list cannot be merged into a mapping"),
        (f"machine: {{certSANs: {CANARY}}}", "machine.certSANs", "a text cannot be merged into a list"),
        (f"machine: {{install: {{wipe: {CANARY}}}}}", "machine.install.wipe", "into a truth value"),
        ("machine: {install: {disk: ''}}", "machine.install.disk", "empty value"),
        ("machine: {sysctls: null}", "machine.sysctls", "null"),
        ("machine: {nodeLabels: {$patch: delete}}", "machine.nodeLabels", "nothing to delete"),
        (f"machine: {{sysctls: {{$patch: delete, x: {CANARY}}}}}", "machine.sysctls", "beside other fields"),
        ("machine: {new: {below: {$patch: delete}}}", "machine.new.below", "nothing to delete"),
        (
            f"machine: {{kernel: {{modules: [{{name: {CANARY}, $patch: delete}}]}}}}",
            "machine.kernel.modules.[0]",
            "no element has this name",
        ),
        ("machine: {kernel: {modules: [{$patch: delete}]}}", "machine.kernel.modules.[0]", "its element"),
        ("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth9\n$patch: delete", "LinkConfig eth9", "no such document"),
        ("$patch: delete", "v1alpha1", "no machine boots"),
    ],
)
def test_a_patch_that_does_not_work_is_an_error_with_its_name_and_path(text: str, path: str, what: str) -> None:
    with pytest.raises(ConfigError) as failure:
        apply_patches(base(), [parse_patch("site-patch", "role", text)])
    assert "patch site-patch (role)" in failure.value.what
    assert path in failure.value.what
    assert what in failure.value.what
    assert CANARY not in str(failure.value)


@pytest.mark.parametrize("text", [f"machine: [{CANARY}", f"{CANARY}", "", "- a"])
def test_text_that_is_no_patch_is_an_error_without_the_text(text: str) -> None:
    with pytest.raises(ConfigError, match="patch site-patch") as failure:
        parse_patch("site-patch", "node", text)
    assert CANARY not in str(failure.value)


def test_a_patch_may_add_kinds_of_the_contract_alone() -> None:
    worker = examples.plain_cluster().worker(Install(disk="/dev/sda"))
    good = parse_patch("p", "node", "apiVersion: v1alpha1\nkind: ZswapConfig\nmaxPoolPercent: 10")
    assert "ZswapConfig" in MachineConfig(documents=(worker,), patches=(good,)).render()
    later = parse_patch("p", "node", "apiVersion: v1alpha1\nkind: KubeletConfig\nimage: x")
    with pytest.raises(ConfigError, match=r"contract v1\.13 has no document kind KubeletConfig"):
        MachineConfig(documents=(worker,), patches=(later,)).render()


def test_patches_of_typed_documents_meet_the_same_rules() -> None:
    worker = examples.plain_cluster().worker(Install(disk="/dev/sda"))
    rename = parse_patch("p", "node", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: hgx-2")
    config = MachineConfig(documents=(worker, network.HostnameConfig(hostname="hgx-1")), patches=(rename,))
    assert config.wire()[1]["hostname"] == "hgx-2"
