"""The platform's own services about callers: who they are, and what they used. `components/tenants` installs them."""

from __future__ import annotations

from components.addons.addon import Addon, AddonImage
from components.scrape_target import ScrapeTarget
from floor import namespaces
from services.directory import variables
from services.ledger import variables as ledger
from services.portal import variables as of_portal

STATE_PORT = 9002
"""Of a gatekeeper: its health and metrics."""


def _of_callers(name: str, switch: str, port: int) -> Addon:
    space = namespaces.GATEWAY
    image = AddonImage(name=name, container=name, user="callers")
    target = ScrapeTarget(name=name, job=name, namespace=space, pods={"app.kubernetes.io/name": name}, port=port)
    return Addon(key=name, switch=switch, on=True, namespace=space, images=(image,), targets=(target,))


GATEKEEPER = _of_callers("gatekeeper", "has_gatekeeper", STATE_PORT)
PORTAL = _of_callers(of_portal.SERVICE, "has_portal", of_portal.DEFAULT_PORT)
DIRECTORY = _of_callers(variables.SERVICE, "has_directory", variables.DEFAULT_PORT)
LEDGER = _of_callers(ledger.SERVICE, "has_ledger", ledger.DEFAULT_PORT)
