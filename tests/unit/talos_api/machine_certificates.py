"""Certificates for servers that play machines: Ed25519 as Talos makes them, or ECDSA where grpcio's own TLS is used."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import random
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from talos.api.tls import MutualTls
from talos.secrets.pki import (
    Entropy,
    KeyPair,
    certificate_authority,
    client_certificate,
    load_certificate,
    load_private_key,
)

LOOPBACK = "127.0.0.1"
_MACHINE = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "machine")])


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, both PEM; PKCS#8 under the label that every library reads."""

    certificate: bytes
    key: bytes

    def server(self, *, clients_of: bytes | None = None) -> ssl.SSLContext:
        """Server settings; `clients_of` is the CA that a client's certificate must be of."""
        settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        settings.set_alpn_protocols(["h2"])
        settings.minimum_version = ssl.TLSVersion.TLSv1_3
        self._load(settings)
        if clients_of:
            settings.verify_mode = ssl.CERT_REQUIRED
            settings.load_verify_locations(cadata=clients_of.decode())
        return settings

    def _load(self, settings: ssl.SSLContext) -> None:
        file = Path(f"/dev/shm/machine-{random.getrandbits(64):x}")  # noqa: S108 - gone in a moment
        file.write_bytes(self.certificate + self.key)
        try:
            settings.load_cert_chain(file)
        finally:
            file.unlink()


@dataclass(frozen=True)
class Cluster:
    """A cluster's CA for the machine API."""

    authority: KeyPair

    @property
    def ca(self) -> bytes:
        return self.authority.certificate.encode()

    def client(self, role: str = "os:admin") -> MutualTls:
        """Credentials as a talosconfig holds them."""
        if isinstance(load_private_key(self.authority.key, "ca"), ec.EllipticCurvePrivateKey):
            own = _signed(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, role)]), self.authority)
            return MutualTls(ca=self.ca, certificate=own.certificate, key=own.key)
        pair = client_certificate(
            self.authority,
            organizations=(role,),
            now=datetime.now(UTC),
            lifetime=timedelta(hours=1),
            entropy=_entropy(),
        )
        return MutualTls(ca=self.ca, certificate=pair.certificate.encode(), key=pair.key.encode())

    def machine(self) -> Identity:
        """The certificate of a machine on loopback."""
        return _signed(_MACHINE, self.authority)


def _entropy() -> Entropy:
    return Entropy(random.randbytes)


@cache
def cluster(name: str = "lab") -> Cluster:
    """One cluster per name; Ed25519, or ECDSA for a name that begins with `ecdsa`."""
    entropy = _entropy()
    key = entropy.ec_key() if name.startswith("ecdsa") else entropy.ed25519_key()
    return Cluster(
        certificate_authority(key, organization="talos", now=datetime.now(UTC) - timedelta(hours=1), entropy=entropy)
    )


def self_signed() -> Identity:
    """What a machine in maintenance mode shows: a new key, signed by itself."""
    return _signed(_MACHINE, None)


def spki_fingerprint(identity: Identity) -> str:
    """Computed by another library than the code that is tested."""
    key = x509.load_pem_x509_certificate(identity.certificate).public_key()
    spki = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(spki).digest()).decode()


def _signed(subject: x509.Name, authority: KeyPair | None) -> Identity:
    signer = load_private_key(authority.key, "ca") if authority else None
    ecdsa = isinstance(signer, ec.EllipticCurvePrivateKey)
    own = ec.generate_private_key(ec.SECP256R1()) if ecdsa else ed25519.Ed25519PrivateKey.generate()
    issuer = load_certificate(authority.certificate, "ca").subject if authority else subject
    now = datetime.now(UTC)
    names = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    signing = signer or own
    assert isinstance(signing, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    certificate = builder.sign(signing, hashes.SHA256() if ecdsa else None)
    key = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity(certificate.public_bytes(serialization.Encoding.PEM), key)
