"""Minutes until a replica answers, and the scaling settings with them: known answers, calculated manually."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from stacks.plan.block import block
from stacks.plan.settings.definition import Serving, Setting
from stacks.plan.settings.registry import derive
from stacks.plan.settings.scaling import needed_replicas
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from tests.unit.proof.proof_orders import CHAT, TARGETS, order

pytestmark = pytest.mark.row("opening 2", "opening 10", "001.30")

# Bytes of the published weight files.
GLM_FILES, QWEN_FILES = 756.07e9, 34.32e9
GLM = order("glm-5.1-fp8", gpus=8, replicas=4, simple=True, load=CHAT, slo=TARGETS)
QWEN = order("qwen3-32b-fp8", gpus=1, replicas=4, simple=True, load=CHAT, slo=TARGETS)


def values(proof: Proof) -> dict[str, float]:
    return {key: float(setting.value) for key, setting in derive(proof).items() if not isinstance(setting.value, str)}


@pytest.mark.parametrize(
    ("asked", "bytes_per_s", "read_s"),
    [
        (GLM, 1.0e9, GLM_FILES / 1.0e9),
        (GLM, 1.5e9, GLM_FILES / 1.5e9),
        (QWEN, 1.0e9, QWEN_FILES / 1.0e9),
        (QWEN, 0.1e9, QWEN_FILES / 0.1e9),
    ],
)
def test_a_replica_answers_two_minutes_after_its_weights_are_read(
    asked: Order, bytes_per_s: float, read_s: float
) -> None:
    proof = prove(replace(asked, storage_bytes_per_s=bytes_per_s))
    assert proof.cold_start["read_weights"].value == pytest.approx(read_s, rel=1e-3)
    assert proof.cold_start["cold_start"].value == pytest.approx(read_s + 120, rel=1e-3)
    assert {figure.unit for figure in proof.cold_start.values()} == {"s"}


def test_storage_faster_than_pcie_leaves_the_copy_to_wait_for() -> None:
    """95.5 GB of GLM a GPU over PCIe 5 x16, 64 GB/s."""
    proof = prove(replace(GLM, storage_bytes_per_s=1e12))
    assert proof.cold_start["copy_weights"].value == pytest.approx(95.50 / 64, rel=1e-3)
    assert proof.cold_start["cold_start"].value == pytest.approx(95.50 / 64 + 120, rel=1e-3)


def test_the_block_shows_both_times() -> None:
    text = block(prove(GLM))
    shown = r"^  cold start  876 s, of it 756 s reading; all 4 at once 3,144 s  \[estimated\]$"
    assert re.search(shown, text, re.MULTILINE), text
    alone = block(prove(replace(GLM, replicas=1)))
    assert re.search(r"^  cold start  876 s, of it 756 s reading  \[estimated\]$", alone, re.MULTILINE), alone


@pytest.mark.parametrize(
    ("shared_bytes_per_s", "together_s"),
    [
        (None, 4 * 756.07),
        (1.0e9, 4 * 756.07),
        # Half of what four could read.
        (2.0e9, 2 * 756.07),
        (4.0e9, 756.07),
        # More than they read.
        (1.0e12, 756.07),
    ],
)
def test_replicas_that_start_at_once_share_what_their_volume_gives(
    shared_bytes_per_s: float | None, together_s: float
) -> None:
    proof = prove(replace(GLM, shared_bytes_per_s=shared_bytes_per_s, download_bytes_per_s=1.0e9))
    assert proof.cold_start["read_weights"].value == pytest.approx(756.07, rel=1e-3)
    assert proof.cold_start["read_weights_together"].value == pytest.approx(together_s, rel=1e-3)
    assert proof.cold_start["cold_start_together"].value == pytest.approx(together_s + 120, rel=1e-3)
    # Once the Job has brought the files, all start at once.
    assert proof.cold_start["first_start"].value == pytest.approx(756.07 + together_s + 120, rel=1e-3)
    # No replica is killed while all of them load.
    assert values(proof)["start_budget_s"] > proof.cold_start["cold_start_together"].value


def test_the_start_budget_is_twice_the_read_of_all_and_five_minutes() -> None:
    for asked, read_s in ((GLM, GLM_FILES / 1e9), (QWEN, QWEN_FILES / 1e9)):
        derived = values(prove(asked))
        assert derived["start_budget_s"] == math.ceil(2 * 4 * read_s) + 300
        assert derived["startup_probe_failures"] == math.ceil(derived["start_budget_s"] / 5)


def test_what_brings_the_weights_may_read_them_while_all_replicas_start() -> None:
    derived = values(prove(replace(QWEN, download_bytes_per_s=0.5e9)))
    assert derived["download_budget_s"] == math.ceil(2 * (QWEN_FILES / 0.5e9 + 5 * QWEN_FILES / 1e9)) + 300


@pytest.mark.parametrize(
    ("replicas", "readers"), [(1, 4), (2, 4), (4, 4), (5, 8), (8, 8), (9, 16), (100, 128), (128, 128)]
)
def test_one_replica_more_changes_the_start_budget_in_steps_alone(replicas: int, readers: int) -> None:
    """It is part of the Pod, so that a change restarts all replicas."""
    derived = derive(prove(replace(QWEN, load=None, replicas=replicas)))
    assert derived["start_budget_s"].inputs["readers"] == readers
    assert derived["start_budget_s"].number == pytest.approx(2 * readers * QWEN_FILES / 1e9 + 300, rel=1e-3, abs=2)


def test_a_volume_that_gives_each_reader_its_rate_needs_no_longer_for_more_replicas() -> None:
    alone, many = (values(prove(replace(QWEN, replicas=count, shared_bytes_per_s=1e12))) for count in (1, 64))
    assert alone["start_budget_s"] == many["start_budget_s"] == math.ceil(2 * QWEN_FILES / 1e9) + 300


def test_scaling_follows_from_the_cold_start_and_the_bounds() -> None:
    """A tenth of it below the picker's threshold, and nothing taken away within a cold start."""
    for asked in (GLM, QWEN):
        proof = prove(asked)
        settings = derive(proof, Serving(least=1))
        derived = {
            key: settings[key].number for key in ("autoscale_window_s", "autoscale_kv_share", "picker_kv_threshold")
        }
        assert derived["autoscale_window_s"] == math.ceil(proof.cold_start["cold_start"].value)
        assert derived["autoscale_kv_share"] == pytest.approx(0.9 * derived["picker_kv_threshold"], abs=1e-3)
        assert needed_replicas(proof) + derive(proof)["disruption_max_unavailable"].whole == asked.replicas


def test_waiting_tokens_are_waiting_requests_of_the_mean_prompt() -> None:
    """Prompts of 2,000 and 16,000 tokens (p50, p95) are 4,447 on average."""
    derived = derive(prove(QWEN))
    waiting = _number(derived["max_num_queued_reqs"]) - _number(derived["max_num_seqs"])
    assert waiting >= 1
    assert _number(derived["max_num_queued_tokens"]) == pytest.approx(waiting * 4447, rel=1e-3)


def _number(setting: Setting) -> float:
    assert isinstance(setting.value, int | float)
    return setting.value
