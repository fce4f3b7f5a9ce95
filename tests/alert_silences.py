"""What no alert must fire on although it looks like a fault: a blip, a cause that is over, too few requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.alert_cases import HEALTHY, ITL, Values, constant, engine, gpu, grows, histogram, itl, listener


@dataclass(frozen=True)
class Course:
    """A counter whose speed changes: minutes, and what is added in each of them."""

    speeds: tuple[tuple[int, float], ...]

    def over(self, _minutes: int) -> str:
        """In promtool's notation."""
        value, parts = 0.0, []
        for minutes, speed in self.speeds:
            parts.append(f"{value:.6f}+{speed:g}x{minutes - 1}")
            value += minutes * speed
        return " ".join([*parts, f"{value:.6f}+0x1"])


@dataclass(frozen=True, kw_only=True)
class Silence:
    """Series on which these alerts are silent."""

    why: str
    alerts: tuple[str, ...]
    change: Mapping[str, Values | Course | None]
    minutes: int = 60


_PER_MINUTE = 66
# A window of days that has only so much behind it takes its share of that; every minute is computed.
_ENOUGH_MINUTES = 200
_BURNS = {"Fastest": (60, 5), "Fast": (360, 30), "Slow": (1440, 120), "Slowest": (4320, 360)}
_FACTORS = {"Fastest": 14.4, "Fast": 6.0, "Slow": 3.0, "Slowest": 1.0}


def _errors(*speeds: tuple[int, float]) -> dict[str, Values | Course | None]:
    """Shares of requests that fail, for so many minutes each."""
    failed = Course(tuple((minutes, _PER_MINUTE * share) for minutes, share in speeds))
    answered = Course(tuple((minutes, _PER_MINUTE * (1 - share) - 6) for minutes, share in speeds))
    return {listener(5): failed, listener(2): answered}


def _over(name: str) -> Silence:
    """Ten times too many for a part of the long window, then few for longer than the short one."""
    long, short = _BURNS[name]
    bad, good = min(long // 2, _ENOUGH_MINUTES), short + 2
    speeds = ((bad, 10 * _FACTORS[name] / 1000), (good, _FACTORS[name] / 3000))
    alert = f"ErrorBudgetBurns{name}"
    return Silence(why=f"{alert}: its cause is over", alerts=(alert,), change=_errors(*speeds), minutes=bad + good)


def _blip(name: str) -> Silence:
    """Too many for the short window, after hours without any."""
    long, short = _BURNS[name]
    # The alert waits two minutes.
    good, short = min(long, 2 * _ENOUGH_MINUTES), short + 4
    speeds = ((good, 0.0), (short, 1.5 * _FACTORS[name] / 1000))
    alert = f"ErrorBudgetBurns{name}"
    return Silence(why=f"{alert}: a blip", alerts=(alert,), change=_errors(*speeds), minutes=good + short)


SILENCES = (
    *map(_over, _BURNS),
    *map(_blip, ("Fastest", "Fast", "Slow")),
    Silence(
        why="three failed requests of a quiet hour",
        alerts=tuple(f"ErrorBudgetBurns{name}" for name in _BURNS),
        change={listener(2): grows(0.5), listener(4): grows(0), listener(5): grows(0.05)},
    ),
    Silence(
        why="a percentile of fewer requests than it takes",
        alerts=("ModelLatencyAboveTarget",),
        # Six gaps in 15 minutes, all of 0.3 s.
        change={
            **histogram(ITL, {"0.05": 0, "0.1": 0, "0.5": 1, "+Inf": 1}, 0.4),
            engine(f"{ITL}_sum"): grows(0.12),
            engine(f"{ITL}_count"): grows(0.4),
        },
    ),
    Silence(
        why="a model without traffic",
        alerts=("ModelLatencyAboveTarget", "ModelSlowerThanPromised", "ModelRefusesRequests", "ModelPreemptsRequests"),
        change={series: Values(values.first) for series, values in HEALTHY.items() if values.each_minute},
    ),
    Silence(
        why="slow under more load than the site declares",
        alerts=("ModelSlowerThanPromised",),
        change={
            **itl(0.05, {"0.05": 0.5, "0.1": 1, "0.5": 1, "+Inf": 1}),
            engine("vllm:request_success_total", ', finished_reason="stop"'): grows(180),
        },
    ),
    Silence(
        why="a GPU without work, which clocks down by itself",
        alerts=("GpuSlowedDown",),
        change={gpu("DCGM_FI_DEV_SM_CLOCK"): constant(345), gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE"): constant(0)},
    ),
    Silence(
        why="an error that a program caused",
        alerts=("GpuXidError",),
        change={gpu("DCGM_FI_DEV_XID_ERRORS"): constant(31)},
    ),
)
