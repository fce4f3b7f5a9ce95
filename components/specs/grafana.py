"""What a site may set for a Grafana that this program installs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec, refuse_unread

# What `kubectl port-forward` of the how-to gives it.
LOCAL_URL = "http://localhost:3000"
# Of the Secret with the only login.
ADMIN_KEYS = USER_KEY, PASSWORD_KEY = "admin-user", "admin-password"


class GrafanaLoginSpec(Spec):
    """Logins at the issuer of `cluster.machines.administrators`, whose groups decide what a person may do."""

    client_id: str = Field(default="grafana", min_length=1)
    """Grafana's name at the issuer, whose redirect address is URL/login/generic_oauth: URL is that of `proxy`, or
    `http://localhost:3000`."""
    client_secret: str
    """Secret in `inference-monitoring` that you make, with the issuer's secret for this client as `client-secret`."""
    authorization_url: str
    """The issuer's `authorization_endpoint`, which browsers reach; `ISSUER/.well-known/openid-configuration` has it."""
    token_url: str
    """The issuer's `token_endpoint`, which Grafana's pod reaches at this port of its host. Its CA, where private, is in
    `cluster.machines.trusted_roots`."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """What Grafana asks the issuer for. Add `groups` where the issuer's `scopes_supported` has it."""


class GrafanaProxySpec(Spec):
    """A proxy of yours by which browsers reach Grafana, and which ends TLS."""

    namespace: str
    """Its namespace. All pods there may reach Grafana's login page, at port 3000 of the Service `grafana`."""
    url: str
    """Address under which browsers reach Grafana through it, such as `https://grafana.site.example`."""


class GrafanaSpec(Spec):
    """Who runs the Grafana that shows the dashboards."""

    run_by: Literal["external", "platform"] = "external"
    """`external`: your own Grafana, if any, which finds the dashboards by their label. `platform`: this program
    installs Grafana beside its own Prometheus, with these dashboards and that Prometheus in it, and nothing else. By
    itself it asks no one outside but the issuer. What people save in it is lost when its pod restarts."""
    login: GrafanaLoginSpec | None = None
    """People log in at the issuer; either this or `admin_secret` with `run_by: platform`."""
    admin_secret: str | None = None
    """Secret in `inference-monitoring` that you make, with `admin-user` and `admin-password`: the only login. A change
    of it holds once Grafana's pod has restarted. `up` waits 15 minutes until it is there."""
    proxy: GrafanaProxySpec | None = None
    """How browsers reach it; if not given, only who may forward ports in `inference-monitoring` does."""

    @property
    def url(self) -> str:
        """Under which browsers reach it, without a slash at the end."""
        return self.proxy.url.rstrip("/") if self.proxy else LOCAL_URL

    @model_validator(mode="after")
    def _is_read(self) -> GrafanaSpec:
        if self.run_by == "external":
            refuse_unread(self, instead="platform")
        return self

    @model_validator(mode="after")
    def _one_way_in(self) -> GrafanaSpec:
        if self.run_by == "platform" and (self.login is None) == (self.admin_secret is None):
            raise WrongValueError(
                f"has {'neither' if self.login is None else 'both'} of login and admin_secret",
                allowed="one of them",
                fix="name the issuer's addresses in login, or a Secret with a password in admin_secret",
            )
        return self
