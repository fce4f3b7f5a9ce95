"""A real Envoy whose log's volume is full while the ledger is away: that is counted, and rows come again with room."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import Shipper
from tests.unit.services.test_ledger_ship import envoy_running, has_rows, is_answered
from tests.unit.services.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35")]

FAILED = "envoy_filesystem_write_failed"


@contextmanager
def small_volume(folder: Path, kib: int) -> Iterator[Path]:
    """A volume in a mount namespace of its own, which takes no root; it ends with the block."""
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={kib}k tmpfs {folder} && echo && exec sleep infinity"
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"\n"
            yield Path(f"/proc/{holder.pid}/root{folder}")
        finally:
            holder.kill()


def failed_writes(admin: str) -> float:
    """As Prometheus reads it: stacks/facts/metrics/envoy.yaml has its name."""
    text = httpx.get(f"{admin}/stats/prometheus").text
    (value,) = [line.split()[-1] for line in text.splitlines() if line.startswith(f"{FAILED}{{")]
    return float(value)


@pytest.mark.parametrize(
    ("kib", "most_bytes"),
    [
        pytest.param(200, 10**9, id="the volume ends first"),
        pytest.param(20_000, 100_000, id="the shipper stops the log before the volume ends"),
    ],
)
def test_lines_without_room_are_counted_and_rows_arrive_again_once_there_is_room(
    tmp_path: Path, kib: int, most_bytes: int
) -> None:
    with (
        small_volume(tmp_path / "volume", kib) as volume,
        ledger_rig.running(tmp_path) as (server, ledger),
        envoy_running(tmp_path, volume / "requests.jsonl") as (url, admin),
        httpx.Client(base_url=url) as client,
    ):
        until(lambda: is_answered(client))
        server.kill()
        more = ("--most-bytes", str(most_bytes))
        own = Shipper(tmp_path, volume / "requests.jsonl", ledger.url, admin, 50_000, *more)
        try:
            own.start()
            answered = 1

            def ask() -> None:
                nonlocal answered
                answered += sum(client.get("/").status_code == 200 for _ in range(50))

            def is_full() -> bool:
                ask()
                return failed_writes(admin) > 2

            assert failed_writes(admin) == 0
            until(is_full)
            waits = sum(file.stat().st_size for file in volume.glob("requests.jsonl*"))
            assert waits > 0.9 * min(kib * 1024, most_bytes)
            assert (volume / "requests.jsonl").is_symlink() == (most_bytes < 10**9)
            server.start()
            ledger.wait_ready()
            until(lambda: own.metric("inference_usage_shipper_bytes_behind") == 0)
            until(lambda: (volume / "requests.jsonl").is_file())
            kept = int(server.sql("SELECT count(*) FROM requests").stdout)
            assert 100 < kept < answered
            ask()
            until(lambda: has_rows(server, kept + 50))
            assert own.end() == 0
        finally:
            own.end(signal.SIGKILL)
