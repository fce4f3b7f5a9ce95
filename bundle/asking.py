"""Questions to registries and repositories: none twice, none for longer than its limit, all within a total."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from bundle.errors import BundleError

_MORE = (
    "check the connection, name another place (--help lists the options), or wait longer: --timeout and "
    "--total-timeout SECONDS"
)


@dataclass(frozen=True, kw_only=True)
class WaitingTimes:
    """How long a run waits for others, in seconds."""

    answer_s: float = 60.0
    """For one answer. A chart is a few hundred kB, which a registry behind a slow proxy sends in less."""
    total_s: float = 300.0
    """For all answers of a run."""


class NoAnswerError(BundleError):
    """A place that does not answer in time."""

    def __init__(self, place: str, limit_s: float) -> None:
        super().__init__(f"{place} gave no answer within {limit_s:.0f} s", fix=_MORE)


class Asking:
    """What a run has asked already, so that sites that want the same share its answer, or wait for its failure once."""

    def __init__(
        self,
        times: WaitingTimes | None = None,
        note: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """note: shows a line of progress before each question."""
        self._times = times or WaitingTimes()
        self._note = note
        self._clock = clock
        self._waited_s = 0.0
        self._answers: dict[Hashable, str | BundleError] = {}
        self._silent: dict[str, NoAnswerError] = {}

    def once(self, question: Hashable, what: str, place: str, ask: Callable[[float], str]) -> str:
        """The answer of `ask`, which is given its limit in seconds, or the one that the same question had.

        what: the question for people. place: who answers; one that gave no answer is not asked again. Raises
        BundleError, also once the total is used up.
        """
        if question not in self._answers:
            self._answers[question] = self._asked(what, place, ask)
        answer = self._answers[question]
        if isinstance(answer, BundleError):
            raise answer
        return answer

    def _asked(self, what: str, place: str, ask: Callable[[float], str]) -> str | BundleError:
        if place in self._silent:
            return self._silent[place]
        left_s = self._times.total_s - self._waited_s
        if left_s <= 0:
            total = f"{self._times.total_s:.0f} s for all answers"
            return BundleError(f"{what} was not asked for: time is up", allowed=total, fix=_MORE)
        limit_s = min(self._times.answer_s, left_s)
        self._note(f"  asking for {what}, at most {limit_s:.0f} s")
        began = self._clock()
        try:
            return ask(limit_s)
        except NoAnswerError as error:
            self._silent[place] = error
            return error
        except BundleError as error:
            return error
        finally:
            self._waited_s += self._clock() - began
