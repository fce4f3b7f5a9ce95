"""Cases of alerts as `promtool test rules` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from components.monitoring import rules
from components.monitoring.alerts.alert import Alert
from tests.alert_silences import Silence
from tests.alert_site import HEALTHY, PROMISE, Case

# Always there.
WATCHDOG = "Watchdog"
_HEALTHY_MINUTES = 180


def listed() -> dict[str, Alert]:
    """Every alert of a site that has all parts, by name."""
    return {alert.name: alert for alerts in rules.alerts(PROMISE).values() for alert in alerts}


def rule_file() -> dict[str, Any]:
    return {"groups": rules.groups(PROMISE)}


def cases_file(rule_path: str, cases: Sequence[Case], silences: Sequence[Silence] = ()) -> dict[str, Any]:
    """The healthy site, on which nothing fires; each fault, on which its alert fires and no other; and what is none."""
    return {
        "rule_files": [rule_path],
        # Longer than the site's own: a fraction of the time is enough to see each alert fire. What one rule records is
        # there for others for five minutes.
        "evaluation_interval": "5m",
        "group_eval_order": [group["name"] for group in rules.groups(PROMISE)],
        "tests": [
            _run("a healthy site", {}, _HEALTHY_MINUTES, [WATCHDOG]),
            *map(_of_case, cases),
            *map(_of_silence, silences),
        ],
    }


def _of_case(case: Case) -> dict[str, Any]:
    firing = sorted({WATCHDOG, case.alert, *case.also})
    run = _run(f"{case.alert}: {', '.join(case.change)}", case.change, case.minutes, firing)
    alert = listed()[case.alert]
    rule = alert.rule()
    expected = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {name: _filled(text, case) for name, text in rule["annotations"].items()},
    }
    run["alert_rule_test"] = [
        {"eval_time": f"{case.minutes}m", "alertname": case.alert, "exp_alerts": [expected]},
    ]
    return run


def _of_silence(silence: Silence) -> dict[str, Any]:
    run = _run(silence.why, silence.change, silence.minutes, [])
    names = "|".join(silence.alerts)
    expression = f'count(ALERTS{{alertstate="firing", alertname=~"{names}"}})'
    run["promql_expr_test"] = [{"expr": expression, "eval_time": f"{silence.minutes}m"}]
    return run


def _run(name: str, change: Mapping[str, Any], minutes: int, firing: Sequence[str]) -> dict[str, Any]:
    series = {**HEALTHY, **change}
    names = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values.over(minutes)} for name, values in series.items() if values is not None
        ],
        "promql_expr_test": [
            {
                "expr": f"{names} > bool 0",
                "eval_time": f"{minutes}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing],
            }
        ],
    }


def _filled(text: str, case: Case) -> str:
    """An annotation as Prometheus fills it in."""
    named = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: case.labels.get(match[1], ""), text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", lambda _: case.shown, named)
