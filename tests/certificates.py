"""Authorities and certificates for tests, as files in PEM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """One of a site's own, which no machine trusts by itself."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def identity(self, folder: Path, address: str, *, days: int = 1) -> tuple[Path, Path]:
        """Certificate and key of a server at an IP address or a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        name: x509.GeneralName
        try:
            name = x509.IPAddress(ip_address(address))
        except ValueError:
            name = x509.DNSName(address)
        certificate = (
            _of("server", self.certificate.subject, key, days)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        chain, private = folder / "chain.pem", folder / "key.pem"
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        private.write_bytes(key.private_bytes(*form))
        return chain, private


def authority(name: str = "site") -> Authority:
    """A new one."""
    key = ec.generate_private_key(ec.SECP256R1())
    usage = dict.fromkeys(("digital_signature", "content_commitment", "key_encipherment", "crl_sign"), False)
    usage |= dict.fromkeys(("data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False)
    certificate = (
        _of(name, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def _of(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + days * _DAY)
    )
