"""All figures and settings of the reference site and the lab, against golden files: no constant moves one unseen.

To accept a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/proof/test_reference_proof.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from stacks.facts import catalogue
from stacks.plan.site_plan import plan_file
from stacks.proof.figures import Figure
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 1", "opening 2")

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parents[1] / "golden"


def rounded(value: float | str | bool) -> float | str | bool:
    """Five digits that count: what another order of additions changes is no change."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def ranged(figure: Figure) -> str:
    """A figure with its unit, and what it is at the fast and at the slow end of its band."""
    span = figure.span
    ends = f"; {rounded(span.fast or 0)} to {rounded(span.slow or 0)}" if span else ""
    return f"{rounded(figure.value)} {figure.unit}{ends}"


def proven(site_file: Path) -> dict[str, Mapping[str, Mapping[str, str]]]:
    """Model -> figures and settings by name, each with its unit."""
    reported: dict[str, Mapping[str, Mapping[str, str]]] = {}
    for name, model in plan_file(site_file).models.items():
        figures, settings = model.stable.proof.figures(), model.stable.settings
        reported[name] = {
            "figures": {key: ranged(figure) for key, figure in figures.items()},
            "settings": {key: f"{rounded(setting.value)} {setting.unit}".rstrip() for key, setting in settings.items()},
        }
    return reported


@pytest.mark.parametrize(
    ("golden", "site_file"),
    [
        ("proof-prod", "Pulumi.prod.yaml"),
        ("proof-lab", "Pulumi.lab.yaml"),
        ("proof-data-parallel", "tests/fixtures/sites/valid/layouts.yaml"),
    ],
)
def test_figures_and_settings_are_as_agreed(golden: str, site_file: str) -> None:
    built = proven(ROOT / site_file)
    path = GOLDEN / f"{golden}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(built, sort_keys=False, width=120))
    assert yaml.safe_load(path.read_text()) == built


SPEEDS = ("prefill_per_token", "decode_alone", "decode_full", "full_tokens_per_s_per_gpu")
SIZES = ("weight_files", "weights_per_gpu", "reserved_per_gpu", "cache_per_token", "state_per_request", "cache_tokens")


def test_every_models_speed_and_size_are_as_agreed() -> None:
    """Of all kinds of attention, experts and quantisation that the catalogue has, on one kind of GPU."""
    built: dict[str, dict[str, float]] = {}
    for name in catalogue.names():
        proof = prove(order(name))
        figures = proof.weights | proof.memory | proof.speed
        built[name] = {key: float(rounded(figures[key].value)) for key in (*SPEEDS, *SIZES) if key in figures}
    path = GOLDEN / "proof-catalogue.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(built, sort_keys=False, width=120, default_flow_style=None))
    assert yaml.safe_load(path.read_text()) == built
