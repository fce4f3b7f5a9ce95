"""Secrets that a site's keys name: where each is read, by which keys, and of which type.

One table for what checks a site and for what fills Secrets. It is over plain values, so that it holds while a site is
still wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.specs.dns import TSIG_SECRET_KEY
from components.specs.grafana import ADMIN_KEYS
from components.specs.logs import TOKEN_KEY
from floor import namespaces
from floor.problems import Path
from services.portal.variables import CLIENT_SECRET_KEY
from services.weights import variables
from stacks.site.reading.raw import at, matching

_OPAQUE, _TLS = "Opaque", "kubernetes.io/tls"
_PAIR = ("tls.crt", "tls.key")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# By the scheme of the target; longhorn-manager and longhorn-engine name the keys in `types`. nfs has none.
_OF_TARGETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s3": (
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_ENDPOINTS", "AWS_CERT", "VIRTUAL_HOSTED_STYLE", *_PROXIES),
    ),
    "azblob": (("AZBLOB_ACCOUNT_NAME", "AZBLOB_ACCOUNT_KEY"), ("AZBLOB_ENDPOINT", "AZBLOB_CERT", *_PROXIES)),
    "cifs": (("CIFS_USERNAME", "CIFS_PASSWORD"), ()),
}


@dataclass(frozen=True, kw_only=True)
class SecretReference:
    """A key of a site that names a Secret."""

    path: Path
    namespace: str
    name: str
    keys: tuple[str, ...]
    """Those that its reader needs."""
    optional: tuple[str, ...] = ()
    """Those that it reads where they are there."""
    type: str = _OPAQUE


@dataclass(frozen=True, kw_only=True)
class _Use:
    pattern: str
    namespace: str
    keys: tuple[str, ...]
    optional: tuple[str, ...] = ()
    type: str = _OPAQUE
    read: Callable[[Mapping[str, Any]], bool]
    """Whether the site's other keys have it read, and by others than who writes it."""


def _by_cert_manager(values: Mapping[str, Any]) -> bool:
    return at(values, "certificates", "system") in ("external", "cert_manager")


def _has_grafana(values: Mapping[str, Any]) -> bool:
    return bool(at(values, "monitoring", "grafana", "run_by") == "platform")


_USES = (
    _Use(
        pattern="gateway.certificate_secret",
        namespace=namespaces.GATEWAY,
        keys=_PAIR,
        type=_TLS,
        read=lambda values: not _by_cert_manager(values),
    ),
    _Use(pattern="certificates.ca_secret", namespace=namespaces.GATEWAY, keys=_PAIR, type=_TLS, read=_by_cert_manager),
    _Use(
        pattern="certificates.acme.rfc2136.tsig_secret",
        namespace=namespaces.GATEWAY,
        keys=("secret",),
        read=_by_cert_manager,
    ),
    _Use(pattern="portal.client_secret", namespace=namespaces.GATEWAY, keys=(CLIENT_SECRET_KEY,), read=lambda _: True),
    _Use(
        pattern="portal.certificate_secret",
        namespace=namespaces.GATEWAY,
        keys=_PAIR,
        type=_TLS,
        # The gateway's own may be for both names.
        read=lambda values: (
            not _by_cert_manager(values)
            or at(values, "portal", "certificate_secret") != at(values, "gateway", "certificate_secret")
        ),
    ),
    *(
        _Use(
            pattern=f"{section}.database_secret",
            namespace=namespaces.GATEWAY,
            keys=("url",),
            # Else the program writes it.
            read=lambda values: at(values, "database", "run_by") != "cloudnative_pg",
        )
        for section in ("callers", "usage")
    ),
    _Use(
        pattern="addresses.bgp.peers.<name>.password_secret",
        namespace=namespaces.BGP_SECRETS,
        keys=("password",),
        read=lambda values: at(values, "addresses", "announced_by") == "cilium_bgp",
    ),
    _Use(
        pattern="storage.weights.token_secret",
        namespace=namespaces.MODELS,
        keys=variables.keys_of("hub"),
        read=lambda values: at(values, "storage", "weights", "source") != "volume",
    ),
    _Use(
        pattern="storage.weights.bucket.keys_secret",
        namespace=namespaces.MODELS,
        keys=variables.keys_of("bucket"),
        optional=variables.optional_keys_of("bucket"),
        read=lambda values: at(values, "storage", "weights", "source") == "bucket",
    ),
    _Use(
        pattern="storage.weights.oci.login_secret",
        namespace=namespaces.MODELS,
        keys=variables.keys_of("oci"),
        read=lambda values: at(values, "storage", "weights", "source") == "oci",
    ),
    _Use(
        pattern="cluster.machines.etcd_backup.keys_secret",
        namespace=namespaces.ETCD_BACKUP,
        keys=("access_key_id", "secret_access_key"),
        optional=("ca.crt",),
        read=lambda _: True,
    ),
    _Use(
        pattern="database.backups.keys_secret",
        namespace=namespaces.DATABASE,
        keys=("access_key_id", "secret_access_key"),
        optional=("ca.crt",),
        read=lambda _: True,
    ),
    _Use(
        pattern="storage.longhorn.backup_credential_secret",
        namespace=namespaces.STORAGE,
        keys=(),
        read=lambda values: at(values, "storage", "system") == "longhorn",
    ),
    _Use(
        pattern="monitoring.alerts_secret",
        namespace=namespaces.MONITORING,
        keys=("alertmanager.yaml",),
        read=lambda values: at(values, "monitoring", "system") == "prometheus_operator",
    ),
    _Use(
        pattern="monitoring.grafana.admin_secret",
        namespace=namespaces.MONITORING,
        keys=ADMIN_KEYS,
        read=_has_grafana,
    ),
    _Use(
        pattern="dns.rfc2136.tsig_secret",
        namespace=namespaces.DNS,
        keys=(TSIG_SECRET_KEY,),
        read=lambda values: at(values, "dns", "system") == "external_dns",
    ),
    _Use(
        pattern="logs.token_secret",
        namespace=namespaces.LOGS,
        keys=(TOKEN_KEY,),
        read=lambda values: at(values, "logs", "system") == "external",
    ),
    _Use(
        pattern="monitoring.grafana.login.client_secret",
        namespace=namespaces.MONITORING,
        keys=(CLIENT_SECRET_KEY,),
        read=_has_grafana,
    ),
)


def secret_references(values: Mapping[str, Any]) -> Iterator[SecretReference]:
    """Every Secret that something of this site reads and that others than this program write."""
    for use in _USES:
        for path, name in matching(values, use.pattern):
            if not isinstance(name, str) or not use.read(values):
                continue
            keys, optional = (use.keys, use.optional) if use.keys else _of_target(values)
            if keys:
                yield SecretReference(
                    path=path, namespace=use.namespace, name=name, keys=keys, optional=optional, type=use.type
                )


def _of_target(values: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    target = at(values, "storage", "longhorn", "backup_target")
    return _OF_TARGETS.get(str(target).partition("://")[0], ((), ()))
