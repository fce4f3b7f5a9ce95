"""Runs the stand-in as the engine runs a provider plugin: `python -m lab.plugins.kubernetes ENGINE_ADDRESS`."""

from __future__ import annotations

import sys

from lab.plugins.kubernetes import STAND_IN, VERSION, helm
from lab.plugins.kubernetes.provider import KubernetesProvider
from lab.plugins.protocol import serve


def main() -> None:
    """Serve until the engine goes, or print what this is."""
    if "--help" in sys.argv or "-h" in sys.argv:
        print(f"{STAND_IN}\n\nThe Pulumi engine starts it; it prints its port and serves the provider protocol.")
        return
    if "--version" in sys.argv:
        print(VERSION)
        return
    serve(KubernetesProvider, on_end=helm.end_all)


main()
