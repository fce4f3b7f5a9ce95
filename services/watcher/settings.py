"""What the site lets the watcher do, and what it declares of its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NodeOffer:
    """What a node of the site must offer."""

    resource: str
    """Whole GPUs, or slices of one profile."""
    count: int
    gpus: int
    """Boards that DCGM must report."""
    load_test: str = ""
    """Name of the load test that a new one must pass; empty for none."""


@dataclass(frozen=True, kw_only=True)
class WatcherSettings:
    """Out of one JSON text, which the program writes."""

    prometheus: str
    """Its address."""
    nodes: Mapping[str, NodeOffer]
    """Those of the site that take replicas."""
    may_lose: frozenset[str]
    """Nodes without which the proof serves every model's least."""
    faults: str
    """Query: a series for each GPU with a fault, with the labels node, gpu and fault."""
    measured: str
    """Query: the GPUs that DCGM reports, by node."""
    joining: str
    """Query: a series for each GPU that has not joined its node's fabric."""
    meanings: Mapping[str, str]
    """Code of each fault -> what it is, and what NVIDIA's catalogue lets do about it."""
    namespace: str
    """Of the replicas."""
    replicas: str
    """Selector of their labels."""
    drains: bool
    """Whether it takes nodes out; otherwise it reports alone."""
    checks: bool
    """Whether a new node gets no replica before its GPUs are checked."""
    load_tests: tuple[str, str] | None
    """Namespace and label selector of the pods that test nodes under load; None where none does."""
    validator: tuple[str, str] | None
    """Namespace and label selector of the pods whose readiness means that a node's GPUs were validated; None without a
    validator."""


def settings_of(text: str) -> WatcherSettings:
    """Raises ValueError, KeyError or TypeError for a text that the program did not write."""
    given = json.loads(text)
    given["nodes"] = {name: NodeOffer(**node) for name, node in given["nodes"].items()}
    given["may_lose"] = frozenset(given["may_lose"])
    for pods in ("load_tests", "validator"):
        given[pods] = tuple(given[pods]) if given[pods] else None
    return WatcherSettings(**given)
