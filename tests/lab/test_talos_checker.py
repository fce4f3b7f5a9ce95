"""Talos's own libraries on what `talos/` makes: every kind and config, planted mistakes, bases, patches, secrets."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.install import install
from lab.paths import Lab
from talos import secrets, talosconfig
from talos.cluster import MachineSettings
from talos.contract import V1_13
from talos.document import ConfigError, Document, Wire
from talos.machine_config import MachineConfig, render
from talos.patches import Patch, apply_patches, parse_patch
from talos.pki import base64_of
from talos.v1alpha1 import Install
from tests.unit.talos import talos_examples as examples

Answer = dict[str, Any]
INSTALL = Install(disk="/dev/sda", image=examples.INSTALLER)


class Checker:
    """The program, and a folder for what it is asked about."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, timeout=60)

    def answers(self, command: str, *texts: str) -> list[Answer]:
        """What it says of each text, in order."""
        files = [self.file(f"{position:03}.yaml", text) for position, text in enumerate(texts)]
        done = self.run(command, *files)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(texts), done.stderr
        assert done.returncode == (0 if all(each["ok"] for each in answers) else 1)
        return answers

    def validate(self, *texts: str) -> list[Answer]:
        return self.answers("validate", *texts)


@pytest.fixture(scope="module")
def program() -> Path:
    lab = Lab.from_environment()
    install(lab, ["talos-checker"])
    return lab.bin / "talos-checker"


@pytest.fixture
def checker(program: Path, tmp_path: Path) -> Checker:
    return Checker(program, tmp_path)


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


def changed(change: Change, original: MachineConfig | None = None) -> str:
    """The HGX config, or another, with every kind of document and one mistake planted past our own checks."""
    config = original or examples.hgx_config()
    documents = copy.deepcopy(config.wire()) + [each.document() for each in examples.all_documents()]
    by_kind = {(each.get("kind", "v1alpha1"), str(each.get("name", ""))): each for each in documents}
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
    change, said = MISTAKES[mistake]
    [answer] = checker.validate(changed(change))
    assert not answer["ok"]
    assert said in " ".join(answer["errors"])


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
    return {each.get("kind", "v1alpha1"): each for each in cluster_config.wire()}


def filled(value: Any) -> Any:
    """Without what says nothing: empty lists and mappings, and empty texts."""
    if isinstance(value, dict):
        return {name: content for name, each in value.items() if (content := filled(each)) not in ({}, [], None, "")}
    return [filled(each) for each in value] if isinstance(value, list) else value


