"""What an emulated machine keeps on its disks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.machines.state import Store


def test_writers_at_once_leave_a_whole_state(tmp_path: Path) -> None:
    """A machine is erased by a thread of its own, while the rack takes it out of etcd."""
    store = Store(tmp_path / "m1")
    store.disks.boot_id = "b-1"
    with ThreadPoolExecutor(8) as threads:
        for written in [threads.submit(store.save) for _ in range(400)]:
            written.result()
    assert Store(tmp_path / "m1").disks.boot_id == "b-1"
    assert not [path.name for path in (tmp_path / "m1").iterdir() if path.name.startswith(".")]
