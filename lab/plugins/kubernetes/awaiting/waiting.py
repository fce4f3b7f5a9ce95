"""Follows an object through the API server until it is ready or gone, and reports what it waits for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from lab.plugins.kubernetes.awaiting import expressions, readiness, services
from lab.plugins.kubernetes.awaiting.following import follow
from lab.plugins.kubernetes.awaiting.readiness import Readiness
from lab.plugins.kubernetes.awaiting.troubles import troubles_of
from lab.plugins.kubernetes.errors import ApiError, CancelledError, PartialError, UnreachableError
from lab.plugins.kubernetes.objects import (
    SKIP_AWAIT,
    WAIT_FOR,
    annotated_true,
    annotation,
    gvk_of,
    metadata,
    name_of,
)
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import Operation
from lab.watching import Change

# How long one watch lasts before the object's surroundings (Pods, events) are looked at again.
_WATCH_S: Final = 5
_TROUBLES_EVERY_S: Final = 10.0

# Kinds whose removal need not be awaited when they carry the skipAwait annotation.
_SKIPS_DELETION: Final = frozenset(
    {("", "Namespace"), ("", "Pod"), ("", "ReplicationController"), ("apps", "DaemonSet"), ("apps", "Deployment")}
    | {("apps", "StatefulSet"), ("batch", "Job")}
)


@dataclass
class Probe:
    """Decides about one object; `alone` is False if other objects matter too, which its events do not show."""

    check: Callable[[Tree], Readiness]
    alone: bool = True


def probe_for(operation: Operation, inputs: Tree, live: Tree, *, created: bool) -> Probe | None:
    """What to wait for after the object was written, or None. Raises ProviderError on a bad waitFor annotation."""
    if annotated_true(inputs, SKIP_AWAIT):
        return None
    wait_for = annotation(live, WAIT_FOR) or annotation(inputs, WAIT_FOR)
    if wait_for:
        checks = expressions.parse(wait_for)
        return Probe(lambda obj: _all(checks, obj))
    gvk = gvk_of(live)
    cluster = operation.session.cluster
    if (gvk.group, gvk.kind) == ("", "Service"):
        return Probe(services.ServiceProbe(cluster), alone=False)
    if (gvk.group, gvk.kind) == ("networking.k8s.io", "Ingress"):
        return Probe(services.IngressProbe(cluster), alone=False)
    if (gvk.group, gvk.kind) == ("", "PersistentVolumeClaim"):
        return Probe(services.ClaimProbe(cluster, created=created))
    rule = readiness.rule_of(live)
    if rule is None and os.environ.get("PULUMI_K8S_AWAIT_ALL") == "true":
        rule = readiness.generic
    return Probe(rule) if rule else None


def _all(checks: list[expressions.Check], obj: Tree) -> Readiness:
    results = [check(obj) for check in checks]
    open_ones = [result for result in results if not result.ready]
    if not open_ones:
        return results[-1]
    reasons = [reason for result in open_ones for reason in result.reasons]
    build = Readiness.never if any(result.failed for result in open_ones) else Readiness.not_yet
    return build(open_ones[0].message, reasons)


def until_ready(operation: Operation, inputs: Tree, live: Tree, *, created: bool) -> Tree:
    """Wait until the object is ready and return it as it is then.

    Raises PartialError when the time is up, the operation is cancelled, or the object is gone or can never be ready.
    """
    try:
        probe = probe_for(operation, inputs, live, created=created)
    except Exception as error:
        raise PartialError(str(error), live) from error
    if probe is None:
        return live
    gvk = gvk_of(live)
    limit = readiness.limit_s(gvk, operation.time_limit_s(inputs))
    return _Follower(operation, probe, live, time.monotonic() + limit, limit).run()


class _Follower:
    """Follows one object with a watch; between two watches it looks at what keeps the object from being ready."""

    def __init__(self, operation: Operation, probe: Probe, live: Tree, deadline: float, limit: float) -> None:
        self._operation = operation
        self._probe = probe
        self._live = live
        self._deadline = deadline
        self._limit = limit
        self._generation = int(metadata(live).get("generation") or 0)
        self._shown = ""
        self._troubles: list[str] = []
        self._troubles_at = time.monotonic()

    def run(self) -> Tree:
        result = self._look(self._live)
        with closing(follow(self._operation.session.cluster, self._live, self._seconds)) as changes:
            while not result.ready:
                if result.failed:
                    self._troubles = self._find_troubles()
                    raise self._failure("it failed and will not recover by itself", result)
                if time.monotonic() >= self._deadline:
                    self._troubles = self._find_troubles()
                    raise self._failure(f"timed out after {self._limit:.0f} s", result)
                result = self._next(changes, result)
        if self._shown:
            self._operation.status("")
        return self._live

    def _seconds(self) -> int:
        # An object that depends on others is looked at more often, for its own events do not show them.
        return _watch_s(_WATCH_S if self._probe.alone else 1, self._deadline)

    def _next(self, changes: Iterator[Change | None], result: Readiness) -> Readiness:
        try:
            self._operation.session.cluster.pause(0)
            change = next(changes)
        except CancelledError as error:
            raise self._failure("the wait was cancelled", result) from error
        except (ApiError, UnreachableError) as error:
            raise PartialError(str(error), self._live, result.reasons) from error
        if change and change.gone:
            raise self._failure(f"'{name_of(self._live)}' was deleted while it was awaited", result)
        if change:
            return self._look(change.object)
        result = self._look(self._live)
        if not result.ready and time.monotonic() - self._troubles_at >= _TROUBLES_EVERY_S:
            self._troubles_at = time.monotonic()
            self._troubles = self._find_troubles()
            for trouble in self._troubles[:3]:
                self._operation.status(trouble)
        return result

    def _look(self, obj: Tree) -> Readiness:
        # The server's cache may still hold what was before our own write.
        if int(metadata(obj).get("generation") or 0) < self._generation:
            return Readiness.not_yet(self._shown, [])
        self._live = obj
        result = self._probe.check(obj)
        if not result.ready and result.message != self._shown:
            self._shown = result.message
            self._operation.status(result.message)
        return result

    def _find_troubles(self) -> list[str]:
        try:
            return troubles_of(self._operation.session.cluster, self._live)
        except Exception as error:  # noqa: BLE001 - what only explains a failure must not hide it
            return [f"could not look at Pods and events: {error}"]

    def _failure(self, text: str, result: Readiness) -> PartialError:
        return PartialError(text, self._live, [*result.reasons, *self._troubles])


def look_once(operation: Operation, inputs: Tree, live: Tree) -> list[str]:
    """Reasons why a live object is not ready now; empty if it is, or if nothing waits for it."""
    if not readiness.checked_on_read(gvk_of(live)) or annotation(live, WAIT_FOR):
        return []
    probe = probe_for(operation, inputs, live, created=False)
    if probe is None:
        return []
    if isinstance(probe.check, (services.ServiceProbe, services.IngressProbe)):
        probe.check.settle_s = 0.0
    result = probe.check(live)
    if result.ready:
        return []
    return [*(result.reasons or [result.message]), *troubles_of(operation.session.cluster, live)]


def until_gone(operation: Operation, inputs: Tree, live: Tree) -> None:
    """Wait until the object is deleted. Raises PartialError naming its finalizers when the time is up."""
    gvk = gvk_of(live)
    if annotated_true(inputs, SKIP_AWAIT) and (gvk.group, gvk.kind) in _SKIPS_DELETION:
        return
    limit = operation.time_limit_s(inputs)
    deadline = time.monotonic() + limit
    shown = ""
    with closing(follow(operation.session.cluster, live, lambda: _watch_s(_WATCH_S, deadline))) as changes:
        while True:
            if time.monotonic() >= deadline:
                holding = what_holds(live)
                raise PartialError(
                    f"'{name_of(live)}' was not deleted within {limit:.0f} s: {holding}", live, [holding]
                )
            try:
                change = next(changes)
            except (ApiError, CancelledError, UnreachableError) as error:
                raise PartialError(str(error), live) from error
            if change and change.gone:
                break
            if change:
                live = change.object
            elif what_holds(live) != shown:
                shown = what_holds(live)
                operation.status(f"waiting for deletion: {shown}")
    if shown:
        operation.status("")


def _watch_s(longest: int, deadline: float) -> int:
    return max(1, min(longest, int(deadline - time.monotonic())))


def what_holds(live: Tree) -> str:
    """Why a deleted object is still there: its finalizers, and what a namespace reports about its content."""
    finalizers = [*(metadata(live).get("finalizers") or []), *(readiness.section(live, "spec").get("finalizers") or [])]
    parts = [f"held by its finalizers {', '.join(map(str, finalizers))}"] if finalizers else []
    for condition in readiness.conditions(live).values():
        if condition.get("status") == "True" and "Remaining" in str(condition.get("type")):
            parts.append(str(condition.get("message")))
    return "; ".join(parts) or "the API server still has the object"
