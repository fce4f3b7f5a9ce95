"""Checks of a running site, with the faults that a lab cannot have; and what the evidence holds."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stacks.plan.cluster import PlannedNode
from stacks.plan.site_plan import plan_file
from talos.api.results import EtcdMember, ExtensionStatus, NodeVersion
from tests.live import test_live_gateway as gateway
from tests.live import test_live_machines as machines
from tests.live.evidence import Evidence, Finding, write
from tests.live.running import RunningSite

pytestmark = pytest.mark.row("opening 5")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
LOOPBACK = "127.0.0.1"
PINS = PROD.versions.nvidia.lts


@dataclass(frozen=True)
class Answers:
    """A machine that answers as it should, but for what a test gives."""

    node: PlannedNode
    talos: str = PROD.versions.talos
    driver: str = PINS.driver
    fabric: str = PINS.fabric_manager
    members: tuple[EtcdMember, ...] = ()

    def version(self) -> NodeVersion:
        return NodeVersion(self.talos, "", "amd64", "metal", "metal")

    def extensions(self) -> tuple[ExtensionStatus, ...]:
        return (
            ExtensionStatus("schematic", self.node.schematic.id),
            ExtensionStatus("nonfree-kmod-nvidia-lts", f"{self.driver}-{self.talos}"),
            ExtensionStatus("nvidia-fabricmanager-lts", self.fabric),
        )

    def etcd_members(self) -> tuple[EtcdMember, ...]:
        return self.members


@dataclass(frozen=True, kw_only=True)
class Rack(RunningSite):
    """The reference site; `answers`: what its machines say otherwise than they should."""

    answers: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def machine(self, node: PlannedNode) -> Iterator[Any]:
        yield Answers(node, **self.answers)


def rack(endpoint: str = "http://127.0.0.1:1/v1", certificate: Path | None = None, **answers: Any) -> Rack:
    return Rack(
        name="prod", plan=PROD, endpoint=endpoint, keys={}, kubeconfig={}, answers=answers, certificate=certificate
    )


def nodes() -> tuple[PlannedNode, ...]:
    assert PROD.machines is not None
    return tuple(PROD.machines.nodes)


def unseen(_: str) -> None:
    """No evidence."""


def member(name: str, *, learner: bool = False) -> EtcdMember:
    return EtcdMember(1, name, (), learner)


def test_another_talos_is_found() -> None:
    machines.test_machines_run_the_pinned_talos_and_image(rack(), nodes(), unseen)
    with pytest.raises(AssertionError, match=r"hgx-1: runs Talos v1\.13\.8, not "):
        machines.test_machines_run_the_pinned_talos_and_image(rack(talos="v1.13.8"), nodes(), unseen)


def test_a_fabric_manager_of_another_version_is_found() -> None:
    """siderolabs/pkgs#720."""
    check = machines.test_hgx_machines_carry_driver_and_fabric_manager_of_one_version
    check(rack(), nodes(), unseen)
    with pytest.raises(AssertionError, match="has no NVIDIA extension for fabric"):
        check(rack(fabric="595.71.05"), nodes(), unseen)
    with pytest.raises(AssertionError, match="has no NVIDIA extension for modules"):
        check(rack(driver="595.71.05"), nodes(), unseen)


def test_a_control_plane_without_a_vote_is_found() -> None:
    check = machines.test_every_control_plane_is_a_voting_member_of_etcd
    names = [node.name for node in nodes() if node.is_control_plane]
    check(rack(members=tuple(map(member, names))), nodes(), unseen)
    with pytest.raises(AssertionError, match="without a vote: cp-3"):
        check(rack(members=(*map(member, names[:2]), member(names[2], learner=True))), nodes(), unseen)
    with pytest.raises(AssertionError, match="the site's control planes are"):
        check(rack(members=tuple(map(member, names[:2]))), nodes(), unseen)


def test_an_endpoint_that_nothing_listens_at_is_found() -> None:
    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]
        gateway.test_the_endpoint_is_reachable_from_here(rack(f"http://{LOOPBACK}:{port}/v1"), unseen)
    with pytest.raises(AssertionError, match="nothing answers"):
        gateway.test_the_endpoint_is_reachable_from_here(rack(f"http://{LOOPBACK}:{port}/v1"), unseen)
    with pytest.raises(AssertionError, match="has no address here"):
        gateway.test_the_endpoint_is_reachable_from_here(rack("http://no.such.host.invalid/v1"), unseen)


@contextmanager
def endpoint_with_certificate(folder: Path, days: int) -> Iterator[tuple[str, Path]]:
    """An https endpoint, and its certificate, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LOOPBACK)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*form))
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.load_cert_chain(chain, private)
    with socket.create_server((LOOPBACK, 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                settings.wrap_socket(listening.accept()[0], server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"https://{LOOPBACK}:{listening.getsockname()[1]}/v1", chain


def test_a_certificate_that_ends_soon_is_found(tmp_path: Path) -> None:
    check = gateway.test_the_endpoint_s_certificate_is_valid_for_two_weeks
    with endpoint_with_certificate(tmp_path, days=90) as (endpoint, authority):
        check(rack(endpoint, authority), unseen)
    with (
        endpoint_with_certificate(tmp_path, days=13) as (endpoint, authority),
        pytest.raises(AssertionError, match="the certificate ends on"),
    ):
        check(rack(endpoint, authority), unseen)
    with (
        endpoint_with_certificate(tmp_path, days=90) as (endpoint, _),
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        check(rack(endpoint), unseen)


def test_evidence_is_its_owners_and_has_no_secret(tmp_path: Path) -> None:
    reason = "canary-key was | refused\nby the gateway"
    failed = Finding(check="a check", rows=("a", "b"), outcome="failed", seen=("canary-key",), reason=reason)
    passed = Finding(check="another", rows=("c",), outcome="passed", seen=("one", "two"))
    evidence = Evidence(site="prod", at="2026-11-24T09:00:00+00:00", commit="abc", findings=(passed, failed))
    files = write(tmp_path / "evidence", evidence, ["canary-key", ""])
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600, 0o600]
    assert not [file for file in files if "canary-key" in file.read_text()]
    data, page = json.loads(files[0].read_text()), files[1].read_text()
    assert [finding["name"] for finding in data["findings"]] == ["another [c]", "a check [a, b]"]
    assert data["findings"][1]["reason"].startswith("[secret] was | refused")
    assert "platform abc: 1 passed, 1 failed, 0 skipped." in page
    rows = [line for line in page.splitlines() if line.startswith("| a")]
    assert rows == [
        "| a check [a, b] | failed | [secret] was \\| refused by the gateway |",
        "| another [c] | passed | one; two |",
    ]
