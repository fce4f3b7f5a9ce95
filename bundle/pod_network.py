"""Cilium's manifest: its chart, rendered as the machines of a site use it."""

from __future__ import annotations

from bundle.errors import BundleError
from bundle.helm import Helm
from components.addons.charts import Chart
from talos.cni import cilium_manifest, cilium_values
from talos.problems import ConfigError


def manifest(helm: Helm, chart: Chart, kubernetes: str) -> str:
    """The manifest for this version of Kubernetes. BundleError where it is none that a cold cluster can use."""
    text = helm.render(chart, "cilium", cilium_values(), namespace="kube-system", kubernetes=kubernetes)
    try:
        return cilium_manifest(text)
    except ConfigError as error:
        raise BundleError(f"Cilium {chart.version}: {error.what}", fix=error.fix) from error
    except (AttributeError, LookupError, TypeError, ValueError):
        raise BundleError(
            f"Cilium {chart.version} renders to objects that are not whole", fix="take the chart from its publisher"
        ) from None
