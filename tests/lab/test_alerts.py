"""Every alert by Prometheus's own test tool: silent on a healthy site, and firing on its fault with its texts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from components.monitoring import recording
from lab.paths import CHECKOUT, Lab
from tests import alert_cases, documented, promtool
from tests.alert_silences import SILENCES, Silence
from tests.alert_site import Case

pytestmark = pytest.mark.row("002.09", "002.18", "003.19", "004.19")

PAGE = CHECKOUT / "docs" / "observability.md"
RULES, CASES = "rules.yaml", "cases.yaml"
PARTS = 4


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = Lab.from_environment().bin / "promtool"
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def write(folder: Path, rules: object, cases: Sequence[Case] = (), silences: Sequence[Silence] = ()) -> None:
    (folder / RULES).write_text(yaml.safe_dump(rules, sort_keys=False))
    (folder / CASES).write_text(yaml.safe_dump(promtool.cases_file(RULES, cases, silences), sort_keys=False))


def test_prometheus_reads_every_rule(tmp_path: Path) -> None:
    ends = recording.credential_ends({"credential": {"kubeconfig": recording.timestamp(1_827_360_000)}})
    write(tmp_path, {"groups": [*promtool.rule_file()["groups"], *ends]})
    checked = run(tmp_path, "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


# Each case computes every rule for an hour and more: all of them in one run take longer than it may last.
@pytest.mark.parametrize("part", range(PARTS))
def test_each_alert_fires_on_its_fault_and_on_nothing_else(tmp_path: Path, part: int) -> None:
    write(tmp_path, promtool.rule_file(), alert_cases.CASES[part::PARTS], SILENCES[part::PARTS])
    tested = run(tmp_path, "test", "rules", CASES)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_case_finds_an_alert_that_never_fires(tmp_path: Path) -> None:
    rules = promtool.rule_file()
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") == "GpuHot":
                rule["expr"] += " > 1000"
    write(tmp_path, rules, [case for case in alert_cases.CASES if case.alert == "GpuHot"])
    tested = run(tmp_path, "test", "rules", CASES)
    assert tested.returncode != 0
    assert "GpuHot" in tested.stderr


@pytest.mark.row("000.35", "002.16")
def test_the_pages_routes_send_a_tenant_its_own_alerts(tmp_path: Path) -> None:
    """By Alertmanager's own tool, with names, severities and labels that the platform's alerts have."""
    ((text,),) = [[text] for _, text in documented.fences(PAGE) if text.startswith("route:")]
    (tmp_path / "alertmanager.yaml").write_text(text)
    amtool = Lab.from_environment().bin / "amtool"

    def asked(*words: str) -> str:
        done = subprocess.run([amtool, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    asked("check-config", "alertmanager.yaml")
    by_name = {
        rule["alert"]: rule for group in promtool.rule_file()["groups"] for rule in group["rules"] if "alert" in rule
    }
    for name, tenant, receivers in (
        ("BudgetSpent", "search", "search,platform"),
        ("BudgetSpent", "archive", "platform"),
        ("KeySignal", "search", "search,platform"),
        ("Watchdog", "", "watchdog"),
        ("KeySuspended", "search", "search,platform"),
        ("GpuHot", "", "platform"),
    ):
        labels = [f"alertname={name}", f"severity={by_name[name]['labels']['severity']}"]
        labels += [f"tenant={tenant}"] if tenant else []
        assert asked("config", "routes", "test", "--config.file=alertmanager.yaml", *labels) == receivers, labels
