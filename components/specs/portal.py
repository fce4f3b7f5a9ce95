"""What a site may set for the pages on which people order models and see what they use."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import MOST_VALUES, Spec


class PeopleSpec(Spec):
    """Who may use a tenant's pages of the portal, by groups of the issuer."""

    admins: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups whose people see all keys of the tenant, what it spends, and its bills."""
    users: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups whose people make keys for themselves and see what these use."""


class PortalSpec(Spec):
    """Where people log in, pick a model and get a key for it. It needs a gatekeeper and its directory of keys."""

    hostname: str
    """Name under which browsers reach it; its record in DNS is yours to make, or that of `dns`."""
    port: int = Field(default=443, ge=1, le=65535)
    """Port on the load balancer's address."""
    certificate_secret: str | None = None
    """TLS Secret in the gateway's namespace for `hostname`; required unless the port is 80."""
    address: str | None = None
    """Address of its load balancer; any that is free if not given."""
    endpoint: str | None = None
    """OpenAI's base URL that people are shown, such as `https://llm.site.example/v1`, which the portal calls too; the
    gateway's address if not given."""
    issuer: str
    """Address of the OpenID Connect issuer at which people log in; https unless the site is a `trial`."""
    groups_claim: str = Field(default="groups", min_length=1)
    """Field of the issuer's tokens that lists a person's groups; a dot leads into a field, as in
    `realm_access.roles`."""
    client_id: str = "inference-portal"
    """The portal's name at the issuer, whose redirect address is `https://HOSTNAME/callback`."""
    client_secret: str
    """Secret in the gateway's namespace that you make, with the issuer's secret for this client as `client-secret`."""
    ca: str | None = None
    """Certificates (PEM) by which the portal trusts issuer and endpoint beside public ones; for private ones. Without
    it, it trusts the CA of `certificates.ca_secret` too."""
    operators: tuple[str, ...] = Field(default=(), max_length=MOST_VALUES)
    """Groups whose people see every tenant."""
    orders_by: Literal["users", "admins"] = "users"
    """Whose people order models that are not served, which takes GPUs: all of a tenant, or its admins alone."""
    notice_days: int | None = Field(default=None, ge=1, le=3650)
    """For so long tenants have a model after they could read that it ends: `served_until` may not be earlier, and a
    model without it is not taken from them within this time. The portal shows it, and `plan` and `diff` name each
    change that breaks it."""

    @model_validator(mode="after")
    def _plain_http_only_on_80(self) -> PortalSpec:
        if self.port != 80 and not self.certificate_secret:
            raise WrongValueError(
                f"port {self.port} needs certificate_secret; plain HTTP is allowed on port 80 alone",
                fix="name the TLS Secret of the namespace inference-gateway there, or write port: 80",
            )
        return self

    @property
    def url(self) -> str:
        """Under which browsers reach it."""
        scheme, usual = ("https", 443) if self.certificate_secret else ("http", 80)
        return f"{scheme}://{self.hostname}{'' if self.port == usual else f':{self.port}'}"
