"""What decides about callers, where a site asks a gatekeeper: `components/tenants` installs both."""

from __future__ import annotations

from components.addons.addon import Addon, AddonImage
from floor import namespaces


def _of_callers(name: str, switch: str) -> Addon:
    image = AddonImage(name=name, container=name, user="callers")
    return Addon(key=name, switch=switch, on=True, namespace=namespaces.GATEWAY, images=(image,))


GATEKEEPER = _of_callers("gatekeeper", "has_gatekeeper")
DIRECTORY = _of_callers("directory", "has_directory")
