"""What `install` and `ready` make of the statuses they read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.controllers import installation
from lab.errors import LabError
from lab.paths import Lab


def job(**status: Any) -> SimpleNamespace:
    return SimpleNamespace(status=SimpleNamespace(**{"succeeded": None, "conditions": None} | status))


def test_a_jobs_success_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_POLL_S", 0.0)
    states = iter([job(), job(), job(succeeded=1)])
    installation._wait_completed(lambda: next(states), "n", "certgen", 10.0)
    assert next(states, None) is None


def test_a_failed_job_is_an_error_at_once() -> None:
    failed = job(conditions=[SimpleNamespace(type="Failed", status="True")])
    with pytest.raises(LabError, match=r"n/certgen.*failed"):
        installation._wait_completed(lambda: failed, "n", "certgen", 10.0)


def test_a_job_that_nobody_runs_is_an_error_that_says_how_long() -> None:
    with pytest.raises(LabError, match="has not completed after 0 s"):
        installation._wait_completed(job, "n", "certgen", 0.0)


def rollout(replicas: int = 1, generation: int = 3, **status: int) -> SimpleNamespace:
    counts = {"observed_generation": 3, "replicas": 1, "updated_replicas": 1, "ready_replicas": 1} | status
    return SimpleNamespace(
        metadata=SimpleNamespace(generation=generation),
        spec=SimpleNamespace(replicas=replicas),
        status=SimpleNamespace(**counts),
    )


def test_a_finished_rollout_counts() -> None:
    assert installation._is_rolled_out(rollout())


@pytest.mark.parametrize(
    "unfinished",
    [
        rollout(generation=4),
        rollout(ready_replicas=0),
        rollout(updated_replicas=0),
        rollout(replicas=2),
        rollout(observed_generation=0),
    ],
)
def test_an_unfinished_rollout_does_not(unfinished: SimpleNamespace) -> None:
    assert not installation._is_rolled_out(unfinished)


def test_without_a_cluster_nothing_is_ready(tmp_path: Path) -> None:
    assert not installation.ready(Lab(home=tmp_path, cache=tmp_path))
