"""Mistakes in documents are found here, before any machine: all at once, with place, value, choices and fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from talos.cluster import MachineSettings
from talos.documents.cel import condition
from talos.documents.document import identity
from talos.documents.network import BondConfig
from talos.documents.problems import ConfigError, ConfigProblem
from talos.documents.v1alpha1 import ClusterNetwork, Install, InstallDisk, KernelModule
from talos.machine_config import MachineConfig
from tests.unit.talos import talos_examples as examples
from tests.unit.talos.talos_mistakes import MISTAKES

INSTALL = Install(disk="/dev/sda")


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_one_problem_with_its_place(what: str) -> None:
    mistake = MISTAKES[what]
    [problem] = mistake.document.problems()
    assert problem.document == identity(mistake.document.document())
    assert problem.place.endswith(f", {mistake.where}")
    assert mistake.refusal in str(problem)
    assert "\n  fix: " in str(problem)
    assert examples.CANARY not in str(problem)


def test_no_example_has_a_problem() -> None:
    assert [list(document.problems()) for document in examples.all_documents()] == [
        [] for _ in examples.all_documents()
    ]


def test_all_mistakes_are_named_at_once() -> None:
    base = examples.plain_cluster().worker(INSTALL)
    bonds = [mistake.document for mistake in MISTAKES.values() if isinstance(mistake.document, BondConfig)]
    named = [replace(bond, name=f"bond{at}") for at, bond in enumerate(bonds)]
    with pytest.raises(ConfigError) as failure:
        MachineConfig(documents=(base, base, *named))
    places = [problem.document for problem in failure.value.problems]
    assert places == [*(("BondConfig", bond.name) for bond in named), ("v1alpha1", "")]
    assert str(failure.value).count("\n  fix: ") == len(places)


def test_a_value_is_quoted_unless_it_may_be_secret() -> None:
    problem = ConfigProblem(
        document=("LinkConfig", "eth0"),
        path=("mtu",),
        what="does not fit",
        got="0",
        allowed="68 to 65535",
        fix="fix it",
    )
    assert str(problem) == "LinkConfig eth0, mtu: does not fit; got 0; allowed: 68 to 65535\n  fix: fix it"
    [secret] = MISTAKES["client key of another form"].document.problems()
    assert secret.got == ""


@pytest.mark.parametrize(
    "expression",
    [
        'disk.transport == "nvme" && !system_disk',
        "disk.size > 3u * TB && disk.size <= 8u * TiB",
        "disk.serial in ['S1', \"S'2\"]",
        "glob('SAMSUNG*', disk.model) && disk.symlinks.exists(link_, link_.startsWith('/dev/disk/by-id/nvme'))",
        "system_disk",
        "disk.rotational",
        "disk.model == 'a = b and (c'",
        "size(disk.secondary_disks) == 0 ? true : false",
        '"SAMSUNG" == disk.model || disk.rotational == false',
        "1e3 in [1.5e+3] || disk.size > 0x10u",
        "disk.symlinks.size() > 0 && 3u * TB < disk.size",
        'disk.symlinks.map(s, s + "x").exists(t, has(disk.uuid) && t != disk.symlinks[0])',
        "(disk.rotational ? disk.size : 2u * TB) > uint(3.84e12) && -1 < int(disk.io_size)",
        'disk != null && type(disk.serial) == string && {"a": [1, 2,]}["a"].size() == 2',
    ],
)
def test_good_selectors_pass(expression: str) -> None:
    assert condition("disk")(expression) is None


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ('disk.rotational == "true"', "compares disk.rotational with a text; CEL compares it with true or false"),
        ('"true" == disk.rotational', "compares disk.rotational with a text; CEL compares it with true or false"),
        ("disk.size == 3", "compares disk.size with 3; CEL compares it with a number such as 512u"),
        ("disk.size > 3", "compares disk.size with 3; CEL compares it with a number such as 512u"),
        ('"nvme" in disk.model', "takes disk.model for a list; it is a text"),
        ('disk.symlinks.startsWith("/dev")', "takes disk.symlinks for a text; it is a list"),
        ("disk.wwid == 5", "compares disk.wwid with 5; CEL compares it with a text"),
        ("disk.size > 3TB", "has 3TB, which is no number; CEL writes 3u * TB"),
        ("disk", "is a group of fields, not a condition"),
        ("(disk.model)", "is a text, not a condition"),
        ("disk.size + 1u * TB", "is a number, not a condition"),
        ("disk.rotational ? true", "has its end where : is missing"),
        ("disk.readonly disk.cdrom", "has disk where it could end; join conditions by && or ||"),
        ("disk.readonly &&", "has its end where a value is missing"),
        ("!disk.transport || disk.cdrom", "takes disk.transport for a condition; it is a text"),
        ("disk.serial == disk.size", "has a text and a number beside ==: disk.serial == disk.size"),
        ("disk.size < 2u * TB < 3u * TB", "has a condition and a number beside <: disk.size < 2u * TB < 3u * TB"),
        ("size(disk.size) > 1", "takes disk.size for a text; it is a number"),
        ("disk.model.startsWith()", "gives startsWith 0 arguments; it takes 1"),
        ('glob("SAMSUNG*")', "gives glob 1 arguments; it takes 2"),
        ('glob(disk.model, "S*")', "gives glob disk.model first; the pattern comes before the value"),
        ('disk["serial"] == "A"', "takes disk for a list; it is a group of fields"),
        ('disk.serial.text == "A"', "takes disk.serial for a group of fields; it is a text"),
        ("disk.size > 3840u", "compares disk.size with bytes; CEL writes 3u * TB"),
        ('disk.transport == "NVMe"', "compares disk.transport with capital letters; Talos writes nvme"),
        ('disk.dev_path == "sda"', "compares disk.dev_path with a text that is no path in /dev"),
        ('disk.model == "x" && \u00e9', "has '\\xe9', which is no sign of CEL"),
        ("disk.size > 3 * TB", "multiplies 3, which has a sign, with TB; CEL writes 3u * TB"),
        ('disk.model.startswith("S")', "calls startswith, which does not exist; did you mean startsWith?"),
        (
            'disk.symlinks == "a"',
            'compares disk.symlinks with a text; CEL compares it with a list; write `"..." in` before it',
        ),
    ],
)
def test_wrong_selectors_are_refused(expression: str, what: str) -> None:
    fault = condition("disk")(expression)
    assert fault is not None
    assert fault.what == what


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (MachineSettings(node_taints={"gpu": "present:Never"}), "v1alpha1, machine.node_taints: does not fit"),
        (MachineSettings(node_labels={"a b": "c"}), "Kubernetes labels"),
        (MachineSettings(node_labels={"a": "c d"}), "Kubernetes labels"),
        (MachineSettings(node_annotations={"": "c"}), "keys of the form"),
        (MachineSettings(sysctls={"vm.swappiness": 1}), "put values in quotes"),  # type: ignore[dict-item]
        (MachineSettings(node_ip_subnets=("10.5.0.0",)), "machine.kubelet.node_ip_subnets: element 0"),
        (MachineSettings(kernel_modules=(KernelModule(name="nvidia.ko"),)), "the name of a kernel module"),
        (MachineSettings(kernel_modules=(KernelModule(name="a"), KernelModule(name="a"))), "has a module twice; got a"),
    ],
)
def test_mistakes_in_settings(settings: MachineSettings, refusal: str) -> None:
    with pytest.raises(ConfigError) as failure:
        MachineConfig(documents=(examples.plain_cluster().worker(INSTALL, settings),))
    assert refusal in str(failure.value)


@pytest.mark.parametrize(
    ("install", "what"),
    [
        (Install(), "names no disk"),
        (Install(disk_selector=InstallDisk()), "names no disk"),
        (Install(disk="/dev/sda", disk_selector=InstallDisk(type="nvme")), "names a disk in two ways"),
    ],
)
def test_the_install_disk_is_named_in_one_way(install: Install, what: str) -> None:
    [problem] = install.disagreements()
    assert problem.what == what


def test_the_clusters_own_values_are_checked() -> None:
    wrong = replace(examples.plain_cluster(), endpoint="http://10.5.0.10:6443", name="Plain Cluster")
    with pytest.raises(ConfigError) as failure:
        MachineConfig(documents=(wrong.worker(INSTALL),))
    assert [problem.place for problem in failure.value.problems] == [
        "v1alpha1, cluster.endpoint",
        "v1alpha1, cluster.cluster_name",
    ]
    [problem] = ClusterNetwork(pod_subnets=("10.96.0.0/16",)).problems()
    assert problem.what == "overlap the pods' 10.96.0.0/16"
