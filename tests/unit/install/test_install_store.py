"""The store: complete or absent folders, two installers at once, kills at any point, damage found."""

from __future__ import annotations

import selectors
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.install.store import MANIFEST, ToolStore, content_key

# A bound for a hung process alone; nothing waits for it when all is well.
PATIENCE_S = 120


def _fill(folder: Path, _lock: int) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "tool").write_bytes(b"x" * 1000)
    (folder / "bin" / "tool").chmod(0o755)


def _refuse(_folder: Path, _lock: int) -> None:
    raise AssertionError("a complete folder is not made again")


def _installer(root: Path, body: str) -> subprocess.Popen[str]:
    """Another process that obtains `tool-k`; `body` is its fill function's body."""
    lines = [
        "import os, signal, time",
        "from pathlib import Path",
        "from lab.install.running import run_logged",
        "from lab.install.store import ToolStore",
        f"root = Path({str(root)!r})",
        "def fill(folder, lock):",
        textwrap.indent(textwrap.dedent(body).strip(), "    "),
        "ToolStore(root).obtain('tool', 'k', fill)",
    ]
    script = "\n".join(lines)
    return subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)


def test_a_filled_folder_is_reused(tmp_path: Path) -> None:
    store = ToolStore(tmp_path)
    assert store.obtain("tool", "k", _fill).fresh
    assert not store.obtain("tool", "k", _refuse).fresh
    assert store.size("tool", "k") == 1000


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda folder: (folder / "bin/tool").write_bytes(b"x" * 10), "has 10 bytes instead of 1000"),
        (lambda folder: (folder / "bin/tool").unlink(), "missing"),
        (lambda folder: (folder / "bin/tool").chmod(0o644), "mode 644 instead of 755"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "manifest"),
        (lambda folder: (folder / MANIFEST).write_text('{"files": []}'), "manifest"),
        (lambda folder: (folder / MANIFEST).unlink(), "manifest"),
    ],
)
def test_damage_is_named_and_mended(
    tmp_path: Path, damage: object, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(damage)
    store = ToolStore(tmp_path)
    damage(store.obtain("tool", "k", _fill).folder)
    assert word in str(store.fault("tool", "k"))
    assert store.obtain("tool", "k", _fill).fresh
    assert store.fault("tool", "k", verify=True) is None
    assert word in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock-tool", "tool-k"]


def test_only_verify_reads_the_bytes(tmp_path: Path) -> None:
    store = ToolStore(tmp_path)
    (store.obtain("tool", "k", _fill).folder / "bin" / "tool").write_bytes(b"y" * 1000)
    assert store.fault("tool", "k") is None
    assert "SHA-256" in str(store.fault("tool", "k", verify=True))


def test_a_failed_fill_leaves_the_name_free(tmp_path: Path) -> None:
    def fail(folder: Path, _lock: int) -> None:
        (folder / "half").write_text("x")
        raise LabError("no", fix="none")

    store = ToolStore(tmp_path)
    with pytest.raises(LabError):
        store.obtain("tool", "k", fail)
    assert store.fault("tool", "k") == "missing"
    store.obtain("tool", "k", _fill)
    assert not list(tmp_path.glob(".partial-*"))


@pytest.mark.processes
def test_a_killed_installer_is_cleaned_up_after(tmp_path: Path) -> None:
    killed = _installer(tmp_path, "(folder / 'half').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)")
    killed.communicate(timeout=PATIENCE_S)
    assert killed.returncode == -9
    assert list(tmp_path.glob(".partial-tool@*"))
    entry = ToolStore(tmp_path).obtain("tool", "k", _fill)
    assert not (entry.folder / "half").exists()
    assert not list(tmp_path.glob(".partial-*"))


def test_a_neighbour_with_a_longer_name_keeps_its_unfinished_folder(tmp_path: Path) -> None:
    (tmp_path / ".partial-tool-extra@abc").mkdir(parents=True)
    ToolStore(tmp_path).obtain("tool", "k", _fill)
    assert (tmp_path / ".partial-tool-extra@abc").is_dir()


@pytest.mark.processes
def test_two_installers_build_once(tmp_path: Path) -> None:
    """The first fills until the second waits for it, however long either takes to start."""
    body = """
        with (root / "fills").open("a") as log: log.write("x")
        while not (root / "waited-for").exists(): time.sleep(0.01)
        (folder / "tool").write_text("t")
    """
    both = [_installer(tmp_path, body), _installer(tmp_path, body)]
    streams = [installer.stderr for installer in both if installer.stderr is not None]
    with selectors.DefaultSelector() as waiting:
        for stream in streams:
            waiting.register(stream, selectors.EVENT_READ)
        # One of them holds the lock and says nothing.
        [(ready, _)] = waiting.select(timeout=PATIENCE_S)
    line = next(stream for stream in streams if stream is ready.fileobj).readline()
    assert "another installer is at it" in line
    (tmp_path / "waited-for").touch()
    output = "".join(installer.communicate(timeout=PATIENCE_S)[1] for installer in both)
    assert [installer.returncode for installer in both] == [0, 0]
    assert (tmp_path / "fills").read_text() == "x"
    assert "the other installer has finished it" in output


@pytest.mark.processes
def test_a_build_that_outlives_its_killed_installer_keeps_the_lock(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/began; until [ -e {tmp_path}/go ]; do sleep 0.05; done; touch {tmp_path}/ended"
    killed = _installer(
        tmp_path,
        f"""
        if os.fork() == 0:
            while not (root / "began").exists(): time.sleep(0.01)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(0)
        run_logged(["sh", "-c", {script!r}], log=root / "log", label="t", inherit=lock)
        """,
    )
    assert killed.wait(timeout=PATIENCE_S) == -9
    assert not (tmp_path / "ended").exists()
    # Long enough for the next one to meet the lock; where it comes later, the build has ended all the same.
    threading.Timer(1, (tmp_path / "go").touch).start()
    seen = []
    ToolStore(tmp_path).obtain("tool", "k", lambda _folder, _lock: seen.append((tmp_path / "ended").exists()))
    assert seen == [True]


def test_the_key_counts_every_boundary() -> None:
    assert content_key(["ab", "c"]) != content_key(["a", "bc"])
    assert content_key(["a"]) == content_key([b"a"])
    assert len(content_key(["a"])) == 12
