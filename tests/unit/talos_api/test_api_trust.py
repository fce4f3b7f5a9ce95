"""Which server the client trusts: the cluster's CA, a pinned key, first contact; it calls no other."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from talos.api import calls, errors
from talos.api.client import MachineClient, connect
from talos.api.messages import new
from talos.api.results import ApplyMode
from talos.api.tls import FirstContact, MutualTls, Pinned, Trust, fingerprint
from tests.unit.talos_api.machine_certificates import LOOPBACK, Identity, cluster, self_signed, spki_fingerprint
from tests.unit.talos_api.machine_server import Machine, grpc_server, serving

CONFIG = b"version: v1alpha1\nmachine:\n  token: canary-8c21-token\n"


def version(_request: Any, _context: Any) -> Any:
    return new("machine.VersionResponse", messages=[{"version": {"tag": "v1.13.9"}}])


def applied(_request: Any, _context: Any) -> Any:
    return new("machine.ApplyConfigurationResponse", messages=[{"mode": 2}])


ANSWERS = {"Version": version, "ApplyConfiguration": applied}


@contextlib.contextmanager
def trusting(machine: Machine, trust: Trust, **options: Any) -> Iterator[MachineClient]:
    with connect(LOOPBACK, trust, node="hgx-1", port=machine.port, **options) as client:
        client._sleep = lambda _: None
        yield client


@pytest.fixture
def maintenance() -> Iterator[Machine]:
    with serving(Machine(answers=dict(ANSWERS), identity=self_signed())) as machine:
        yield machine


def both(client: MachineClient) -> None:
    client.version()
    client.apply_configuration(CONFIG, mode=ApplyMode.NO_REBOOT)


def test_a_pinned_key_is_enough_in_maintenance_mode(maintenance: Machine) -> None:
    assert maintenance.identity
    with trusting(maintenance, Pinned(spki_fingerprint(maintenance.identity))) as client:
        both(client)
    assert [seen.call for seen in maintenance.seen] == ["Version", "ApplyConfiguration"]


def test_another_key_gets_no_byte_of_a_request(maintenance: Machine) -> None:
    with trusting(maintenance, Pinned(spki_fingerprint(self_signed()))) as client:
        with pytest.raises(errors.UntrustedError, match="fingerprint is") as raised:
            client.version()
        with pytest.raises(errors.UntrustedError, match="fingerprint is"):
            client.apply_configuration(CONFIG, mode=ApplyMode.NO_REBOOT)
    assert maintenance.seen == []
    assert "console" in raised.value.fix


def test_first_contact_believes_whoever_answers(maintenance: Machine) -> None:
    with trusting(maintenance, FirstContact()) as client:
        both(client)


@pytest.mark.parametrize("text", ["", "abc", "A" * 44, "not base64 at all!", "QUJD"])
def test_what_cannot_be_a_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="base64 of 32 bytes"):
        Pinned(text)


@pytest.mark.parametrize("shown", [b"", b"0", b"0\x82\x01\x00", b"no certificate"])
def test_bytes_that_are_no_certificate_have_no_fingerprint(shown: bytes) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="no readable certificate"):
        fingerprint(shown)


@pytest.mark.parametrize("name", ["lab", "ecdsa-lab"])
def test_mutual_tls_with_both_kinds_of_keys(name: str) -> None:
    owner = cluster(name)
    served = Machine.of(owner, answers=dict(ANSWERS))
    with serving(served) as machine, trusting(machine, owner.client()) as client:
        both(client)


def test_grpcios_own_tls_server_is_understood() -> None:
    owner, machine = cluster("ecdsa-native"), Machine(answers=dict(ANSWERS))
    identity: Identity = owner.machine()
    server = grpc_server(machine)
    credentials = grpc.ssl_server_credentials([(identity.key, identity.certificate)], owner.ca, True)
    machine.port = server.add_secure_port(f"{LOOPBACK}:0", credentials)
    server.start()
    try:
        with trusting(machine, owner.client()) as client:
            both(client)
        stranger = _with_identity_of(cluster("ecdsa-other").client(), owner.ca)
        with pytest.raises(errors.MachineApiError), trusting(machine, stranger) as client:
            client.version()
        assert len(machine.seen) == 2
    finally:
        server.stop(None).wait(5)


def test_a_machine_of_another_cluster_gets_nothing() -> None:
    owner = cluster("theirs")
    served = Machine.of(owner, answers=dict(ANSWERS))
    with serving(served) as machine, trusting(machine, cluster("ours").client()) as client:
        with pytest.raises(errors.UntrustedError):
            client.version()
        with pytest.raises(errors.UntrustedError):
            client.apply_configuration(CONFIG, mode=ApplyMode.NO_REBOOT)
    assert machine.seen == []


def test_a_configured_machine_denies_whoever_has_no_certificate() -> None:
    owner = cluster()
    with serving(Machine.of(owner, answers=dict(ANSWERS))) as machine:
        for trust in (FirstContact(), _with_identity_of(cluster("other").client(), owner.ca)):
            with trusting(machine, trust) as client:
                with pytest.raises(errors.DeniedError):
                    client.version()
                with pytest.raises(errors.DeniedError):
                    client.apply_configuration(CONFIG, mode=ApplyMode.NO_REBOOT)
    assert machine.seen == []


def test_a_change_is_repeated_while_no_connection_comes_about() -> None:
    owner = cluster()
    with serving(Machine(answers=dict(ANSWERS), identity=None, clients_of=owner.ca)) as machine:
        pauses: list[float] = []

        def wait(seconds: float) -> None:
            pauses.append(seconds)
            machine.identity = owner.machine() if len(pauses) == 2 else None

        with trusting(machine, owner.client()) as client:
            client._sleep = wait
            client.apply_configuration(CONFIG, mode=ApplyMode.NO_REBOOT)
    assert len(pauses) == 2
    assert len(machine.asked(calls.APPLY_CONFIGURATION)) == 1


def test_nobody_at_the_address() -> None:
    with connect(LOOPBACK, cluster().client(), node="hgx-1", port=1, attempts=2) as client:
        client._sleep = lambda _: None
        for ask in (client.version, client.bootstrap):
            with pytest.raises(errors.UnreachableError, match="port 50000"):
                ask()


def test_an_earlier_failure_is_not_taken_for_that_of_a_call(maintenance: Machine) -> None:
    asked = []
    with trusting(maintenance, cluster().client()) as client:
        try:
            client.version()
        except errors.UntrustedError:
            with connect(LOOPBACK, FirstContact(), port=1, attempts=1) as other:
                for ask in (other.version, other.bootstrap):
                    with pytest.raises(errors.UnreachableError):
                        ask()
                    asked.append(ask)
    assert len(asked) == 2


def test_an_unusable_identity_is_reported_without_quoting_it() -> None:
    broken = MutualTls(ca=cluster().ca, certificate=cluster().client().certificate, key=b"canary-8c21 is no key")
    with pytest.raises(errors.UntrustedError, match="no usable PEM") as raised:
        connect(LOOPBACK, broken)
    assert "canary" not in str(raised.value) + repr(broken)


def _with_identity_of(client: MutualTls, ca: bytes) -> MutualTls:
    return MutualTls(ca=ca, certificate=client.certificate, key=client.key)
