"""Queries on made-up series, by Prometheus's own test tool."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.paths import Lab

_CASES = "cases.yaml"


def evaluated(folder: Path, series: Mapping[str, str], expected: Mapping[str, Mapping[str, float]]) -> None:
    """Compare each expression, after an hour of these series (a value a minute), with its value by labels."""
    asked = [
        {
            "expr": expression,
            "eval_time": "60m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in values.items()],
        }
        for expression, values in expected.items()
    ]
    run = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
    # Values but for the last bit: sums of floats have no one order.
    cases = {"evaluation_interval": "1m", "fuzzy_compare": True, "tests": [run]}
    (folder / _CASES).write_text(yaml.safe_dump(cases, sort_keys=False))
    program = Lab.from_environment().bin / "promtool"
    tested = subprocess.run(
        [program, "test", "rules", _CASES], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
