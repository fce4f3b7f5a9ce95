"""Keys and certificates exactly as Talos makes them: algorithms, extensions, PEM labels."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from talos.documents.problems import ConfigError

CA_LIFETIME = timedelta(hours=87600)

ED25519_LABEL = "ED25519 PRIVATE KEY"
EC_LABEL = "EC PRIVATE KEY"
RSA_LABEL = "RSA PRIVATE KEY"

SigningKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
PrivateKey = SigningKey | rsa.RSAPrivateKey

_PEM = re.compile(r"\s*-----BEGIN ([A-Z0-9 ]+)-----\s+([A-Za-z0-9+/=\s]+)-----END \1-----\s*")


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both PEM. The key is in no repr."""

    certificate: str
    key: str = field(repr=False)


def _new_rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=4096)


@dataclass(frozen=True)
class Entropy:
    """Where randomness comes from: `octets(n)` gives n random bytes; RSA keys have a source of their own.

    Tests put fixed sources here and get the same bundle each time.
    """

    octets: Callable[[int], bytes] = field(repr=False)
    rsa_key: Callable[[], rsa.RSAPrivateKey] = field(default=_new_rsa_key, repr=False)

    def ed25519_key(self) -> ed25519.Ed25519PrivateKey:
        return ed25519.Ed25519PrivateKey.from_private_bytes(self.octets(32))

    def ec_key(self) -> ec.EllipticCurvePrivateKey:
        # 64 bits beyond the order leave no bias worth the name.
        order = ec.SECP256R1.group_order
        return ec.derive_private_key(1 + int.from_bytes(self.octets(40)) % (order - 1), ec.SECP256R1())

    def serial_number(self) -> int:
        """128 bits as Talos takes them; never 0, which no certificate may have."""
        return int.from_bytes(self.octets(16)) or 1


def certificate_authority(
    key: SigningKey, *, organization: str | None, now: datetime, entropy: Entropy, lifetime: timedelta = CA_LIFETIME
) -> KeyPair:
    """A self-signed CA; `organization` None leaves the subject empty, as Talos does for the aggregator's."""
    subject = _name([] if organization is None else [organization])
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        _builder(subject, subject, key, now, lifetime, entropy)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier(entropy.octets(20)), critical=False)
    )
    return KeyPair(certificate=_sign(builder, key), key=private_key_pem(key))


def client_certificate(
    authority: KeyPair, *, organizations: Sequence[str], now: datetime, lifetime: timedelta, entropy: Entropy
) -> KeyPair:
    """A client's Ed25519 key and certificate, signed by `authority`, which must be the Talos API's CA."""
    issuer = load_certificate(authority.certificate, "certs.os.crt")
    issuer_key = load_private_key(authority.key, "certs.os.key")
    if isinstance(issuer_key, rsa.RSAPrivateKey):
        raise ConfigError("certs.os.key is an RSA key, which signs no Talos client", fix="import the right bundle")
    key = entropy.ed25519_key()
    builder = (
        _builder(_name(organizations), issuer.subject, key, now, lifetime, entropy)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
    except x509.ExtensionNotFound:
        pass
    return KeyPair(certificate=_sign(builder, issuer_key), key=private_key_pem(key))


def private_key_pem(key: PrivateKey) -> str:
    """PEM with the labels that Talos reads: PKCS#8 under its own label for Ed25519, the traditional forms else."""
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return _pem(ED25519_LABEL, _der(key, serialization.PrivateFormat.PKCS8))
    label = RSA_LABEL if isinstance(key, rsa.RSAPrivateKey) else EC_LABEL
    return _pem(label, _der(key, serialization.PrivateFormat.TraditionalOpenSSL))


def load_private_key(text: str, where: str) -> PrivateKey:
    """The key of a PEM text with one of Talos's labels; ConfigError, which quotes nothing of it, when it is not."""
    label, der = _unwrap(text, where)
    wanted = {
        ED25519_LABEL: ed25519.Ed25519PrivateKey,
        EC_LABEL: ec.EllipticCurvePrivateKey,
        RSA_LABEL: rsa.RSAPrivateKey,
    }
    if label not in wanted:
        raise ConfigError(
            f"{where} is labelled {label!r}; Talos writes {', '.join(wanted)}",
            fix="import the file that `talosctl gen secrets` or this project's export wrote, unchanged",
        )
    try:
        key = serialization.load_der_private_key(der, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, wanted[label]):
        raise ConfigError(f"{where} holds no key of the kind that its label names", fix="export the bundle again")
    assert isinstance(key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)  # noqa: S101
    return key


def load_certificate(text: str, where: str) -> x509.Certificate:
    """The certificate of a PEM text; ConfigError when it is none."""
    label, der = _unwrap(text, where)
    try:
        if label != "CERTIFICATE":
            raise ValueError
        return x509.load_der_x509_certificate(der)
    except ValueError:
        raise ConfigError(f"{where} is no certificate in PEM form", fix="export the bundle again") from None


def require_match(pair: KeyPair, where: str) -> None:
    """ConfigError unless the certificate is a CA's and the key is the certificate's."""
    certificate = load_certificate(pair.certificate, f"{where}.crt")
    key = load_private_key(pair.key, f"{where}.key")
    if _public(certificate.public_key()) != _public(key.public_key()):
        raise ConfigError(f"{where}: the key is not the certificate's", fix="import both from the same export")
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        constraints = None
    if constraints is None or not constraints.ca:
        raise ConfigError(f"{where}.crt is not a CA's certificate", fix="import the bundle that made the cluster")


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _name(organizations: Sequence[str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: SigningKey, now: datetime, lifetime: timedelta, entropy: Entropy
) -> x509.CertificateBuilder:
    start = now.astimezone(UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(entropy.serial_number())
        .not_valid_before(start)
        .not_valid_after(start + lifetime)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sign(builder: x509.CertificateBuilder, key: SigningKey) -> str:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        signed = builder.sign(key, algorithm=None)
    else:
        signed = builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    return _pem("CERTIFICATE", signed.public_bytes(serialization.Encoding.DER))


def _der(key: PrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())


def _public(key: object) -> bytes:
    assert isinstance(key, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey)  # noqa: S101
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _pem(label: str, der: bytes) -> str:
    body = base64.b64encode(der).decode()
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""))


def _unwrap(text: str, where: str) -> tuple[str, bytes]:
    match = _PEM.fullmatch(text)
    if match is None:
        raise ConfigError(f"{where} is not one PEM block", fix="export the bundle again")
    try:
        return match.group(1), base64.b64decode("".join(match.group(2).split()), validate=True)
    except ValueError:
        raise ConfigError(f"{where} is damaged: its PEM body is not base64", fix="export the bundle again") from None
