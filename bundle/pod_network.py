"""Cilium's manifest: its chart, rendered as the machines of a site use it."""

from __future__ import annotations

from bundle.errors import BundleError
from talos.cni import cilium_manifest
from talos.documents.problems import ConfigError


def manifest(rendered: str, version: str) -> str:
    """The manifest out of the chart as Helm rendered it. BundleError where it is none that a cold cluster can use."""
    try:
        return cilium_manifest(rendered)
    except ConfigError as error:
        raise BundleError(f"Cilium {version}: {error.what}", fix=error.fix) from error
    except (AttributeError, LookupError, TypeError, ValueError):
        raise BundleError(
            f"Cilium {version} renders to objects that are not whole", fix="take the chart from its publisher"
        ) from None
