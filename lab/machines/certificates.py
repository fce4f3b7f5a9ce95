"""The certificates that an emulated machine shows, and the roles in those of its clients."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from talos.api.tls import fingerprint
from talos.secrets import pki
from talos.secrets.pki import KeyPair

_LIFETIME = timedelta(hours=24)
# A client whose clock is a little behind must still find the certificate valid.
_EARLIER = timedelta(minutes=1)


@dataclass(frozen=True)
class Identity:
    """A server's certificate and key as PEM, the key as PKCS#8."""

    certificate: str
    key: str = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """As Talos prints it: base64 of the SHA-256 of the public key's SubjectPublicKeyInfo."""
        return fingerprint(ssl.PEM_cert_to_DER_cert(self.certificate))


def self_signed(names: Sequence[str], now: datetime) -> Identity:
    """What a machine in maintenance mode shows: signed by an unknown CA."""
    key = ed25519.Ed25519PrivateKey.generate()
    return _issued(names, now, x509.Name([]), key, key)


def signed_by(authority: KeyPair, names: Sequence[str], now: datetime) -> Identity:
    """What a configured machine shows: signed by the CA of the Talos API."""
    issuer = pki.load_certificate(authority.certificate, "machine.ca.crt")
    signer = pki.load_private_key(authority.key, "machine.ca.key")
    if isinstance(signer, rsa.RSAPrivateKey):
        raise ValueError("the CA of the Talos API has an RSA key")
    return _issued(names, now, issuer.subject, ed25519.Ed25519PrivateKey.generate(), signer)


def maintenance_tls(identity: Identity) -> ssl.SSLContext:
    """TLS in maintenance mode: no client is asked for a certificate."""
    return _server(identity)


def mutual_tls(identity: Identity, authorities: Sequence[str]) -> ssl.SSLContext:
    """TLS of a configured machine: clients need a certificate of one of these CAs (PEM)."""
    settings = _server(identity)
    settings.verify_mode = ssl.CERT_REQUIRED
    settings.load_verify_locations(cadata="\n".join(authorities))
    return settings


def client_roles(certificate: bytes | None, now: datetime) -> frozenset[str] | None:
    """The roles in a client's certificate (DER), by the machine's own clock; None where Talos lets no client in."""
    if certificate is None:
        return None
    read = x509.load_der_x509_certificate(certificate)
    if not read.not_valid_before_utc <= now <= read.not_valid_after_utc:
        return None
    try:
        usages = list(read.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        usages = []
    if usages != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        return None
    return frozenset(
        str(organization.value) for organization in read.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    )


def _server(identity: Identity) -> ssl.SSLContext:
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.minimum_version = ssl.TLSVersion.TLSv1_2
    settings.set_alpn_protocols(["h2"])
    # Python reads a chain from files only; memory that has a name keeps the key off the disk.
    memory = os.memfd_create("identity")
    try:
        os.write(memory, f"{identity.certificate}\n{identity.key}".encode())
        settings.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return settings


def _issued(
    names: Sequence[str],
    now: datetime,
    issuer: x509.Name,
    key: ed25519.Ed25519PrivateKey,
    signer: pki.SigningKey,
) -> Identity:
    start = now.astimezone(UTC) - _EARLIER
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    algorithm = None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = builder.sign(signer, algorithm)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
