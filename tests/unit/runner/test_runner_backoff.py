from __future__ import annotations

from lab.runner.backoff import RestartBackoff, RetryBackoff


def test_restart_delays_double_up_to_thirty_bases() -> None:
    backoff = RestartBackoff(base_s=10)
    assert [backoff.delay(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_long_run_starts_over() -> None:
    backoff = RestartBackoff(base_s=1)
    for _ in range(5):
        backoff.delay(1)
    assert backoff.delay(61) == 0
    assert backoff.delay(1) == 1


def test_retry_delays() -> None:
    retry = RetryBackoff(base_s=1, cap_s=5)
    assert [retry.delay() for _ in range(4)] == [1, 2, 4, 5]
