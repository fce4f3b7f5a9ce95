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
    Exercise,
    Inspect,
    Mark,
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
from services.watcher.sources import ApiServerSource, AwayError, NotGrantedError, PrometheusSource

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
        self._since: dict[str, float] = {}
        for source in _SOURCES:
            _BLIND.labels(source).set(0)

    def look(self, now: float, clock: float) -> list[Act]:
        """What it did, or was refused; nothing while a source is away.

        now: seconds since 1970; clock: seconds of a clock that is never set, by which agreement is measured.
        """
        try:
            seen = self._see()
            against = agreeing(seen, self._settings)
            self._since = {node: self._since.get(node, clock) for node in against}
            self._show(seen, against, now)
            agreed = {node: clock - since for node, since in self._since.items()}
            acts = decide(seen, self._settings, agreed, now)
            refused = [act for act in acts if not self._try(act, now)]
        except AwayError as away:
            # What was agreed before may have ended meanwhile.
            self._since = {}
            log.warning("nothing is done: %s", away)
            for source in _SOURCES:
                _BLIND.labels(source).set(source == away.source)
            return []
        _BLIND.labels("prometheus").set(0)
        _BLIND.labels("api-server").set(bool(refused))
        if not refused:
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

    def _try(self, act: Act, now: float) -> bool:
        """Whether it was done: one that is refused keeps no other one from being done."""
        try:
            return self._do(act, now)
        except NotGrantedError as refused:
            log.warning("%s: %s", act, refused)
            return False

    def _do(self, act: Act, now: float) -> bool:
        """Whether no eviction of the act failed. Raises AwayError."""
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        match act:
            case Drain(node=node, codes=codes, why=why):
                # First the Lease: of two watchers, as a rollout has them for a moment, one writes it.
                if self._cluster.hold(node, now):
                    marks = {variables.FAULT: ",".join(codes), variables.FAULT_SINCE: stamp, variables.SUSPECT: None}
                    self._cluster.taint(node, variables.FAULT, codes[0], marks)
                    _DRAINS.inc()
                    meaning = self._settings.meanings.get(codes[0], "")
                    text = f"{', '.join(codes)}, and {why}: no replica starts here any more. {meaning}"
                    self._tell(node, "GpuFault", text, now)
            case Evict(replicas=replicas):
                return "failed" not in [self._evict(replica) for replica in replicas]
            case Suspect(node=node, text=text):
                self._cluster.annotate(node, {variables.SUSPECT: text or None})
                if text:
                    self._tell(node, "GpuSuspect", text, now)
            case Mark(node=node, codes=codes):
                self._cluster.annotate(node, {variables.FAULT: ",".join(codes) or None})
            case Inspect(node=node):
                self._cluster.taint(node, variables.CHECK, variables.CHECK_VALUE, {})
            case Exercise(node=node, name=name):
                self._cluster.label(node, {variables.LOAD_TEST: name or None})
            case Admit(node=node, reached=reached):
                # Without the label, the test's pod ends, which has the GPUs.
                marks = {variables.CHECKED: stamp, variables.LOADED: reached or None}
                self._cluster.untaint(node, variables.CHECK, marks, {variables.LOAD_TEST: None})
        return True

    def _evict(self, replica: str) -> str:
        """granted, refused by a budget, or failed. Raises AwayError."""
        try:
            result = "granted" if self._cluster.evict(replica) else "refused"
        except NotGrantedError as refused:
            log.warning("eviction of %s: %s", replica, refused)
            result = "failed"
        _EVICTIONS.labels(result).inc()
        return result

    def _tell(self, node: str, reason: str, text: str, now: float) -> None:
        log.warning("%s: %s", node, text)
        self._cluster.report(node, reason, text, now)
