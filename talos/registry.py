"""Documents on images and trust: mirrors, credentials and TLS of registries, trusted roots, image signatures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from talos.document import Document, Part, wired


@dataclass(frozen=True, kw_only=True)
class Endpoint(Part):
    """A mirror's address; with `override_path` its path is taken as it is, without the registry's `/v2`."""

    url: str
    override_path: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryMirrorConfig(Document):
    """Where images of the registry `name` (`docker.io`, `*` for all) are looked for, in order.

    With `skip_fallback` the registry itself is never asked: what an air-gapped site wants.
    """

    kind: ClassVar[str] = "RegistryMirrorConfig"

    name: str
    endpoints: tuple[Endpoint, ...]
    skip_fallback: bool | None = None


@dataclass(frozen=True, kw_only=True)
class RegistryAuthConfig(Document):
    """Credentials for the registry host `name`: a user and a password, `auth` (both in base64), or a token."""

    kind: ClassVar[str] = "RegistryAuthConfig"

    name: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    auth: str | None = field(default=None, repr=False)
    identity_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class ClientIdentity(Part):
    """A client certificate and its key, both PEM; the key as PKCS#8 (`PRIVATE KEY`), Talos refuses other forms."""

    certificate: str = field(metadata=wired("cert"))
    key: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class RegistryTLSConfig(Document):
    """TLS towards the registry host `name`: the CA to trust (PEM), and a client's identity where it asks for one."""

    kind: ClassVar[str] = "RegistryTLSConfig"

    name: str
    client_identity: ClientIdentity | None = None
    ca: str | None = None
    insecure_skip_verify: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TrustedRootsConfig(Document):
    """CA certificates (PEM, one or several) that the whole machine trusts beside the usual ones."""

    kind: ClassVar[str] = "TrustedRootsConfig"

    name: str
    certificates: str


@dataclass(frozen=True, kw_only=True)
class Keyless(Part):
    """Signed through an OIDC issuer by this subject."""

    issuer: str
    subject: str | None = None
    subject_regex: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImageRule(Part):
    """What images whose registry and repository match the glob `image` must show: a signature, or one fixed answer.

    Exactly one of `skip`, `deny`, `keyless` and `public_key` (a PEM certificate); the first matching rule decides.
    """

    image: str
    skip: bool | None = None
    deny: bool | None = None
    keyless: Keyless | None = None
    public_key: str | None = field(default=None, metadata=wired("publicKey", lambda pem: {"certificate": pem}))


@dataclass(frozen=True, kw_only=True)
class ImageVerificationConfig(Document):
    """Rules for every image that the machine pulls, Talos's own included."""

    kind: ClassVar[str] = "ImageVerificationConfig"

    rules: tuple[ImageRule, ...]
