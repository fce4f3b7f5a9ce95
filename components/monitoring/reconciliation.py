"""The ledger's rows against the engines' own counters, hour by hour: recorded series, and the alert's expression.

Engines are read as an hour ends, and the figure is held until the next one; the ledger measures the same hour from its
database some minutes later. A minute by which they differ is in the ledger's bound (`services.ledger.hours.EDGE_S`).
"""

from __future__ import annotations

from typing import Any

from components.monitoring import queries

ENGINE_TOKENS = "model:engine_tokens:hour"
"""Tokens that the engines of a revision counted in the last full hour. Labels: model (the revision), kind."""
GAP = "model:usage_gap_tokens:hour"
"""Of these, what is in no row; below 0 where rows have more. The same labels."""
ALLOWED = "model:usage_gap_tokens_allowed:hour"
"""How large a gap may be. The same labels."""

_LEDGERS = 'job="ledger"'
_HOUR_S = 3600
_COUNTERS = {"input": "vllm:prompt_tokens_total", "output": "vllm:generation_tokens_total"}
_BY = ("model", "kind")
# Of a pod that starts or ends, what it did before Prometheus first read it, or after it last did, is not counted.
_UNSEEN = 0.01
# Below that a probe's tokens alone are a share.
_LEAST_TOKENS = 10_000
# Of the hour that has just ended, as the ledger names it.
_STARTED = f"time() - time() % {_HOUR_S} - {_HOUR_S}"
_IS_MEASURED = f"inference_usage_hour_start_timestamp_seconds{{{_LEDGERS}}} == ({_STARTED})"


def rules() -> list[dict[str, Any]]:
    """Of a site with a ledger."""
    return [
        *(
            {"record": ENGINE_TOKENS, "expr": _ended(name), "labels": {"kind": kind}}
            for kind, name in _COUNTERS.items()
        ),
        {"record": GAP, "expr": gap()},
        {"record": ALLOWED, "expr": allowed()},
    ]


def gap() -> str:
    """By revision and kind of token, of an hour that the ledger has measured."""
    # A revision of which no row came is all gap.
    none = f"0 * {_held()} and on () ({_IS_MEASURED})"
    return f"{_held()} - ({_measured('inference_usage_hour_tokens')} or {none})"


def allowed() -> str:
    """The ledger's bound, and what Prometheus may not have seen."""
    bound = _measured("inference_usage_hour_bound_tokens")
    return f"{_UNSEEN:g} * {_held()} + ({bound} or 0 * {_held()})"


def gap_share() -> str:
    """Of gaps that are larger than they may be: as a share of the engines' tokens."""
    beyond = f"abs({GAP}) > {ALLOWED}"
    return f"{GAP} / ({_held()} > {_LEAST_TOKENS}) and {beyond}"


def unmeasured_hours() -> str:
    """Since the end of the last hour that a ledger has measured."""
    last = queries.highest("inference_usage_hour_start_timestamp_seconds", _LEDGERS)
    return f"(time() - {last}) / {_HOUR_S} - 1"


def _ended(counter: str) -> str:
    """What engines counted in the hour that ends now, if one does, and if there was a ledger when it began."""
    counted = queries.growth(counter, queries.ENGINES, by=("model",), window="1h")
    return f"{counted} and on () (minute() == 0) and on () count(up{{{_LEDGERS}}} offset 1h)"


def _held() -> str:
    return f"last_over_time({ENGINE_TOKENS}[1h])"


def _measured(metric: str) -> str:
    """By revision, as `model`, and kind. Both ledgers have the same, but for one that has not looked yet."""
    of_hour = f"{metric}{{{_LEDGERS}}} and on (pod) ({_IS_MEASURED})"
    highest = f"max by (revision, kind) ({of_hour})"
    return f'sum by ({", ".join(_BY)}) (label_replace({highest}, "model", "$1", "revision", "(.+)"))'
