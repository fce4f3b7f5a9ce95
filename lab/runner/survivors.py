"""What an earlier runner, which was killed, left running: pods with their networks and containers."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.cluster import processes
from lab.paths import Lab
from lab.runner.container import RUN_MARK, Instance, pod_mark, run_mark
from lab.runner.logs import LogSink
from lab.runner.network import NAMESPACE_FOLDER
from lab.runner.records import PodRecord, Records, RunRecord

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SurvivingRun:
    """The last run of a container; its instance's end is there at once where it ended while no runner looked."""

    record: RunRecord
    instance: Instance


@dataclass(frozen=True, kw_only=True)
class SurvivingPod:
    record: PodRecord
    runs: dict[str, SurvivingRun] = field(default_factory=dict)


def find(lab: Lab) -> dict[str, SurvivingPod]:
    """By uid, the pods of which something may be taken over. From now on their output is read again."""
    survivors = {}
    for folder in sorted(lab.pods.glob("*")):
        records = Records(folder)
        record = records.pod()
        if record is not None and (not record.network or (NAMESPACE_FOLDER / record.network).exists()):
            runs = {name: _take_over(lab, folder, name, run) for name, run in records.runs()}
            survivors[folder.name] = SurvivingPod(record=record, runs=runs)
    return survivors


def _take_over(lab: Lab, folder: Path, container: str, run: RunRecord) -> SurvivingRun:
    records = Records(folder)
    instance = Instance.take_over(
        run,
        status_file=records.status_file(container),
        log=LogSink(Path(run.log), records.output(container), taken_over=True),
        mark=run_mark(lab, folder.name, container, run.number),
    )
    return SurvivingRun(record=run, instance=instance)


def end_all_but(lab: Lab, kept: Mapping[str, SurvivingPod]) -> None:
    """End all runs of the lab's pods that are not among these, also those without a record."""
    marks = {run_mark(lab, uid, name, run.record.number) for uid, pod in kept.items() for name, run in pod.runs.items()}
    _end(lambda mark: mark.startswith(pod_mark(lab)) and mark not in marks)
    for folder in lab.pods.glob("*"):
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def end_pod(lab: Lab, uid: str) -> None:
    """End every process of a pod."""
    _end(lambda mark: mark.startswith(pod_mark(lab, uid)))


def _end(is_meant: Callable[[str], bool]) -> None:
    if left := processes.end_started_with(RUN_MARK, is_meant):
        _LOG.error("processes of pods do not end: %s", ", ".join(map(str, sorted(left))))
