"""A model out of an emulated hub and off a limited disk, by the plan's own Job, against what the plan predicts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import generated_sites
from benchmarks.report import Result, Row, Table
from lab.errors import LabError
from lab.hub.server import EmulatedHubServer, Hub
from lab.paths import CHECKOUT, Lab
from stacks.facts import catalogue
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_values
from stacks.proof.weights import weight_bytes

HELP = "a model that is brought and read at limited rates, against the cold start that the plan predicts"
NEEDS_LAB = False
PARAMETERS = ()
# The smallest of the catalogue, 2.2 GB.
_MODEL, _SHARDS = "bge-m3", 4
_REPLICAS = 3
# Far below what two busy cores and a local disk pass on.
_DOWNLOAD_BYTES_PER_S, _READ_BYTES_PER_S = 20_000_000, 80_000_000
_THROTTLE = Path("/sys/fs/cgroup/blkio")
_ROOM = 1.2


def run(lab: Lab) -> Result:  # noqa: ARG001
    """Raises LabError where the machine has no root, no loop device, or no throttle of cgroup v1."""
    files, plan = _files(), planned()
    count = sum(map(len, files.values()))
    hub = EmulatedHubServer(Hub(content=lambda repository, revision: files))  # noqa: ARG005
    try:
        with tempfile.TemporaryDirectory() as folder:
            measured = _measured(plan, hub.url, Path(folder), count)
    finally:
        hub.close()
    predicted = predictions(plan)
    rows = [_row(what, predicted[what], seconds) for what, seconds in zip(predicted, measured, strict=True)]
    ratios = [float(str(row["measured / predicted"])) for row in rows]
    return Result(
        benchmark="cold_start",
        question="Do weights arrive and load in the time that the plan predicts, also where several replicas start at "
        "once?",
        conditions={
            "model": f"{_MODEL}, {count / 1e9:.3g} GB in {_SHARDS} made-up files",
            "download_bytes_per_s": _DOWNLOAD_BYTES_PER_S,
            "read_bytes_per_s": _READ_BYTES_PER_S,
            "volume": "ext4 on a loop device; the kernel limits what all readers get of it together (cgroup v1, blkio)",
            "job": "the program of the plan's Job with the plan's order; an emulated hub on the same machine",
            "readers": "one process per replica, dd with O_DIRECT",
        },
        tables=[Table(title="Seconds", rows=rows)],
        findings=[
            f"measured is {min(ratios):.2f} to {max(ratios):.2f} of predicted",
            "compilation, CUDA graphs and the copy to a GPU are not in it: no engine ran",
        ],
    )


def _files() -> Mapping[str, bytes]:
    """Zeros as large as the catalogue computes the model's files: the disk and its limit do not look at them."""
    whole = round(weight_bytes(catalogue.load(_MODEL)).files)
    sizes = [whole // _SHARDS] * (_SHARDS - 1)
    sizes.append(whole - sum(sizes))
    shards = {f"model-{at:05}-of-{_SHARDS:05}.safetensors": bytes(size) for at, size in enumerate(sizes, 1)}
    return {"config.json": b"{}", **shards}


def planned() -> RevisionPlan:
    """The model on a site with these rates."""
    values = generated_sites.site(0)
    values["storage"] = {
        "read_bytes_per_s": _READ_BYTES_PER_S,
        "shared_read_bytes_per_s": _READ_BYTES_PER_S,
        "weights": {"source": "hub", "download_bytes_per_s": _DOWNLOAD_BYTES_PER_S},
    }
    values["models"] = {"small": {"catalogue": _MODEL, "server": {"replicas": _REPLICAS}}}
    values["tenants"] = {"team": {"models": ["small"], "keys": {"key": {}}}}
    return plan_values(values, "cold_start").models["small"].stable


def predictions(plan: RevisionPlan) -> dict[str, float]:
    """Seconds of each part of a start, as the plan shows them."""
    cold_start = plan.proof.cold_start
    download, together = cold_start["download_weights"].value, cold_start["read_weights_together"].value
    return {
        "download and check, once a volume": download,
        "read by one replica": cold_start["read_weights"].value,
        f"read by {_REPLICAS} replicas at once": together,
        f"first start of {_REPLICAS}, without the engine's own part": download + together,
    }


def _measured(plan: RevisionPlan, address: str, folder: Path, count: int) -> list[float]:
    """Seconds of the same parts."""
    if plan.weights is None:
        raise AssertionError
    (wanted,) = plan.weights.order.wanted
    with _volume(folder, count) as (volume, limited):
        downloaded = _timed(lambda: _bring(plan, address, folder, volume))
        shards = sorted((volume / "revisions" / wanted.revision).glob("*.safetensors"))
        alone = _timed(lambda: _read(shards, 1, limited))
        together = _timed(lambda: _read(shards, _REPLICAS, limited))
    return [downloaded, alone, together, downloaded + together]


def _row(what: str, predicted: float, measured: float) -> Row:
    return {
        "what": what,
        "predicted": round(predicted, 1),
        "measured": round(measured, 1),
        "measured / predicted": round(measured / predicted, 3),
    }


def _bring(plan: RevisionPlan, address: str, folder: Path, volume: Path) -> None:
    """What the Job's pod runs; the hub's address is a variable there too."""
    if plan.weights is None:
        raise AssertionError
    order = plan.weights.order
    place = folder / "order"
    place.mkdir()
    for name, text in order.files().items():
        (place / name).write_text(text)
    words = ["bring", f"--volume={volume}", f"--order={place}", f"--digest={order.digest}"]
    _must([sys.executable, "-m", "services.weights", *words], HF_ENDPOINT=address)


def _read(files: Sequence[Path], readers: int, limited: Path) -> None:
    """All files by so many processes, each in turn, past the page cache; `limited` names their group to the kernel."""
    commands = " && ".join(f"dd if={file} of=/dev/null bs=1M iflag=direct status=none" for file in files)
    within = f"echo $$ > {limited / 'cgroup.procs'} && {commands}"
    running = [subprocess.Popen(["/bin/sh", "-c", within]) for _ in range(readers)]
    ended = [reader.wait() for reader in running]
    if any(ended):
        raise LabError("a reader of the volume failed", fix="see its message above")


@contextmanager
def _volume(folder: Path, count: int) -> Iterator[tuple[Path, Path]]:
    """A mounted disk for so many bytes, and the group of processes that the kernel limits on it."""
    image, mount = folder / "image", folder / "volume"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(round(count * _ROOM))
    _must(["mkfs.ext4", "-q", str(image)])
    device = _must(["losetup", "--find", "--show", str(image)])
    group = _THROTTLE / f"cold-start-{Path(device).name}"
    try:
        _must(["mount", device, str(mount)])
        try:
            yield mount, _limited(group, device)
        finally:
            _must(["umount", str(mount)])
    finally:
        if group.exists():
            group.rmdir()
        _must(["losetup", "--detach", device])


def _limited(group: Path, device: str) -> Path:
    number = (Path("/sys/block") / Path(device).name / "dev").read_text().strip()
    try:
        group.mkdir()
        (group / "blkio.throttle.read_bps_device").write_text(f"{number} {_READ_BYTES_PER_S}\n")
    except OSError as error:
        raise LabError(
            f"the kernel takes no limit on a disk: {error}", fix="run it as root, on a machine with cgroup v1 (blkio)"
        ) from None
    return group


def _must(words: Sequence[str], **environment: str) -> str:
    try:
        ended = subprocess.run(
            words, cwd=CHECKOUT, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        reported = str(getattr(error, "stderr", "") or error).strip()
        raise LabError(f"{words[0]} failed: {reported}", fix="run it as root, on a machine with loop devices") from None
    return ended.stdout.strip()


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
