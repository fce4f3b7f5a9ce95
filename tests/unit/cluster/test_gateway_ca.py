"""The lab as the operator of its site: one CA, whose key stays with its owner, in each cluster that wants it."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from kubernetes import client

from lab.cluster import api, assigner, gateway_ca, network, operator_secret
from lab.paths import SITE_FILE, Lab
from tests.lab.plain_site import make_plain


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(home=tmp_path / "home", cache=tmp_path / "cache")
    made.make_folders()
    gateway_ca.ensure(made)
    return made


class FakeCluster:
    """Namespaces and Secrets, with the two calls that the controller makes of the client."""

    def __init__(self, *, namespace: bool = True, ending: bool = False, held: dict[str, str] | None = None) -> None:
        moment = "2026-01-01T00:00:00Z" if ending else None
        self.spaces = [client.V1Namespace(metadata=client.V1ObjectMeta(deletion_timestamp=moment))] if namespace else []
        self.held = [client.V1Secret(data=held)] if held else []
        self.asked: list[tuple[str, ...]] = []
        self.applied: list[Any] = []

    def list_namespace(self, *, field_selector: str, **_: Any) -> Any:
        self.asked.append((field_selector,))
        return SimpleNamespace(items=self.spaces)

    def list_namespaced_secret(self, namespace: str, *, field_selector: str, **_: Any) -> Any:
        self.asked.append((namespace, field_selector))
        return SimpleNamespace(items=self.held)


def reconcile(lab: Lab, cluster: FakeCluster) -> list[Any]:
    """What is written."""
    wanted = partial(gateway_ca.wanted, lab)
    controller = operator_secret.OperatorSecretController(client.ApiClient(), gateway_ca.NAME, wanted)
    with (
        patch.object(controller, "_core", cluster),
        patch.object(api, "apply", lambda _, *bodies: cluster.applied.extend(bodies)),
    ):
        controller.reconcile()
    return cluster.applied


def test_a_lab_has_one_ca_whose_key_is_for_its_owner_alone(lab: Lab) -> None:
    made = lab.gateway_ca.read_bytes(), lab.gateway_ca_key.read_bytes()
    gateway_ca.ensure(lab)
    assert (lab.gateway_ca.read_bytes(), lab.gateway_ca_key.read_bytes()) == made
    assert lab.gateway_ca_key.stat().st_mode & 0o077 == 0
    certificate = x509.load_pem_x509_certificate(made[0])
    assert certificate.public_key() == load_pem_private_key(made[1], password=None).public_key()
    basics = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (basics.ca, basics.path_length) == (True, 0), "it signs servers' certificates, and no other CA's"
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    # Also for a client whose clock is half a minute behind, and for as long as a lab lasts.
    made_at = datetime.fromtimestamp(lab.gateway_ca.stat().st_mtime, UTC)
    assert certificate.not_valid_before_utc < made_at - timedelta(seconds=30)
    assert certificate.not_valid_after_utc > made_at + timedelta(days=365)


def test_half_of_a_ca_is_none(lab: Lab) -> None:
    """As a killed `up` leaves it."""
    before = lab.gateway_ca_key.read_bytes()
    lab.gateway_ca.unlink()
    gateway_ca.ensure(lab)
    assert lab.gateway_ca.exists()
    assert lab.gateway_ca_key.read_bytes() != before


def test_a_cluster_gets_the_ca_once_the_namespace_is_there(lab: Lab) -> None:
    assert reconcile(lab, FakeCluster(namespace=False)) == []
    cluster = FakeCluster()
    (written,) = reconcile(lab, cluster)
    assert written["metadata"] == {"name": "lab-ca", "namespace": "inference-gateway"}
    assert base64.b64decode(written["data"]["tls.crt"]) == lab.gateway_ca.read_bytes()
    assert base64.b64decode(written["data"]["tls.key"]) == lab.gateway_ca_key.read_bytes()
    # The account may read no other Secret.
    assert cluster.asked == [("metadata.name=inference-gateway",), ("inference-gateway", "metadata.name=lab-ca")]


def test_what_is_there_is_not_written_again_and_another_ca_is_replaced(lab: Lab) -> None:
    held = gateway_ca.secret(lab)["data"]
    assert reconcile(lab, FakeCluster(held=held)) == []
    assert reconcile(lab, FakeCluster(held={**held, "tls.crt": "b3RoZXI="})) == [gateway_ca.secret(lab)]


def test_nothing_is_written_into_a_namespace_that_is_being_deleted(lab: Lab) -> None:
    """The API server would refuse it each second."""
    assert reconcile(lab, FakeCluster(ending=True)) == []


def test_the_checked_in_site_names_the_labs_ca_and_a_plain_one_does_not(lab: Lab, tmp_path: Path) -> None:
    assert gateway_ca.is_named(SITE_FILE)
    document = yaml.safe_load(SITE_FILE.read_text())
    make_plain(document)
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(document))
    assert not gateway_ca.is_named(plain)
    assert reconcile(replace(lab, site_file=plain), FakeCluster()) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "config: [",
        "config: none",
        "config: {inference-platform:site: {certificates: lab-ca}}",
        "config: {inference-platform:site: {certificates: {ca_secret: site-ca}}}",
    ],
)
def test_a_file_without_the_name_or_in_mid_edit_names_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(text)
    assert not gateway_ca.is_named(file)
    assert not gateway_ca.is_named(tmp_path / "none.yaml")


def test_the_key_is_in_no_log(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reconcile(lab, FakeCluster())
    assert "inference-gateway/lab-ca" in caplog.text
    key = lab.gateway_ca_key.read_text()
    for line in (*key.splitlines()[1:-1], base64.b64encode(key.encode()).decode()):
        assert line not in caplog.text


def test_the_assigner_may_touch_no_other_secret() -> None:
    rules = [rule for rule in assigner.role()["rules"] if "secrets" in rule["resources"]]
    assert [rule["resourceNames"] for rule in rules] == [["lab-ca", "directory-database", "usage-database"]]


def test_the_labs_processes_read_the_same_site(lab: Lab, tmp_path: Path) -> None:
    assert network.environment(replace(lab, site_file=tmp_path / "s.yaml"))["LAB_SITE_FILE"] == str(tmp_path / "s.yaml")
