"""Alerts about keys of tenants that may be abused: the ledger's signals, and keys that these have suspended."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_LEDGERS, _DIRECTORY = 'job="ledger"', 'job="directory"'
_MINUTE_S = 60
# A ledger looks once a minute.
_UNSEEN_MINUTES = 10
_RUNBOOK = "key-signals"


def _unseen(metric: str, where: str) -> str:
    """Minutes since the last time, of whichever pod was last."""
    return f"(time() - {queries.highest(metric, where)}) / {_MINUTE_S} > {_UNSEEN_MINUTES}"


def signals() -> list[Alert]:
    """Of a site with `usage.abuse`."""
    keys = queries.highest("inference_usage_key_signals", _LEDGERS, by=("tenant", "key", "signal"))
    return [
        Alert(
            name="KeySignal",
            severity="ticket",
            expression=f"{keys} > 0",
            minutes=0,
            # As the ledger has it: what comes again within them is no other signal.
            lasts_minutes=15,
            summary="The key {{ $labels.tenant }}.{{ $labels.key }} may be abused: {{ $labels.signal }}",
            description="sitectl key signals has the figures of the signal.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="KeysUnwatched",
            severity="ticket",
            expression=_unseen("inference_usage_keys_looked_timestamp_seconds", _LEDGERS),
            minutes=5,
            summary="No ledger looks at keys",
            description="For {{ $value | humanize }} minutes; millions of them if never since it started. A key that "
            "is abused shows no signal, and none is suspended for one.",
            runbook=_RUNBOOK,
        ),
    ]


def suspensions() -> list[Alert]:
    """Of a site with `usage.abuse.suspend_on`."""
    suspended = queries.highest("directory_suspensions", f'{_DIRECTORY}, by="signal"', by=("tenant", "key"))
    held = queries.highest("directory_suspensions_held", _DIRECTORY)
    return [
        Alert(
            name="KeySuspended",
            severity="ticket",
            expression=f"{suspended} > 0",
            minutes=0,
            summary="A signal has suspended the key {{ $labels.tenant }}.{{ $labels.key }}",
            description="Its clients get 403 until a person lifts that; sitectl key suspended has the reason.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="SuspensionsHeld",
            severity="page",
            expression=f"{held} > 0",
            minutes=2,
            summary="More keys have a signal than may be suspended within an hour",
            description="{{ $value | humanize }} more work on. Many are abused at once, or a threshold of usage.abuse "
            "is too low: then lift what was suspended.",
            runbook=_RUNBOOK,
        ),
        Alert(
            name="SignalsUnread",
            severity="ticket",
            expression=_unseen("directory_key_signals_read_timestamp_seconds", _DIRECTORY),
            minutes=5,
            summary="The directory does not hear the ledger's signals of keys",
            description="For {{ $value | humanize }} minutes; millions of them if never since it started. No key is "
            "suspended for one meanwhile, and none is lifted.",
            runbook=_RUNBOOK,
        ),
    ]
