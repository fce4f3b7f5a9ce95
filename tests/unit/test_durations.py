"""Durations, as Go's time.ParseDuration reads them: one form for the kubelet, flags of programs and Talos."""

from __future__ import annotations

import pytest

from floor.durations import DURATION, duration_of, is_duration, seconds_of

pytestmark = pytest.mark.row("opening 13")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("30s", 30),
        ("1m30s", 90),
        ("1.5h", 5400),
        (".5m", 30),
        ("2.s", 2),
        ("+500ms", 0.5),
        ("3us", 3e-6),
        ("3\u00b5s", 3e-6),
        ("3\u03bcs", 3e-6),
        ("7ns", 7e-9),
        ("1h1m1s1ms", 3661.001),
    ],
)
def test_a_duration_has_its_seconds(text: str, seconds: float) -> None:
    assert is_duration(text)
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "1d", "1m 30s", "1,5h", "1.2.3s", "30S", "\u0663s", "1m30", "00"])
def test_what_go_reads_as_none_is_none(text: str) -> None:
    assert not is_duration(text) and not DURATION.fullmatch(text)


def test_a_time_below_zero_is_one_for_flags_alone() -> None:
    assert DURATION.fullmatch("-5s") and not is_duration("-5s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (60, "1m0s"), (3600, "1h0m0s"), (3661, "1h1m1s"), (604_800, "168h0m0s")],
)
def test_whole_seconds_are_written_as_go_does(seconds: int, text: str) -> None:
    assert duration_of(seconds) == text
    assert seconds_of(text) == seconds
