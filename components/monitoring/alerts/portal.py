"""Alerts about the portal: that its pages are there, and that what they show can be asked for."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert
from floor.namespaces import GATEWAY

_RUNBOOK, _PORTALS = "portal-away", 'job="portal"'
_OF_PODS = f'{queries.OBJECTS}, namespace="{GATEWAY}", deployment="portal"'
# An estimate. The page of usage asks twice, and one person loads it again.
_FAILURES, _WITHIN = 5, "10m"


def pages() -> list[Alert]:
    """Of a site with a portal. Keys and requests for models need none of it."""
    answering = f"({queries.total('up', _PORTALS)} or vector(0)) == 0"
    # A pod without its catalogue answers Prometheus, and no one else reaches it.
    ready = f"{queries.highest('kube_deployment_status_replicas_available', _OF_PODS)} == 0"
    failures = queries.growth("portal_upstream_failures_total", _PORTALS, by=("part",), window=_WITHIN)
    return [
        Alert(
            name="PortalDown",
            severity="ticket",
            expression=f"{answering} or {ready}",
            minutes=5,
            summary="No pod of the portal is ready",
            description="{{ $value }} is none: people reach no page, and make and revoke no key by themselves. Keys "
            "that exist work.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="PortalPartAway",
            severity="ticket",
            expression=f"{failures} > {_FAILURES}",
            # As long as the window: a burst while a part restarts is over before.
            minutes=10,
            summary="The portal gets no answer from the {{ $labels.part }}",
            description="{{ $value | humanize }} requests within ten minutes; the pages that need it show an error.",
            runbook=_RUNBOOK,
        ),
    ]
