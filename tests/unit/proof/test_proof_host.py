"""What a replica requests of its node: by the processes that vLLM has, as its documentation counts them."""

from __future__ import annotations

import pytest

from stacks.plan.settings.definition import Override, Serving
from stacks.plan.settings.registry import broken_overrides, derive
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 2")


def requests(name: str, layout: Layout) -> tuple[float, float]:
    """(cores, GiB of memory) of one replica."""
    settings = derive(prove(order(name, layout=layout)))
    return settings["cpu_request_cores"].number, settings["memory_request_gib"].number


@pytest.mark.parametrize(
    ("layout", "processes"),
    [
        (Layout(), 2),
        (Layout(tensor=4), 6),
        (Layout(tensor=8), 10),
        (Layout(tensor=2, pipeline=2), 6),
        (Layout(data=4), 10),
        # vLLM's own example has 17 of them, with an API server per rank. The platform has one for all ranks.
        (Layout(tensor=2, data=4), 14),
    ],
    ids=str,
)
def test_a_core_and_four_gibibytes_per_process(layout: Layout, processes: int) -> None:
    assert requests("qwen3-32b-fp8", layout) == (processes, 4 * processes)


@pytest.mark.parametrize("layout", [Layout(), Layout(tensor=2), Layout(tensor=2, data=2)], ids=str)
def test_a_model_that_sees_keeps_processed_pictures_once(layout: Layout) -> None:
    """In the engine core of one rank, or in the API server of several."""
    (cores, blind), (same, seeing) = (requests(name, layout) for name in ("qwen3-32b-fp8", "gemma-3-27b"))
    assert (same, seeing - blind) == (cores, 4)


@pytest.mark.parametrize(
    ("key", "value", "most"),
    [("memory_request_gib", 40_960, "8,192"), ("cpu_request_cores", 2000, "1,536")],
    ids=["mebibytes", "millicores"],
)
def test_a_request_in_a_smaller_unit_is_refused(key: str, value: int, most: str) -> None:
    """No node could take the replica, and the proof knows of no node what it has."""
    written = Serving(overrides={key: Override(value=value, reason="as measured")})
    (problem,) = broken_overrides(prove(order("qwen3-32b-fp8")), written)
    text = problem.text("")
    assert "no GPU node has as much" in text
    assert f"from 1 to {most}" in text
