"""Talos's own CEL compiler on each field with each kind of literal: our own check agrees with it."""

from __future__ import annotations

from itertools import product
from typing import get_args

from talos.documents.cel import KINDS, Subject, condition
from talos.documents.document import Wire
from talos.documents.rendering import render
from talos.documents.v1alpha1 import Install
from tests.lab.talos_checker.checking import Checker
from tests.unit.talos import talos_examples as examples

COMPARISONS = (
    '{} == "a"',
    '"a" != {}',
    '{} < "a"',
    "{} == true",
    "{} == 3",
    "3u == {}",
    "{} > 3",
    "{} > 3u",
    "{} <= 1.5",
    "{}",
    "size({}) == 0",
    '"a" in {}',
    '{}.startsWith("a")',
    '{}.exists(each, each == "a")',
)
OTHERS: dict[Subject, tuple[str, ...]] = {
    "disk": (
        "disk.size > 3u * TB",
        "disk.size > 3 * TB",
        'disk.model.startsWith("S")',
        'disk.model.beginsWith("S")',
        'disk.symlinks.exists(each, each.contains("nvme"))',
        'disk.symlinks.any(each, each.contains("nvme"))',
        'glob("sd*", disk.dev_path)',
        "disk.symlinks.size() == 0",
    ),
    "volume": ('volume.label.endsWith("A")', "volume.size >= 1u * GiB", 'volume.name.lower() == "ext4"'),
    "link": ('mac(link.hardware_addr) == "00:1a"', 'glob(mac(link.permanent_addr), "00:1a:*")', "link.mtu == 9000u"),
}
# Conditions in CEL that hold for no disk and no link.
NEVER_TRUE = {'disk.dev_path == "a"', "disk.size > 3u", 'glob(mac(link.permanent_addr), "00:1a:*")'}


def config(subject: Subject, expression: str) -> str:
    match = {"match": expression}
    documents: dict[Subject, Wire] = {
        "disk": {
            "kind": "UserVolumeConfig",
            "name": "scratch",
            "provisioning": {"diskSelector": match, "minSize": "1GB"},
        },
        "volume": {"kind": "ExistingVolumeConfig", "name": "weights", "discovery": {"volumeSelector": match}},
        "link": {"kind": "LinkAliasConfig", "name": "net0", "selector": match},
    }
    base = examples.plain_cluster().worker(Install(disk="/dev/sda", image=examples.INSTALLER)).document()
    return render([base, {"apiVersion": "v1alpha1", **documents[subject]}])


def test_our_conditions_are_talos_conditions(checker: Checker) -> None:
    """Of what is no condition in CEL we refuse all that Talos refuses; and also conditions that never hold."""
    cases = [
        (subject, expression)
        for subject in get_args(Subject)
        for expression in (
            *(form.format(f"{subject}.{name}") for name, form in product(KINDS[subject], COMPARISONS)),
            *OTHERS[subject],
        )
    ]
    answers = checker.validate(*(config(subject, expression) for subject, expression in cases))
    theirs = {expression: str(answer["errors"]) for (_, expression), answer in zip(cases, answers, strict=True)}
    ours = {expression: str(condition(subject)(expression) or "") for subject, expression in cases}
    differ = {
        expression: (ours[expression], theirs[expression])
        for _, expression in cases
        if bool(ours[expression]) != (theirs[expression] != "[]" or expression in NEVER_TRUE)
    }
    assert differ == {}
    assert {theirs[expression] for expression in NEVER_TRUE} == {"[]"}
    assert len(cases) > 900
