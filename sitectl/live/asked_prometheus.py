"""Asks a site's own Prometheus, as an operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from floor import namespaces
from sitectl.live import site_service
from sitectl.live.site_cluster import SiteCluster
from sitectl.live.site_service import PlatformService, SiteService


@dataclass(frozen=True)
class AskedPrometheus:
    """Of one site. Every request raises SitectlError where it is refused, or nothing answers."""

    _service: SiteService

    def by_model(self, query: str) -> Mapping[str, float]:
        """What a query gives now for each revision, by its name."""
        answer = self._service.ask("GET", f"/api/v1/query?{urlencode({'query': query})}")
        return {sample["metric"]["model"]: float(sample["value"][1]) for sample in answer["data"]["result"]}

    def over_time(self, query: str, *, begin: float, end: float, every_s: int) -> Mapping[str, Mapping[float, float]]:
        """Revision -> Unix seconds -> what the query gave for it then. begin, end: Unix seconds."""
        asked = {"query": query, "start": f"{begin:.0f}", "end": f"{end:.0f}", "step": every_s}
        answer = self._service.ask("GET", f"/api/v1/query_range?{urlencode(asked)}")
        return {
            series["metric"]["model"]: {float(at): float(value) for at, value in series["values"]}
            for series in answer["data"]["result"]
        }


@contextmanager
def of_cluster(cluster: SiteCluster, page: str) -> Iterator[AskedPrometheus]:
    """Prometheus of a site's cluster. Raises SitectlError where the cluster does not answer, or has none.

    page: of the documentation, for errors.
    """
    prometheus = PlatformService(
        name="prometheus-operated",
        port=9090,
        called="Prometheus",
        namespace=namespaces.MONITORING,
        setting="monitoring.system",
        page=page,
        meanwhile="requests are served, and nothing is measured",
    )
    with site_service.of_cluster(cluster, prometheus) as service:
        yield AskedPrometheus(service)