def golden(checker: Checker, name: str, endpoint: str, *options: str) -> dict[str, dict[str, Wire]]:
    bundle = checker.file("secrets.yaml", examples.bundle().export())
    arguments = ["golden", "--secrets", bundle, "--cluster", name, "--endpoint", endpoint, "--kubernetes", "1.36.3"]
    done = checker.run(*arguments, "--install-disk", "/dev/sda", "--install-image", examples.INSTALLER, *options)
    assert done.returncode == 0, done.stderr
    return {
        role: {each.get("kind", "v1alpha1"): each for each in yaml.safe_load_all(text)}
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
        left, right = (each if isinstance(each, dict) else {} for each in (left, right))
        paths = ((name, f"{path}.{name}".lstrip(".")) for name in left.keys() | right.keys())
        return {each for name, below in paths for each in differences(left.get(name), right.get(name), below)}
    return set() if left == right else {path}


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
    theirs = [each for each in yaml.safe_load_all(json.loads(done.stdout)["config"]) if each]
    patch = Patch(name=case, level="cluster", documents=tuple(yaml.safe_load_all(PATCHES[case])))
    ours = apply_patches(config.wire(), [patch])
    assert ours != config.wire()
    assert by_identity(ours) == by_identity(theirs)


def by_identity(documents: list[Wire]) -> dict[tuple[str, str], Any]:
    return {(str(each.get("kind")), str(each.get("name"))): filled(each) for each in documents}


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
    theirs = [each for each in yaml.safe_load_all(json.loads(done.stdout)["config"]) if each]
    assert by_identity(theirs) == by_identity(config.wire())
    with pytest.raises(ConfigError, match="patch ignored"):
        apply_patches(config.wire(), [parse_patch("ignored", "cluster", QUIETLY_IGNORED[case])])


@pytest.mark.parametrize("case", PATCHES)
def test_a_patched_config_is_valid(checker: Checker, case: str) -> None:
    patch = Patch(name=case, level="node", documents=tuple(yaml.safe_load_all(PATCHES[case])))
    original = examples.control_plane_config()
    [answer] = checker.validate(MachineConfig(documents=original.documents, patches=(patch,)).render())
    assert answer["errors"] == []


def test_our_secrets_are_talos_secrets(checker: Checker) -> None:
    fresh = secrets.generate()
    ours, fixed = checker.answers("secrets-check", fresh.export(), examples.bundle().export())
    assert ours["errors"] == fixed["errors"] == []
    assert ours["keys"] == [
        "etcd: EC PRIVATE KEY",
        "k8s: EC PRIVATE KEY",
        "k8saggregator: EC PRIVATE KEY",
        "os: ED25519 PRIVATE KEY",
        "k8sserviceaccount: RSA PRIVATE KEY",
    ]


def test_talos_secrets_are_ours_and_come_back_unchanged(checker: Checker) -> None:
    text = json.loads(checker.run("secrets-new").stdout)["secrets"]
    assert yaml.safe_load(secrets.load(text).export()) == yaml.safe_load(text)


def spoiled() -> Iterator[tuple[str, str, str]]:
    """(what, bundle, what Talos says) for mistakes in a bundle; our own loader must refuse each too."""
    good = examples.bundle()
    relabelled = good.talos.key.replace("ED25519 PRIVATE KEY", "EC PRIVATE KEY")
    yield "wrong key label", export_with(good, "os", key=relabelled), "certs.os"
    unknown = good.talos.key.replace("ED25519 PRIVATE KEY", "ED25519 KEY")
    yield "unknown key label", export_with(good, "os", key=unknown), "unsupported key type"
    yield "another's key", export_with(good, "etcd", key=good.kubernetes.key), "not the certificate's"
    yield "no certificate", export_with(good, "k8s", crt="none"), "certs.k8s"
    client = talosconfig.issue(good, context="x", endpoints=("10.5.0.11",), entropy=examples.entropy(4))
    yield "no CA", export_with(good, "os", crt=client.certificate, key=client.key), "may not sign"


def export_with(bundle: secrets.SecretsBundle, name: str, **changes: str) -> str:
    content = yaml.safe_load(bundle.export())
    for entry, text in changes.items():
        content["certs"][name][entry] = base64_of(text)
    return yaml.safe_dump(content)


@pytest.mark.parametrize(("what", "text", "said"), list(spoiled()), ids=lambda value: str(value)[:20])
def test_spoiled_secrets_go_red_on_both_sides(checker: Checker, what: str, text: str, said: str) -> None:
    [answer] = checker.answers("secrets-check", text)
    assert said in " ".join(answer["errors"])
    with pytest.raises(ConfigError):
        secrets.load(text)


@pytest.mark.parametrize("role", talosconfig.ROLES)
def test_our_talosconfig_is_accepted_by_talos(checker: Checker, role: talosconfig.Role) -> None:
    issued = talosconfig.issue(
        secrets.generate(key_source()), context="site", endpoints=("10.5.0.11",), nodes=("10.5.0.21",), role=role
    )
    [answer] = checker.answers("talosconfig-check", issued.render())
    assert answer["errors"] == []
    [context] = answer["contexts"]
    assert (context["name"], context["roles"], context["endpoints"], context["nodes"]) == (
        "site",
        [role],
        ["10.5.0.11"],
        ["10.5.0.21"],
    )


def key_source() -> Any:
    return examples.entropy(9)


def test_a_talosconfig_of_another_cluster_goes_red(checker: Checker) -> None:
    issued = talosconfig.issue(examples.bundle(), context="site", endpoints=("10.5.0.11",))
    content = yaml.safe_load(issued.render())
    other = secrets.generate(key_source()).talos.certificate
    content["contexts"]["site"]["ca"] = base64_of(other)
    [answer] = checker.answers("talosconfig-check", yaml.safe_dump(content))
    assert "unknown authority" in str(answer["errors"])


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
