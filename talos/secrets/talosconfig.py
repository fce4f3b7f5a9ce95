"""The talosconfig: a client's credentials for the Talos API, with a role and a lifetime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import yaml

from talos.documents.problems import ConfigError
from talos.secrets import pki
from talos.secrets.bundle import SecretsBundle, system_entropy, utc_now
from talos.secrets.pki import Entropy, base64_of

Role = Literal["os:admin", "os:operator", "os:reader", "os:etcd:backup"]

ROLES: tuple[Role, ...] = ("os:admin", "os:operator", "os:reader", "os:etcd:backup")
YEAR = timedelta(hours=8760)


@dataclass(frozen=True, kw_only=True)
class TalosCredentials:
    """One context of a talosconfig. `endpoints` are control planes that pass calls on, `nodes` whom calls are for."""

    context: str
    endpoints: tuple[str, ...]
    nodes: tuple[str, ...]
    role: Role
    not_after: datetime
    ca: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)

    def render(self) -> str:
        """The file's text; it is as secret as the key in it."""
        context: dict[str, object] = {"endpoints": list(self.endpoints)}
        if self.nodes:
            context["nodes"] = list(self.nodes)
        context |= {"ca": base64_of(self.ca), "crt": base64_of(self.certificate), "key": base64_of(self.key)}
        content = {"context": self.context, "contexts": {self.context: context}}
        return yaml.safe_dump(content, sort_keys=False, default_flow_style=False, width=10**6)


def issue(
    bundle: SecretsBundle,
    *,
    context: str,
    endpoints: tuple[str, ...],
    nodes: tuple[str, ...] = (),
    role: Role = "os:admin",
    lifetime: timedelta = YEAR,
    entropy: Entropy | None = None,
    now: Callable[[], datetime] = utc_now,
) -> TalosCredentials:
    """New credentials, signed by the bundle's Talos CA. They cannot be revoked one by one: keep lifetimes short.

    ConfigError for a role that is not allowed, a lifetime that is not positive or outlives the CA.
    """
    if role not in ROLES:
        raise ConfigError(f"no role is called {role!r}; allowed: {', '.join(ROLES)}", fix="choose one of them")
    if lifetime <= timedelta(0):
        raise ConfigError(f"a lifetime of {lifetime} is over before it starts", fix="give a positive lifetime")
    start = now()
    authority_ends = pki.load_certificate(bundle.talos.certificate, "certs.os.crt").not_valid_after_utc
    if start + lifetime > authority_ends:
        raise ConfigError(
            f"the credentials would outlive the cluster's Talos CA, which ends on {authority_ends:%Y-%m-%d}",
            fix="give a shorter lifetime, or rotate the CA first",
        )
    pair = pki.client_certificate(
        bundle.talos,
        organizations=(role,),
        now=start,
        lifetime=lifetime,
        entropy=system_entropy() if entropy is None else entropy,
    )
    return TalosCredentials(
        context=context,
        endpoints=endpoints,
        nodes=nodes,
        role=role,
        not_after=pki.load_certificate(pair.certificate, "the new certificate").not_valid_after_utc,
        ca=bundle.talos.certificate,
        certificate=pair.certificate,
        key=pair.key,
    )
