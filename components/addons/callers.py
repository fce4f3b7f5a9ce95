"""The platform's own services: about callers, who they are and what they used, which `components/tenants` installs, and
about GPUs with a fault, which `components/monitoring` does.
"""

from __future__ import annotations

from components.addons.addon import Addon, AddonImage
from components.scrape_target import ScrapeTarget
from floor import namespaces
from services.directory import variables
from services.ledger import variables as ledger
from services.portal import variables as of_portal
from services.watcher import variables as watcher

STATE_PORT = 9002
"""Of a gatekeeper: its health and metrics."""


def _own_service(name: str, switch: str, port: int, *, space: str = namespaces.GATEWAY, user: str = "callers") -> Addon:
    image = AddonImage(name=name, container=name, user=user)
    target = ScrapeTarget(name=name, job=name, namespace=space, pods={"app.kubernetes.io/name": name}, port=port)
    return Addon(key=name, switch=switch, on=True, namespace=space, images=(image,), targets=(target,))


GATEKEEPER = _own_service("gatekeeper", "has_gatekeeper", STATE_PORT)
PORTAL = _own_service(of_portal.SERVICE, "has_portal", of_portal.DEFAULT_PORT)
DIRECTORY = _own_service(variables.SERVICE, "has_directory", variables.DEFAULT_PORT)
LEDGER = _own_service(ledger.SERVICE, "has_ledger", ledger.DEFAULT_PORT)
WATCHER = _own_service(
    watcher.SERVICE, "has_watcher", watcher.PORT, space=namespaces.MONITORING, user="watcher of GPU faults"
)
