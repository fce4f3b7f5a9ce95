"""Every series that a site's Prometheus has, with the labels that it may have there."""

from __future__ import annotations

from functools import cache

from components.monitoring import recording, rules
from stacks.facts import metrics
from tests.alert_site import PROMISE
from tests.unit.promql import Known, read


@cache
def known_series() -> Known:
    """What the parts expose, and what rules record of that."""
    known = dict(metrics.known_labels())
    ends = recording.credential_ends({"credential": {"kubeconfig": recording.timestamp(0)}})
    for group in [*rules.groups(PROMISE), *ends]:
        for rule in group["rules"]:
            if "record" in rule:
                labels = known.get(rule["record"], frozenset())
                known[rule["record"]] = labels | read(rule["expr"], known).labels | frozenset(rule.get("labels", {}))
    return known
