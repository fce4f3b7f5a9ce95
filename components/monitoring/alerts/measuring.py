"""Alerts about what measures: targets that do not answer, rules that cannot be computed, alerts that reach no one."""

from __future__ import annotations

from collections.abc import Sequence

from components.monitoring import queries
from components.monitoring.alerts.alert import Alert

_PROMETHEUS = 'job="prometheus"'
_ALERTMANAGER = 'job="alertmanager"'
_ENGINES = "inference-engines"


def targets(jobs: Sequence[str], start_minutes: int) -> list[Alert]:
    """Everything that is to be scraped. An alert without its series is silent, so their absence is one of its own.

    jobs: the site's own; a Prometheus may have those of others. start_minutes: that a replica may take to start.
    """
    others = "|".join(job for job in jobs if job != _ENGINES)
    absent = " or ".join(f'absent(up{{job="{job}"}})' for job in jobs)
    return [
        Alert(
            name="Watchdog",
            severity="none",
            expression="vector(1)",
            minutes=0,
            summary="Alerts are computed and sent",
            description="It always fires. Send it to something outside of the site that raises an alarm when it stops.",
            runbook="monitoring-down",
        ),
        Alert(
            name="TargetDown",
            severity="ticket",
            # kube-state-metrics has the pods that should be there; here are those that are and do not answer.
            expression=f'up{{job=~"{others}"}} == 0',
            minutes=10,
            summary="{{ $labels.pod }} does not answer when it is measured",
            description="Prometheus cannot read its metrics ({{ $value }} is no) as {{ $labels.job }}. What alerts "
            "know of it is missing.",
            runbook="monitoring-down",
        ),
        Alert(
            name="EngineTargetDown",
            severity="ticket",
            # A replica that loads its weights has a pod and no metrics.
            expression=f"up{{{queries.ENGINES}}} == 0",
            minutes=start_minutes,
            summary="{{ $labels.pod }} of {{ $labels.model }} does not answer when it is measured",
            description="Prometheus cannot read the engine's metrics ({{ $value }} is no), for longer than a start may "
            "take. What alerts know of it is missing.",
            runbook="monitoring-down",
        ),
        *(
            [
                Alert(
                    name="TargetsMissing",
                    severity="ticket",
                    expression=absent,
                    minutes=10,
                    summary="Nothing is measured as {{ $labels.job }}",
                    description="Prometheus has no target of this job ({{ $value }} is yes), so alerts about it cannot "
                    "fire.",
                    runbook="monitoring-down",
                )
            ]
            if absent
            else []
        ),
    ]


def servers() -> list[Alert]:
    """Prometheus and Alertmanager, where this program installs them."""
    failed = queries.growth("prometheus_rule_evaluation_failures_total", _PROMETHEUS, by=("rule_group",), window="5m")
    sent = queries.growth("alertmanager_notifications_failed_total", _ALERTMANAGER, by=("integration",), window="15m")
    return [
        Alert(
            name="RulesFail",
            severity="ticket",
            expression=f"{failed} > 0",
            minutes=5,
            summary="Alerts cannot be computed",
            description="{{ $value | humanize }} evaluations of {{ $labels.rule_group }} failed within five minutes.",
            runbook="monitoring-down",
        ),
        Alert(
            name="PrometheusConfigurationRefused",
            severity="ticket",
            expression=f"max(prometheus_config_last_reload_successful{{{_PROMETHEUS}}}) == 0",
            minutes=10,
            summary="Prometheus refuses its configuration",
            description="It works with the last one that it could read ({{ $value }} is no).",
            runbook="monitoring-down",
        ),
        Alert(
            name="AlertsDoNotArrive",
            severity="ticket",
            expression=f"{sent} > 0",
            minutes=5,
            summary="Alerts do not reach {{ $labels.integration }}",
            description="{{ $value | humanize }} notifications failed within 15 minutes: the address, the password or "
            "the way out.",
            runbook="monitoring-down",
        ),
    ]
