"""The engines that one table of behaviours is held against: the simulator, and a real vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.paths import CHECKOUT
from stacks.plan.site_plan import SitePlan, plan_values
from tests.lab.engines.running_engine import CAP_TOKENS, SEQUENCES, WAITING, RunningEngine, real_vllm, simulator

SERVED = "qwen3-32b"
# The program lets an engine take twice what it is to hold (docs/adr/0039-engines-have-room-to-spare.md). What it does
# when it has no room at all is seen sooner without.
_NO_SPARE = (f"--max-num-queued-reqs={SEQUENCES + WAITING}",)


def vllm_site() -> SitePlan:
    """The lab's site with vLLM in the place of the simulator, and so small that a test fills it."""
    site: dict[str, Any] = yaml.safe_load((CHECKOUT / "Pulumi.lab.yaml").read_text())["config"][
        "inference-platform:site"
    ]
    model = site["models"][SERVED]
    model["server"] = {"engine": "vllm", "longest_stream_s": 1000}
    sizes = {"max_num_seqs": SEQUENCES, "max_num_queued_reqs": SEQUENCES + WAITING, "gateway_max_tokens": CAP_TOKENS}
    model["overrides"] = {name: {"value": value, "reason": "a test fills it"} for name, value in sizes.items()}
    return plan_values(site, "Pulumi.lab.yaml")


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """A real vLLM as the program starts it, less what needs a GPU."""
    plan = vllm_site().models[SERVED].stable.engine
    with real_vllm(tmp_path_factory.mktemp("vllm"), plan.args, plan.env, SERVED) as engine:
        yield engine


@pytest.fixture(scope="module")
def vllm_without_spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """The same, and full as soon as it holds what the plan wants it to hold."""
    plan = vllm_site().models[SERVED].stable.engine
    with real_vllm(tmp_path_factory.mktemp("vllm"), plan.args, plan.env, SERVED, further_arguments=_NO_SPARE) as engine:
        yield engine


@pytest.fixture(params=["simulator", pytest.param("vllm", marks=pytest.mark.exhaustive)])
def own_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningEngine]:
    """Each engine in turn, new for the test, which may end it."""
    plan = vllm_site().models[SERVED].stable.engine
    real = real_vllm(tmp_path, plan.args, plan.env, SERVED, further_arguments=_NO_SPARE)
    with simulator(tmp_path) if request.param == "simulator" else real as running:
        yield running


@pytest.fixture(params=["simulator", pytest.param("vllm", marks=pytest.mark.exhaustive)])
def engine(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[RunningEngine]:
    """Each engine in turn. The simulator is new for each test, since a test sets its pace."""
    if request.param == "vllm":
        yield request.getfixturevalue("vllm_without_spare")
        return
    with simulator(tmp_path) as running:
        yield running
