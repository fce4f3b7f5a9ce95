"""Grafana with the platform's dashboards over the program's own Prometheus, by its community's chart.

It keeps nothing: dashboards are the ConfigMaps that monitoring makes, mounted by their names, so that it needs no right
at the API server. Settings go in as variables, which Grafana reads by section and key of its configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from components.addons.addon import Addon, AddonChart, AddonComponent, AddonContent, AddonRelease, AddonSite, Measuring
from components.addons.trusted_roots import trusted_roots
from components.network_policies import Peer, Rule, allow_ingress, peer, read_by
from components.scrape_target import Relabeling, ScrapeTarget
from components.specs.administrators import AdministratorsSpec
from components.specs.grafana import PASSWORD_KEY, USER_KEY, GrafanaLoginSpec, GrafanaSpec
from floor import namespaces
from services.portal.variables import CLIENT_SECRET_KEY

NAMESPACE = namespaces.MONITORING
RELEASE = "grafana"
GRAFANA_PODS = {"app.kubernetes.io/name": RELEASE}
PORT = 3000
SOURCE_UID = "prometheus"
_DASHBOARDS, _ROOTS = "/var/lib/grafana/dashboards", "/etc/grafana/roots"
# The page that a person sees first; Grafana's own shows what its makers publish.
_HOME = f"{_DASHBOARDS}/inference-slo.json"
# No figure of a run. Its database is a file of some MB, as only sessions are in it.
_SMALL = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
_NAMES = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
# Whether it answers is all that an alert asks; it would send some thousand samples.
_NO_SAMPLES: Relabeling = {"action": "drop", "sourceLabels": ["__name__"], "regex": ".+"}

# By section and key: by itself it sends and fetches nothing outside, and no one sees anything without a login.
_AT_HOME: Mapping[str, Mapping[str, bool]] = {
    "analytics": {
        "reporting_enabled": False,
        "check_for_updates": False,
        "check_for_plugin_updates": False,
        "feedback_links_enabled": False,
    },
    "news": {"news_feed_enabled": False},
    "security": {"disable_gravatar": True},
    "snapshots": {"enabled": False, "external_enabled": False},
    # The source for Prometheus is in the image; what is not is left out.
    "plugins": {
        "preinstall_disabled": True,
        "preinstall_auto_update": False,
        "plugin_admin_enabled": False,
        "public_key_retrieval_disabled": True,
    },
    "auth.anonymous": {"enabled": False},
    "public_dashboards": {"enabled": False},
    "users": {"allow_sign_up": False},
    # Alerts are Prometheus's and Alertmanager's.
    "unified_alerting": {"enabled": False},
}


def grafana_values(
    spec: GrafanaSpec,
    measuring: Measuring,
    people: AdministratorsSpec | None = None,
    roots: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Values of its chart. people: with whose issuer and groups `login` works. roots: certificates that it trusts."""
    security: dict[str, Any] = {**_AT_HOME["security"], "cookie_secure": spec.url.startswith("https:")}
    settings: dict[str, Mapping[str, Any]] = {
        **_AT_HOME,
        "security": security,
        "server": {"root_url": f"{spec.url}/"},
        "dashboards": {"default_home_dashboard_path": _HOME},
    }
    login: dict[str, Any]
    if spec.login and people:
        settings |= _login(spec.login, people)
        # Only where it is true: the chart takes any text for yes.
        security["disable_initial_admin_creation"] = True
        secret = {"name": spec.login.client_secret, "key": CLIENT_SECRET_KEY}
        login = {"envValueFrom": {_variable("auth.generic_oauth", "client_secret"): {"secretKeyRef": secret}}}
    else:
        login = {"admin": {"existingSecret": spec.admin_secret, "userKey": USER_KEY, "passwordKey": PASSWORD_KEY}}
    variables = {_variable(part, key): _text(value) for part, keys in settings.items() for key, value in keys.items()}
    sources = [{"configMap": {"name": name}} for name in measuring.dashboards]
    trusted = _trusted(roots or {}) if spec.login else {}
    return {
        **login,
        "rbac": {"create": False},
        "automountServiceAccountToken": False,
        "testFramework": {"enabled": False},
        "service": {"port": PORT},
        "resources": _SMALL,
        "env": {**variables, **({"SSL_CERT_DIR": _ROOTS} if trusted else {})},
        "datasources": {"datasources.yaml": {"apiVersion": 1, "datasources": [_source(measuring)]}},
        "dashboardProviders": {"dashboardproviders.yaml": {"apiVersion": 1, "providers": [_provider()]}},
        "extraContainerVolumes": [{"name": "dashboards", "projected": {"sources": sources}}],
        "extraVolumeMounts": [{"name": "dashboards", "mountPath": _DASHBOARDS, "readOnly": True}],
        **trusted,
    }


