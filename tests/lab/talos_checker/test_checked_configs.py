"""Talos's own libraries on the configs that `talos/` makes: every kind, whole sites, planted mistakes, its bases."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from talos.cluster import MachineSettings
from talos.documents.contract import V1_13
from talos.documents.document import Document, Wire
from talos.documents.rendering import render
from talos.documents.v1alpha1 import Install
from talos.machine_config import MachineConfig
from talos.machines import machine_configs
from tests.lab.talos_checker.checking import Checker, filled
from tests.unit.talos import talos_examples as examples
from tests.unit.talos import talos_sites as sites
from tests.unit.talos.talos_mistakes import MISTAKES as MISTAKES_OF_DOCUMENTS

INSTALL = Install(disk="/dev/sda", image=examples.INSTALLER)


def worker_with(*documents: Document) -> str:
    return MachineConfig(documents=(examples.plain_cluster().worker(INSTALL), *documents)).render()


def test_every_kind_is_valid(checker: Checker) -> None:
    documents = examples.all_documents()
    answers = checker.validate(*map(worker_with, documents))
    assert [(document.kind, answer["errors"]) for document, answer in zip(documents, answers, strict=True)] == [
        (document.kind, []) for document in documents
    ]


def test_every_kind_of_the_contract_is_known_to_talos(checker: Checker) -> None:
    kinds = sorted(V1_13.kinds - {"v1alpha1"})
    texts = [f"apiVersion: v1alpha1\nkind: {kind}\n" for kind in (*kinds, "KubeletConfig")]
    *known, unknown = checker.validate(*texts)
    assert "not registered" in str(unknown["errors"])
    assert [kind for kind, answer in zip(kinds, known, strict=True) if "not registered" in str(answer["errors"])] == []


def test_whole_configs_are_valid(checker: Checker) -> None:
    configs = (
        examples.control_plane_config(),
        examples.hgx_config(),
        examples.hgx_config(examples.hgx_profile("v2")),
        MachineConfig(documents=(examples.plain_cluster().control_plane(INSTALL),)),
        MachineConfig(documents=(examples.plain_cluster().worker(INSTALL), *examples.all_documents())),
    )
    for answer in checker.validate(*(config.render() for config in configs)):
        assert answer["errors"] == answer["warnings"] == []


def test_every_machine_of_a_whole_site_is_valid(checker: Checker) -> None:
    configs = machine_configs(sites.reference_site())
    answers = checker.validate(*(config.decode() for config in configs.values()))
    assert {name: answer["errors"] for name, answer in zip(configs, answers, strict=True)} == {
        name: [] for name in configs
    }


def test_what_our_own_checks_refuse_talos_refuses_too(checker: Checker) -> None:
    """Save where Talos takes what then does not work, which each mistake of ours says of itself."""
    base = examples.plain_cluster().worker(INSTALL).document()
    answers = checker.validate(
        *(render([base, mistake.document.document()]) for mistake in MISTAKES_OF_DOCUMENTS.values())
    )
    refused = {what for what, answer in zip(MISTAKES_OF_DOCUMENTS, answers, strict=True) if not answer["ok"]}
    assert refused == {what for what, mistake in MISTAKES_OF_DOCUMENTS.items() if mistake.by_talos}


def changed(change: Change, original: MachineConfig | None = None) -> str:
    """The HGX config, or another, with every kind of document and one mistake planted past our own checks."""
    config = original or examples.hgx_config()
    documents = copy.deepcopy(config.wire()) + [document.document() for document in examples.all_documents()]
    by_kind = {(document.get("kind", "v1alpha1"), str(document.get("name", ""))): document for document in documents}
    change(by_kind)
    return render(list(by_kind.values()))


Change = Callable[[dict[tuple[str, str], Wire]], object]

MISTAKES: dict[str, tuple[Change, str]] = {
    "wrong field of the machine": (
        lambda config: config["v1alpha1", ""]["machine"].update(nodeLabel={}),
        "unknown keys found",
    ),
    "wrong field of a document": (lambda config: config["BondConfig", "bond0"].update(bondmode="x"), "unknown keys"),
    "wrong CEL in a disk selector": (
        lambda config: config["UserVolumeConfig", "longhorn-0"]["provisioning"]["diskSelector"].update(
            match="disk.colour == 'red'"
        ),
        "undefined field 'colour'",
    ),
    "CEL that is no condition": (
        lambda config: config["RawVolumeConfig", "longhorn-v2"]["provisioning"]["diskSelector"].update(
            match="disk.size"
        ),
        "output type is uint, expected bool",
    ),
    "wrong enumeration": (
        lambda config: config["BondConfig", "bond0"].update(bondMode="802.3"),
        "802.3 does not belong to BondMode values",
    ),
    "VLAN out of range": (lambda config: config["VLANConfig", "bond0.30"].update(vlanID=4095), "vlanID"),
    "bond without links": (lambda config: config["BondConfig", "bond0"].update(links=[]), "at least one link"),
    "two keys in one slot": (
        lambda config: [key.update(slot=0) for key in config["VolumeConfig", "EPHEMERAL"]["encryption"]["keys"]],
        "duplicate key slot",
    ),
    "provisioning of STATE": (
        lambda config: config["VolumeConfig", "STATE"].update(provisioning={"minSize": "1GiB"}),
        "not allowed",
    ),
    "taint with a wrong effect": (
        lambda config: config["v1alpha1", ""]["machine"].update(nodeTaints={"nvidia.com/gpu": "present:Never"}),
        "taint",
    ),
    "no install disk": (
        lambda config: config["v1alpha1", ""]["machine"].update(install={"wipe": False}),
        "install disk",
    ),
    "a CA's key on a worker": (
        lambda config: config["v1alpha1", ""]["machine"]["ca"].update(key="c2VjcmV0"),
        "not allowed on non-controlplane",
    ),
    "kernel log over a wrong scheme": (
        lambda config: config["KmsgLogConfig", "site"].update(url="http://logs:1"),
        "scheme must be tcp",
    ),
    "too short a watchdog": (lambda config: config["WatchdogTimerConfig", ""].update(timeout="1s"), "minimum value"),
    "registry CA that is none": (
        lambda config: config["RegistryTLSConfig", "registry.site.example"].update(ca="none"),
        "PEM-encoded",
    ),
    "no v1alpha1 at all": (lambda config: config.pop(("v1alpha1", "")), "v1alpha1 document is missing"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_goes_red(checker: Checker, mistake: str) -> None:
    change, reason = MISTAKES[mistake]
    [answer] = checker.validate(changed(change))
    assert not answer["ok"]
    assert reason in " ".join(answer["errors"])


def test_a_wrong_cni_goes_red(checker: Checker) -> None:
    """On a control plane; of workers Talos does not ask it."""
    text = changed(
        lambda config: config["v1alpha1", ""]["cluster"]["network"].update(cni={"name": "cilium"}),
        examples.control_plane_config(),
    )
    [answer] = checker.validate(text)
    assert "cni name should be one of" in str(answer["errors"])


def test_the_unchanged_config_of_the_mistakes_is_valid(checker: Checker) -> None:
    [answer] = checker.validate(changed(len))
    assert answer["errors"] == []


def test_a_document_twice_goes_red(checker: Checker) -> None:
    text = examples.hgx_config().render()
    hostname = "---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n"
    [answer] = checker.validate(text + hostname)
    assert "not allowed to appear more than once" in str(answer["errors"]) or "duplicate" in str(answer["errors"])


def base(cluster_config: MachineConfig) -> dict[str, Wire]:
    return {document.get("kind", "v1alpha1"): document for document in cluster_config.wire()}


def golden(checker: Checker, name: str, endpoint: str, *options: str) -> dict[str, dict[str, Wire]]:
    bundle = checker.file("secrets.yaml", examples.bundle().export())
    arguments = ["golden", "--secrets", bundle, "--cluster", name, "--endpoint", endpoint, "--kubernetes", "1.36.3"]
    done = checker.run(*arguments, "--install-disk", "/dev/sda", "--install-image", examples.INSTALLER, *options)
    assert done.returncode == 0, done.stderr
    return {
        role: {document.get("kind", "v1alpha1"): document for document in yaml.safe_load_all(text)}
        for role, text in json.loads(done.stdout).items()
    }


@pytest.mark.parametrize("role", ["controlplane", "worker"])
def test_a_plain_cluster_is_what_talos_itself_generates(checker: Checker, role: str) -> None:
    cluster = examples.plain_cluster()
    theirs = golden(checker, cluster.name, cluster.endpoint)[role]
    ours = base(
        MachineConfig(
            documents=(cluster.control_plane(INSTALL) if role == "controlplane" else cluster.worker(INSTALL),)
        )
    )
    # The host's name is each site's own; Talos's base has it made up by the machine.
    assert theirs.pop("HostnameConfig") == {"apiVersion": "v1alpha1", "kind": "HostnameConfig", "auto": "stable"}
    assert filled(ours) == filled(theirs)


def test_a_site_differs_from_talos_in_what_it_chose_alone(checker: Checker) -> None:
    cluster = examples.site_cluster()
    theirs = golden(checker, cluster.name, cluster.endpoint)["controlplane"]["v1alpha1"]
    ours = base(MachineConfig(documents=(cluster.control_plane(INSTALL),)))["v1alpha1"]
    assert differences(filled(theirs), filled(ours)) == {
        "cluster.network.cni.name",
        "cluster.network.podSubnets",
        "cluster.network.serviceSubnets",
        "cluster.proxy.disabled",
        "cluster.apiServer.certSANs",
        "cluster.etcd.advertisedSubnets",
        "cluster.inlineManifests",
        "cluster.discovery.enabled",
        "cluster.discovery.registries.kubernetes.disabled",
    }


def differences(left: Any, right: Any, path: str = "") -> set[str]:
    if isinstance(left, dict) or isinstance(right, dict):
        left, right = (side if isinstance(side, dict) else {} for side in (left, right))
        paths = ((name, f"{path}.{name}".lstrip(".")) for name in left.keys() | right.keys())
        return {
            difference for name, below in paths for difference in differences(left.get(name), right.get(name), below)
        }
    return set() if left == right else {path}


def test_settings_of_a_role_reach_the_config(checker: Checker) -> None:
    settings = MachineSettings(kubelet_config={"maxPods": 250}, udev_rules=('SUBSYSTEM=="infiniband"',))
    worker = examples.plain_cluster().worker(INSTALL, settings)
    [answer] = checker.validate(MachineConfig(documents=(worker,)).render())
    assert answer["errors"] == []
    assert worker.document()["machine"]["kubelet"]["extraConfig"] == {"maxPods": 250}


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["validate"], ["validate", "--no-such-flag"]])
def test_a_wrong_question_is_answered_with_the_usage(checker: Checker, arguments: list[str]) -> None:
    done = checker.run(*arguments)
    assert done.returncode == 2
    assert "usage: talos-checker" in done.stderr


def test_a_file_that_is_not_there_is_an_answer(checker: Checker) -> None:
    done = checker.run("validate", "/nowhere.yaml")
    assert json.loads(done.stdout)["ok"] is False
    assert done.returncode == 1


def test_it_says_the_version_that_is_pinned(checker: Checker) -> None:
    assert checker.run("version").stdout.strip().startswith(V1_13.name + ".")
