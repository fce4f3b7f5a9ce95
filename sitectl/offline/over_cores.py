"""One act for each of many sites, over the machine's cores; the results are those of one site after the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

Subject = TypeVar("Subject")
Result = TypeVar("Result")
Item = TypeVar("Item", bound=Hashable)

# Sites with which a process of its own is sooner done than one that waits for its turn.
FEWEST_SITES = 8
# Sites that a process takes at a time: few enough that none waits long for the last ones of another.
_AT_ONCE = 2


def shares(sizes: Mapping[Item, int]) -> list[list[Item]]:
    """The items for as many processes as there are cores, of about the same size; all together where they are few."""
    parts: list[list[Item]] = [[] for _ in range(_processes(len(sizes)))]
    filled = [0] * len(parts)
    for item in sorted(sizes, key=lambda item: -sizes[item]):
        least = filled.index(min(filled))
        parts[least].append(item)
        filled[least] += sizes[item]
    return parts


def for_each(sites: Mapping[str, Subject], act: Callable[[str, Subject], Result]) -> dict[str, Result]:
    """What `act` returns for each site, in their order.

    `act` may run in a process of its own: it returns plain data, and changes nothing that others see. Where it raises,
    the error is that of the first such site.
    """
    processes, results = _processes(len(sites)), dict[str, Result]()
    if processes > 1:
        work, names = _Work(sites, act), list(sites)
        # Sites differ: a process that is done with some small ones takes the next.
        parts = [names[number :: len(names) // _AT_ONCE] for number in range(len(names) // _AT_ONCE)]
        with ProcessPoolExecutor(processes, get_context("fork"), initializer=_begin, initargs=(work,)) as pool:
            for done in [pool.submit(_part, part) for part in parts]:
                results |= _done(done)
    # What failed in a process of its own, or could not leave it, is done here, where its error is the one to read.
    return {name: results[name] if name in results else act(name, subject) for name, subject in sites.items()}


def _processes(sites: int) -> int:
    return max(1, min(len(os.sched_getaffinity(0)), sites // FEWEST_SITES))


class _Work:
    """What a new process has of its parent's memory; a lambda finds no other way there."""

    here: _Work | None = None

    def __init__(self, sites: Mapping[str, Any], act: Callable[[str, Any], Any]) -> None:
        self.sites, self.act = sites, act


def _begin(work: _Work) -> None:
    # Interrupted, it ends without a traceback of its own.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()
    _Work.here = work


def _end_with_parent() -> None:
    # A killed parent leaves processes that wait for work for ever, and hold whatever its output goes to.
    if parent := parent_process():
        parent.join()
    os._exit(1)


def _part(names: Sequence[str]) -> dict[str, Any]:
    work = _Work.here
    assert work is not None  # noqa: S101 - `_begin` ran
    results = {}
    for name in names:
        try:
            results[name] = work.act(name, work.sites[name])
        except Exception:  # noqa: BLE001, S112 - done again by the parent
            continue
    return results


def _done(part: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return part.result()
    except Exception:  # noqa: BLE001 - a process that ended early, or a result that cannot be sent
        return {}