def _variable(section: str, key: str) -> str:
    return f"GF_{section}_{key}".replace(".", "_").upper()


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(measuring: Measuring) -> dict[str, Any]:
    """The only one, which each dashboard's variable takes."""
    return {
        "name": "Prometheus",
        "uid": SOURCE_UID,
        "type": "prometheus",
        "access": "proxy",
        "url": measuring.prometheus,
        "isDefault": True,
        "editable": False,
        "jsonData": {"httpMethod": "POST", "timeInterval": f"{measuring.interval_s}s"},
    }


def _provider() -> dict[str, Any]:
    return {
        "name": "inference",
        "folder": "Inference platform",
        "type": "file",
        "disableDeletion": True,
        "allowUiUpdates": False,
        "options": {"path": _DASHBOARDS},
    }


def _login(login: GrafanaLoginSpec, people: AdministratorsSpec) -> dict[str, Mapping[str, Any]]:
    """A person without a role of the cluster has none here, and there is no password."""
    roles = {"Admin": people.admins, "Editor": people.operators, "Viewer": people.viewers}
    claim = json.dumps(people.groups_claim)
    path = [f"contains({claim}[*], '{group}') && '{role}'" for role, groups in roles.items() for group in groups]
    return {
        "auth": {"disable_login_form": True},
        "auth.basic": {"enabled": False},
        "auth.generic_oauth": {
            "enabled": True,
            "auto_login": True,
            "allow_sign_up": True,
            "client_id": login.client_id,
            "scopes": " ".join(login.scopes),
            "auth_url": login.authorization_url,
            "token_url": login.token_url,
            "use_pkce": True,
            "login_attribute_path": json.dumps(people.username_claim),
            "email_attribute_path": json.dumps(people.username_claim),
            "role_attribute_path": " || ".join(path),
            "role_attribute_strict": True,
        },
    }


def _trusted(roots: Mapping[str, str]) -> dict[str, Any]:
    if not roots:
        return {}
    body = trusted_roots("grafana-roots", NAMESPACE, roots)
    mount = {"name": "roots", "mountPath": _ROOTS, "configMap": body["metadata"]["name"], "readOnly": True}
    return {"extraObjects": [body], "extraConfigmapMounts": [mount]}


def network_policies(spec: GrafanaSpec, measuring: Measuring, scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """The site's proxy reaches it, and it reaches Prometheus, and the issuer's port wherever that is: a NetworkPolicy
    knows no host names."""
    asked = [([peer({}, spec.proxy.namespace)], [PORT])] if spec.proxy else []
    egress: list[Rule] = [
        {"to": [dict(measuring.pods)], "ports": [{"protocol": "TCP", "port": measuring.port}]},
        {"ports": _NAMES},
    ]
    if spec.login:
        egress.append({"ports": [{"protocol": "TCP", "port": urlsplit(spec.login.token_url).port or 443}]})
    return [allow_ingress(RELEASE, NAMESPACE, GRAFANA_PODS, [*asked, *read_by(scrapers, PORT)], egress=egress)]


def content(site: AddonSite) -> AddonContent:
    """Works when Helm has seen its pod ready."""
    spec, measuring = site.spec(GrafanaSpec), site.measuring
    if measuring is None:
        raise ValueError("grafana: the program installs no Prometheus")
    values = grafana_values(spec, measuring, site.administrators, site.trusted_roots)
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=site.charts["grafana"], values=values)],
        network_policies=network_policies(spec, measuring, site.scrapers),
    )


GRAFANA = Addon(
    key="grafana",
    switch="monitoring.grafana.run_by",
    on="platform",
    namespace=NAMESPACE,
    section="monitoring.grafana",
    charts=(
        AddonChart(
            name="grafana",
            release=RELEASE,
            uninstalled="no dashboard is shown any more; what is measured stays, and alerts go on",
            upgraded="its pod restarts: people log in again, and what they saved in it is gone",
        ),
    ),
    targets=(
        ScrapeTarget(
            name="grafana",
            job="grafana",
            namespace=NAMESPACE,
            pods=GRAFANA_PODS,
            port=PORT,
            sample_labels=[_NO_SAMPLES],
        ),
    ),
    component=AddonComponent(
        name="grafana",
        resource_type="grafana:Grafana",
        # Monitoring makes the namespace, and the objects that it mounts and asks.
        pod_security=None,
        content=content,
        needs=("monitoring",),
    ),
)
