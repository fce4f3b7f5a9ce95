"""Each failure mode of a platform for inference, injected: its panel moves, its alert fires and ends with its cause,
and what the platform does about it by itself.

`make drill` walks them in a lab and prints each as it was seen. The alerts are the site's own, over windows of one
minute and without their waits; the engines are simulators.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial

import pytest

from components.monitoring import queries
from components.monitoring.prometheus import SELECTED
from lab import session
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.injected_failures import COPY, LARGE, MODES, SHORT_WINDOW, USUAL, Mode, Rig, drilled_site, planned
from tests.lab.site.measured import MONITORING, Prometheus
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 9", "000.06")]

# Until each alert has a whole window of usual traffic behind it, and two evaluations.
CONTROL_S = 100


@pytest.fixture(scope="module")
def rig(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with edited_stack(site.lab, tmp_path_factory.mktemp("failures")) as stack:
        front = stack.up(drilled_site)
        plan = planned(site)
        (name,) = plan.named.keys() - plan.models.keys()
        (canary,) = cluster.ready_replicas(name, 1)
        changed = Site(lab=site.lab, front=front)
        yield Rig(site=changed, cluster=cluster, prometheus=Prometheus(cluster), canary=canary)


@pytest.fixture(scope="module")
def usual(rig: Rig) -> Iterator[dict[int, float]]:
    """What each panel reads while nothing fails; the alerts are there from then on."""
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "failure-modes", "namespace": MONITORING, "labels": dict(SELECTED)},
        "spec": {"groups": [{"name": "failure-modes", "interval": "5s", "rules": list(quick_rules(rig))}]},
    }
    environment = session.environment(rig.site.lab)
    subprocess.run(["kubectl", "apply", "-f", "-"], input=json.dumps(body), text=True, env=environment, check=True)
    try:
        with rig.usual() as got, rig.asked(USUAL, partial(chat, LARGE), clients=1, pause_s=0.5):
            time.sleep(CONTROL_S)
            assert not got.refused()
            early = [mode.alert for mode in MODES if rig.fires(mode)]
            assert not early
            read = {mode.number: rig.reads(mode) for mode in MODES}
        yield read
    finally:
        kubectl(rig.site.lab, "delete", "prometheusrule", "failure-modes", "-n", MONITORING)


def quick_rules(rig: Rig) -> Iterator[Document]:
    """The site's own rules that the alerts need, over a minute and at once."""
    wanted = {queries.WITHIN_TARGET, *(mode.alert for mode in MODES)}
    listed = json.loads(kubectl(rig.site.lab, "get", "prometheusrules", "-n", MONITORING, "-o", "json"))["items"]
    for rule in (rule for item in listed for group in item["spec"]["groups"] for rule in group["rules"]):
        if rule.get("record", rule.get("alert")) not in wanted:
            continue
        text = re.sub(r"\[\d+m\]", f"[{SHORT_WINDOW}]", rule["expr"])
        quick = {"expr": text.replace(queries.WITHIN_TARGET, queries.WITHIN_TARGET + COPY)}
        if "record" in rule:
            yield {**quick, "record": rule["record"] + COPY, "labels": rule["labels"]}
        else:
            yield {**quick, "alert": rule["alert"] + COPY}


@pytest.mark.parametrize("mode", MODES, ids=[str(mode.number) for mode in MODES])
def test_it_is_seen_named_and_answered(
    rig: Rig, usual: dict[int, float], mode: Mode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not rig.fires(mode)
    began = time.monotonic()
    with mode.inject(rig) as answer:
        until(lambda: rig.fires(mode), what=mode.alert)
        seconds, value = time.monotonic() - began, rig.reads(mode)
        assert value > usual[mode.number]
        answered = answer()
    until(lambda: not rig.fires(mode), what=f"the end of {mode.alert}")
    panel, _ = mode.shown
    seen = f"""
{mode.group.title}
  fault    {mode.title}
  panel    {mode.group.panels[panel].title}: {usual[mode.number]:.3g}, then {value:.3g}
  alert    {mode.alert} after {seconds:.0f} s, over a window of one minute, without its wait
  runbook  docs/runbooks/{mode.group.runbook}.md
  answer   {answered}"""
    with capsys.disabled():
        print(seen, flush=True)
