"""Images of this repository's own services, which no registry has until a site's operator has built and pushed them."""

from __future__ import annotations

UNBUILT = "ghcr.io/inference-platform/"
"""What their names in versions.yaml begin with. A site may name copies of them in a registry of its own."""
PYTHON_SERVICES = ("directory", "ledger", "portal", "watcher")
SERVICES = ("gatekeeper", *PYTHON_SERVICES)
"""By their names in versions.yaml, which are those of their folders too."""


def is_built_here(image: str) -> bool:
    """Whether an image, by name with or without tag and digest, is one that `sitectl bundle services` builds."""
    return image.startswith(UNBUILT)


def service_of(image: str) -> str:
    """The service of an image that is built here."""
    return image.removeprefix(UNBUILT).partition("@")[0].partition(":")[0]
