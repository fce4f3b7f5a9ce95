"""One look after the other: sees both sources, decides, acts, and shows in metrics what it did or could not see."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from prometheus_client import Counter, Gauge

from services.watcher import variables
from services.watcher.decision import (
    Act,
    Admit,
    Drain,
    Evict,
    Forget,
    Inspect,
    Seen,
    Suspect,
    agreeing,
    decide,
    faults_of,
    held,
    in_cluster,
    unfit,
)
from services.watcher.settings import WatcherSettings
from services.watcher.sources import ApiServerSource, AwayError, PrometheusSource

_LOOKED = Gauge("watcher_looked_timestamp_seconds", "When both sources were last seen whole.")
_BLIND = Gauge("watcher_blind", "1 while a source does not answer, and nothing is done.", ["source"])
_REPORTED = Gauge("watcher_reported", "1 for a node in service that a source reports.", ["node", "source"])
_OUT = Gauge("watcher_out", "1 for a node that was taken out.", ["node", "fault"])
_HELD = Gauge("watcher_held", "1 for a node that both sources report and that stays in service.", ["node", "reason"])
_UNCHECKED = Gauge("watcher_unchecked", "1 for a new node that takes no replica yet.", ["node", "reason"])
_DRAINS = Counter("watcher_drains", "Nodes that were taken out.")
_EVICTIONS = Counter("watcher_evictions", "Evictions of replicas that were asked for.", ["result"])
_SOURCES = ("prometheus", "api-server")

log = logging.getLogger(__name__)


class NodeWatch:
    """What it remembers is in the API server, but since when both sources agree: after a restart they do so again."""

    def __init__(self, settings: WatcherSettings, prometheus: PrometheusSource, cluster: ApiServerSource) -> None:
        self._settings, self._prometheus, self._cluster = settings, prometheus, cluster
        self._agreed: dict[str, float] = {}
        # Until the first look ends, its age is that of the start.
        _LOOKED.set_to_current_time()
        for source in _SOURCES:
            _BLIND.labels(source).set(0)

    def look(self, now: float) -> list[Act]:
        """What it did; nothing while a source is away. now: seconds since 1970."""
        try:
            seen = self._see()
            against = agreeing(seen, self._settings)
            self._agreed = {node: self._agreed.get(node, now) for node in against}
            self._show(seen, against, now)
            acts = decide(seen, self._settings, self._agreed, now)
            for act in acts:
                self._do(act, now)
        except AwayError as away:
            # What was agreed before may have ended meanwhile.
            self._agreed = {}
            log.warning("nothing is done: %s", away)
            for source in _SOURCES:
                _BLIND.labels(source).set(source == away.source)
            return []
        for source in _SOURCES:
            _BLIND.labels(source).set(0)
        _LOOKED.set(now)
        return acts

    def _see(self) -> Seen:
        return Seen(
            faults=self._prometheus.faults(),
            measured=self._prometheus.measured(),
            joining=self._prometheus.joining() if self._settings.checks else {},
            nodes=self._cluster.nodes(),
            last=self._cluster.last(),
        )

    def _show(self, seen: Seen, against: dict[str, str], now: float) -> None:
        for gauge in (_OUT, _HELD, _UNCHECKED, _REPORTED):
            gauge.clear()
        for name, offer in self._settings.nodes.items():
            node = seen.nodes.get(name)
            if node is None:
                continue
            if node.taint:
                _OUT.labels(name, node.taint).set(1)
            else:
                _REPORTED.labels(name, "dcgm").set(bool(faults_of(name, seen, self._settings)))
                _REPORTED.labels(name, "cluster").set(bool(in_cluster(node, offer)))
            if name in against and self._settings.drains and (why := held(name, seen, self._settings, now)):
                _HELD.labels(name, why).set(1)
            if node.checking:
                _UNCHECKED.labels(name, unfit(name, seen, self._settings)).set(1)

    def _do(self, act: Act, now: float) -> None:
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        match act:
            case Drain(node=node, code=code, why=why):
                # First the Lease: of two watchers, as a rollout has them for a moment, one writes it.
                if self._cluster.hold(node, now):
                    marks = {variables.FAULT: code, variables.FAULT_SINCE: stamp, variables.SUSPECT: None}
                    self._cluster.taint(node, variables.FAULT, code, marks)
                    _DRAINS.inc()
                    meaning = self._settings.meanings.get(code, "")
                    self._tell(node, "GpuFault", f"{code}, and {why}: no replica starts here any more. {meaning}", now)
            case Evict(replicas=replicas):
                for replica in replicas:
                    granted = self._cluster.evict(replica)
                    _EVICTIONS.labels("granted" if granted else "refused").inc()
            case Suspect(node=node, text=text):
                self._cluster.annotate(node, {variables.SUSPECT: text or None})
                if text:
                    self._tell(node, "GpuSuspect", text, now)
            case Forget(node=node):
                self._cluster.annotate(node, {variables.FAULT: None, variables.FAULT_SINCE: None})
            case Inspect(node=node):
                self._cluster.taint(node, variables.CHECK, variables.CHECK_VALUE, {})
            case Admit(node=node):
                self._cluster.untaint(node, variables.CHECK, {variables.CHECKED: stamp})

    def _tell(self, node: str, reason: str, text: str, now: float) -> None:
        log.warning("%s: %s", node, text)
        self._cluster.report(node, reason, text, now)
