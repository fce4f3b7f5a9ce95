"""AIConfigurator agrees with the proof within the band, on several models."""

from __future__ import annotations

import pytest

from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from stacks.proof.second_source import BAND, Comparison, SecondSourceError, Usual, available, compare, main
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 1")


@pytest.mark.second_source
@pytest.mark.parametrize(
    ("name", "gpu", "layout"),
    [
        ("qwen3-32b-fp8", "h200-sxm", Layout()),
        ("glm-5.1-fp8", "h200-sxm", Layout(tensor=8)),
        ("glm-5.1-fp8", "h200-sxm", Layout(tensor=2, data=4, expert_parallel=True)),
        ("deepseek-v3.2", "h200-sxm", Layout(tensor=8)),
        ("minimax-m2.5", "h200-sxm", Layout(tensor=4)),
        ("kimi-k2.5", "h200-sxm", Layout(tensor=8)),
        ("gpt-oss-120b", "h100-sxm", Layout(tensor=2)),
        # None of these kinds of GPU were fitted.
        ("qwen3-8b", "a100-80gb", Layout()),
        ("qwen3-8b", "l40s", Layout()),
        ("qwen3-8b", "b200", Layout()),
        ("deepseek-v3.1-nvfp4", "b200", Layout(tensor=4)),
    ],
)
def test_both_sources_agree(name: str, gpu: str, layout: Layout) -> None:
    steps = compare(name, gpu, layout)
    assert len(steps) == 3
    assert [step.what for step in steps if not step.agrees] == []


@pytest.mark.second_source
def test_both_agree_on_a_models_own_batch_and_length() -> None:
    """What a scheduler of the proof runs when it is full, not steps that were chosen for the comparison."""
    case = prove(order("qwen3-32b-fp8", "h200-sxm", kv_dtype="bf16")).case
    usual = Usual(requests=case.slots, tokens=round(case.order.request_tokens))
    *_, prompt, full = compare("qwen3-32b-fp8", "h200-sxm", case.layout, usual)
    assert prompt.step == "prefill of 1 at 16,384"
    assert full.step == f"decode of {case.slots} at 16,384"
    assert prompt.agrees
    assert full.agrees


@pytest.mark.skipif(available(), reason="aiconfigurator is installed")
def test_without_it_the_fix_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SecondSourceError, match="fix: pip install"):
        compare("qwen3-8b", "h200-sxm", Layout())
    assert main(["qwen3-8b", "h200-sxm"]) == 2
    assert "is not installed" in capsys.readouterr().err


def test_the_band_is_a_factor_either_way() -> None:
    assert Comparison(what="", ours_ms=10, theirs_ms=10 / BAND + 0.01).agrees
    assert Comparison(what="", ours_ms=10 / BAND + 0.01, theirs_ms=10).agrees
    assert not Comparison(what="", ours_ms=10, theirs_ms=10 / BAND - 0.1).agrees
    assert not Comparison(what="", ours_ms=10 / BAND - 0.1, theirs_ms=10).agrees
