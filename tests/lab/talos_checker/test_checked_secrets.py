"""Secrets bundles, talosconfigs and each step of a rotation, before Talos's own libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.machine_config import MachineConfig
from talos.secrets import bundle as secrets
from talos.secrets import talosconfig
from talos.secrets.pki import base64_of
from tests.lab.talos_checker.checking import Checker
from tests.unit.talos import talos_examples as examples

INSTALL = Install(disk="/dev/sda", image=examples.INSTALLER)


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


@pytest.mark.parametrize(("what", "text", "reason"), list(spoiled()), ids=lambda value: str(value)[:20])
def test_spoiled_secrets_go_red_on_both_sides(checker: Checker, what: str, text: str, reason: str) -> None:
    [answer] = checker.answers("secrets-check", text)
    assert reason in " ".join(answer["errors"])
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


def test_each_step_of_a_rotation_is_valid(checker: Checker) -> None:
    old, cluster = examples.bundle(), examples.plain_cluster()
    new = secrets.with_new_authority(secrets.with_new_authority(old, "talos"), "kubernetes")
    steps = (
        replace(
            cluster,
            accepted_talos_cas=(new.talos.certificate,),
            accepted_kubernetes_cas=(new.kubernetes.certificate,),
        ),
        replace(
            cluster,
            secrets=new,
            accepted_talos_cas=(old.talos.certificate,),
            accepted_kubernetes_cas=(old.kubernetes.certificate,),
        ),
        replace(cluster, secrets=new),
    )
    documents = [document for step in steps for document in (step.control_plane(INSTALL), step.worker(INSTALL))]
    for answer in checker.validate(*(MachineConfig(documents=(document,)).render() for document in documents)):
        assert answer["errors"] == []
