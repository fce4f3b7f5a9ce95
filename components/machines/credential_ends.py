"""When the credentials of a cluster end, for alerts and as warnings of a preview: nothing renews them by itself."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pulumi
import yaml

from talos.secrets import pki

# Long enough for a site that is previewed once a month.
SOON = timedelta(days=60)
# No key renews an authority of a running cluster, so a new cluster has to be planned.
SOON_FOR_AUTHORITIES = timedelta(days=365)
_AUTHORITIES = ("etcd", "k8s", "k8saggregator", "os")
_FIELDS = ("client-certificate-data", "crt")
_RENEW = "increase cluster.machines.credentials_rotation and run `pulumi up`; docs/how-to/rotate-talos-secrets.md"
_REPLACE = "no key of a site renews it; docs/how-to/rotate-talos-secrets.md"


def _now() -> datetime:
    return datetime.now(UTC)


def warn_of_ends(
    *,
    kubeconfig: pulumi.Output[str],
    talosconfig: pulumi.Output[str],
    bundle: pulumi.Output[str],
    clock: Callable[[], datetime] = _now,
) -> None:
    """In a preview, warn of each that ends soon or has ended, once it is known. Asks no machine; `up` is silent."""
    if not pulumi.runtime.is_dry_run():
        return

    def warn(lines: Iterable[str]) -> None:
        for line in lines:
            pulumi.log.warn(line)

    kubeconfig.apply(lambda text: warn(credential_ends("kubeconfig", text, clock())))
    talosconfig.apply(lambda text: warn(credential_ends("talosconfig", text, clock())))
    bundle.apply(lambda text: warn(authority_ends(text, clock())))


def ends_in_unix_s(
    *, kubeconfig: pulumi.Output[str], talosconfig: pulumi.Output[str], bundle: pulumi.Output[str]
) -> dict[str, dict[str, pulumi.Output[int]]]:
    """The end of each credential and authority, in seconds since 1970, by what it is and its name. None is secret."""

    def end(text: pulumi.Output[str], section: str | None = None) -> pulumi.Output[int]:
        return pulumi.Output.unsecret(text.apply(lambda known: first_end(known, section)))

    return {
        "credential": {"kubeconfig": end(kubeconfig), "talosconfig": end(talosconfig)},
        "authority": {name: end(bundle, name) for name in _AUTHORITIES},
    }


def first_end(text: str, section: str | None = None) -> int:
    """When the first certificate of a text, or of one of its sections, ends. Without one that can be read, 1970."""
    ends = [last for name, last in _certificates(text) if section in (None, name)]
    return int(min(ends).timestamp()) if ends else 0


def credential_ends(name: str, text: str, at: datetime) -> Iterator[str]:
    """A line for each certificate of a client in a kubeconfig or talosconfig that ends soon."""
    for _, last in _certificates(text):
        if last - at <= SOON:
            yield f"the stack's {name} {_when(last, at)}\n  fix: {_RENEW}"


def authority_ends(bundle: str, at: datetime) -> Iterator[str]:
    """A line for each authority of a secrets bundle that ends soon."""
    for name, last in _certificates(bundle):
        if name in _AUTHORITIES and last - at <= SOON_FOR_AUTHORITIES:
            yield f"the cluster's authority {name} {_when(last, at)}\n  fix: {_REPLACE}"


def _when(last: datetime, at: datetime) -> str:
    return f"ended on {last:%Y-%m-%d}" if last <= at else f"ends on {last:%Y-%m-%d}, in {(last - at).days} days"


def _certificates(text: str) -> Iterator[tuple[str, datetime]]:
    """Each certificate of a field that has a client's or an authority's: the section above it, and its end."""
    try:
        fields = list(_fields(yaml.safe_load(text), ""))
    except yaml.YAMLError:
        return
    for section, encoded in fields:
        try:
            pem = base64.b64decode(encoded).decode()
            yield section, pki.load_certificate(pem, section).not_valid_after_utc
        except ValueError:
            continue


def _fields(content: Any, section: str) -> Iterator[tuple[str, str]]:
    if isinstance(content, list):
        for item in content:
            yield from _fields(item, section)
    elif isinstance(content, Mapping):
        for key, value in content.items():
            if key in _FIELDS and isinstance(value, str):
                yield section, value
            else:
                yield from _fields(value, str(key))
