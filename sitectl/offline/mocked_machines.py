"""What `mocked_program` keeps of a site's machines: the program's own view of them, with every secret masked.

Imports nothing of this package, and of the program only what it runs: an older revision may know no such view.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any


class ShownMachines:
    """The machines of the stack that runs."""

    def __init__(self) -> None:
        self.shown: dict[str, Any] | None = {}
        """Keys and documents by machine; {} for a site without machines, None where the program cannot show them."""

    def watch(self) -> bool:
        """Look on while the program declares its cluster, and replace Cilium's manifest, which is not read.

        False for the program of a revision that has no such place.
        """
        with contextlib.suppress(ImportError, AttributeError):
            access: Any = importlib.import_module("stacks.program.cluster_access")
            really = getattr(access.cluster_args, "really", access.cluster_args)

            def watched(plan: Any, **given: Any) -> Any:
                self.shown = _shown(plan, given.get("cilium"))
                return really(plan, **given)

            watched.really = really  # type: ignore[attr-defined]
            access.cluster_args, access._cilium = watched, pinned_manifest
            return True
        self.shown = None
        return False


def _shown(plan: Any, cilium: str | None) -> dict[str, Any] | None:
    with contextlib.suppress(ImportError):
        view: Any = importlib.import_module("stacks.plan.shown_machines")
        shown: dict[str, Any] = view.shown_machines(plan, cilium)
        return shown
    return None


def pinned_manifest(site: Any, versions: Any) -> str | None:
    """In the place of Cilium's manifest: its version and digest, by which `up` takes it."""
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        charts: Any = importlib.import_module("stacks.plan.charts")
        if charts.cilium_manifest(site) is not None:
            # An older program has one choice alone.
            also = {"measured": True} if getattr(site, "measures_pod_network", False) else {}
            digest = versions.cilium.digest(bgp=charts.announces_by_bgp(site), **also)
            return f"Cilium {versions.cilium.version}, sha256 {digest}"
    return None
