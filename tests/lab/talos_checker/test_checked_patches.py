"""Patches mean here what they mean to Talos, and what Talos ignores is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from talos.documents.document import Wire
from talos.documents.patches import Patch, apply_patches, parse_patch
from talos.documents.problems import ConfigError
from talos.machine_config import MachineConfig
from tests.lab.talos_checker.checking import Checker, filled
from tests.unit.talos import talos_examples as examples

PATCHES: dict[str, str] = {
    "maps merge": "machine: {sysctls: {vm.swappiness: '1'}, nodeLabels: {a: b}}",
    "lists append": "machine: {certSANs: [10.9.9.9], kernel: {modules: [{name: nvidia}]}}",
    "subnets replace": "cluster: {network: {podSubnets: [10.100.0.0/16]}}",
    "audit policy replaces": "cluster: {apiServer: {auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy}}}",
    "admission control by name": """
cluster:
  apiServer:
    admissionControl: [{name: PodSecurity, configuration: {exemptions: {namespaces: [gpu-operator]}}}]
""",
    "arguments replace": "cluster: {apiServer: {extraArgs: {v: '4', feature-gates: [A=true]}}}",
    "false over true": "machine: {features: {kubePrism: {enabled: false}}}",
    "field deleted": "cluster: {proxy: {disabled: {$patch: delete}}}",
    "element deleted": "cluster: {inlineManifests: [{name: cilium, $patch: delete}]}",
    "document deleted": "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: node-ports\n$patch: delete",
    "document added": "apiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 10.0.0.1}]",
    "document merged": "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: cp-9",
    "sources of a rule replace": """
apiVersion: v1alpha1
kind: NetworkRuleConfig
name: kubernetes-api
portSelector: {ports: [6443, 8443], protocol: tcp}
ingress: [{subnet: 10.2.0.0/24}]
""",
}


@pytest.mark.parametrize("case", PATCHES)
def test_patches_mean_what_they_mean_to_talos(checker: Checker, case: str) -> None:
    config = examples.control_plane_config()
    patch_file = checker.file("patch.yaml", PATCHES[case])
    done = checker.run("patch", "--config", checker.file("config.yaml", config.render()), patch_file)
    assert done.returncode == 0, done.stderr
    theirs = [document for document in yaml.safe_load_all(json.loads(done.stdout)["config"]) if document]
    patch = Patch(name=case, level="cluster", documents=tuple(yaml.safe_load_all(PATCHES[case])))
    ours = apply_patches(config.wire(), [patch])
    assert ours != config.wire()
    assert by_identity(ours) == by_identity(theirs)


def by_identity(documents: list[Wire]) -> dict[tuple[str, str], Any]:
    return {(str(document.get("kind")), str(document.get("name"))): filled(document) for document in documents}


QUIETLY_IGNORED = {
    "empty text over a set one": "machine: {install: {image: ''}}",
    "null": "machine: {sysctls: null}",
    "zero over a number": "machine: {features: {kubePrism: {port: 0}}}",
}


@pytest.mark.parametrize("case", QUIETLY_IGNORED)
def test_what_talos_ignores_is_an_error_here(checker: Checker, case: str) -> None:
    config = examples.control_plane_config()
    patch_file = checker.file("patch.yaml", QUIETLY_IGNORED[case])
    done = checker.run("patch", "--config", checker.file("config.yaml", config.render()), patch_file)
    theirs = [document for document in yaml.safe_load_all(json.loads(done.stdout)["config"]) if document]
    assert by_identity(theirs) == by_identity(config.wire())
    with pytest.raises(ConfigError, match="patch ignored"):
        apply_patches(config.wire(), [parse_patch("ignored", "cluster", QUIETLY_IGNORED[case])])


@pytest.mark.parametrize("case", PATCHES)
def test_a_patched_config_is_valid(checker: Checker, case: str) -> None:
    patch = Patch(name=case, level="node", documents=tuple(yaml.safe_load_all(PATCHES[case])))
    original = examples.control_plane_config()
    [answer] = checker.validate(MachineConfig(documents=original.documents, patches=(patch,)).render())
    assert answer["errors"] == []
