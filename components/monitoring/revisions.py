"""PromQL about revisions of models: what each of them does, and a canary beside its stable one."""

from __future__ import annotations

from components.monitoring import queries
from floor.namespaces import MODELS

# As floor/revision_ids.py names them.
_CANARY = "(.+)--[0-9a-f]{8}"
_FURTHER = "(.+?)--(?:for-.+|[0-9a-f]{8})"
CANARIES = f'{queries.ENGINES}, model=~"{_CANARY}"'
"""Engines of canaries."""
TO_CANARIES = f'envoy_cluster_name=~"httproute/{MODELS}/{_CANARY}/rule/.+"'
"""Envoy's clusters of canaries."""
FEWEST = 100
"""Requests to a canary below which it has no 95th percentile that counts."""
SLOWER = 1.5
"""Times as long as with the stable revision: beyond what the empty cache of a fresh one costs; an estimate."""
MORE_FAILED = 0.01
"""Share of its requests that fail beyond those of the stable revision: one of a hundred."""
_ANSWERED = "envoy_cluster_upstream_rq_xx"


def failed_share(where: str = "", *, window: str) -> str:
    """Share of the requests to each revision that Envoy saw end with 5xx, 0 to 1, also of one where none did."""
    class_ = 'envoy_response_code_class="5"'
    failed = queries.rate_by_model(_ANSWERED, f"{class_}, {where}" if where else class_, window=window)
    all_ = queries.rate_by_model(_ANSWERED, where, window=window)
    return f"({failed} or 0 * {all_}) / ({all_} > 0)"


def as_revision(expression: str) -> str:
    """Of canaries, with the model's own name, and the canary's as `revision`."""
    return _of_model(f'label_replace({expression}, "revision", "$1", "model", "(.+)")')


def beside_stable(canaries: str, all_: str, operator: str) -> str:
    """A figure of canaries with that of the model's stable revision, by `model` and `revision`."""
    return f"{as_revision(canaries)} {operator} on (model) group_left () ({all_})"


def _of_model(expression: str) -> str:
    return f'label_replace({expression}, "model", "$1", "model", "{_FURTHER}")'
