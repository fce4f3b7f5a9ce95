"""The program on a node's disk: what goes before a new revision comes, what a server's start keeps, how it waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from services.weights.__main__ import main
from services.weights.completion import Marker, write_marker
from services.weights.failure import Exit
from services.weights.manifest import Manifest
from services.weights.order import Wanted
from tests.unit.services.weights_rig import OTHER, REPOSITORY, REVISION, THIRD, Rig, rig, write_order

pytestmark = pytest.mark.row("000.22", "001.30", "003.09", "003.12")

ROOT = Path(__file__).parents[3]


def bring(site: Rig, revision: str, keep: int = 2) -> None:
    site.program(site.order(revision, keep=keep)).run(remove_earlier=True)


def start_server(site: Rig, tmp_path: Path, revision: str, *, at: int) -> int:
    """What a server's first container does on the node; `at`: when."""
    used = site.root / "used"
    used.mkdir(exist_ok=True)
    order = write_order(tmp_path / "order", site.order(revision))[:2]
    folder = site.root / "revisions" / revision
    names = ["--repository", REPOSITORY, "--revision", revision, "--daemon-set", "chat-weights"]
    status = main(["check", "--folder", str(folder), *names, "--used", str(used), *order], {})
    if (used / revision).exists():
        os.utime(used / revision, (at, at))
    return status


def kept(site: Rig) -> set[str]:
    return {folder.name for folder in (site.root / "revisions").iterdir()}


def test_all_adapters_are_checked_at_once_and_each_is_in_use(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        for revision in (REVISION, OTHER):
            bring(site, revision)
        order = write_order(tmp_path / "order", site.order(REVISION))[:2]
        used = site.root / "used"
        used.mkdir()
        folder = ["--folder", str(site.root / "revisions"), "--used", str(used), "--daemon-set", "chat-weights"]
        both = [f"--each={REPOSITORY}@{revision}" for revision in (REVISION, OTHER)]
        assert main(["check", *folder, *both, *order], {}) == 0
        assert {file.name for file in used.iterdir()} == {REVISION, OTHER}
        (site.root / "revisions" / OTHER / ".weights.json").unlink()
        assert main(["check", *folder, *both, *order], {}) == Exit.INCOMPLETE


def test_the_oldest_revision_goes_before_the_next_one_comes(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        for age, revision in enumerate((THIRD, OTHER)):
            bring(site, revision)
            os.utime(site.root / "revisions" / revision / ".weights.json", (age, age))
        bring(site, REVISION)
        assert kept(site) == {OTHER, REVISION}
        went, came = (
            next(at for at, line in enumerate(site.lines) if line.startswith(begin))
            for begin in (f"{THIRD}: removed", f"{REPOSITORY} at {REVISION}: 8 files")
        )
        assert went < came


def whole(site: Rig, repository: str, letter: str, *, at: int) -> str:
    """A revision that was brought and used at that time."""
    revision = letter * 40
    folder, used = site.root / "revisions" / revision, site.root / "used"
    folder.mkdir(parents=True)
    used.mkdir(exist_ok=True)
    write_marker(folder, Marker(Manifest(repository, revision, {}), "hub"))
    (used / revision).touch()
    os.utime(used / revision, (at, at))
    return revision


def remove_earlier(site: Rig, keep: int, **wanted: str) -> set[str]:
    """First letters of what is left, where the order wants these revisions of these repositories."""
    names = tuple(Wanted(f"org/{name}", letter * 40, "") for name, letter in wanted.items())
    program = site.program(replace(site.order(keep=keep), wanted=names))
    for entry in names:
        if not (site.root / "revisions" / entry.revision).exists():
            whole(site, entry.repository, entry.revision[0], at=100)
    program.prune()
    return {name[0] for name in kept(site)}


def test_a_draft_gives_its_model_no_room_for_one_revision_more(tmp_path: Path) -> None:
    """Two of each are what the disk was counted for."""
    with rig(tmp_path) as site:
        whole(site, "org/model", "1", at=1)
        whole(site, "org/model", "2", at=2)
        whole(site, "org/draft", "d", at=2)
        assert remove_earlier(site, 4, model="3", draft="d") == {"2", "3", "d"}


def test_what_servers_run_on_stays_where_a_draft_is_changed_or_taken_out(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        whole(site, "org/model", "1", at=1)
        whole(site, "org/draft", "d", at=2)
        assert remove_earlier(site, 4, model="2", other="e") == {"1", "2", "d", "e"}
    with rig(tmp_path / "again") as site:
        whole(site, "org/model", "1", at=1)
        whole(site, "org/draft", "d", at=2)
        assert remove_earlier(site, 2, model="2") == {"1", "2"}


def test_the_revision_that_servers_run_on_stays_whatever_was_brought_since(tmp_path: Path) -> None:
    """A commit that was brought, and that no server took over, is the one to go."""
    with rig(tmp_path) as site:
        bring(site, THIRD)
        assert start_server(site, tmp_path, THIRD, at=1) == Exit.OK
        bring(site, OTHER)
        bring(site, REVISION)
        assert kept(site) == {THIRD, REVISION}


def test_after_a_way_back_the_one_that_was_left_goes_first(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        for at, revision in enumerate((THIRD, OTHER, THIRD)):
            bring(site, revision)
            assert start_server(site, tmp_path, revision, at=at) == Exit.OK
        bring(site, REVISION)
        assert kept(site) == {THIRD, REVISION}
        assert not (site.root / "used" / OTHER).exists()


def test_a_server_on_a_node_without_the_revision_is_told_where_to_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rig(tmp_path) as site:
        site.root.mkdir(exist_ok=True)
        assert start_server(site, tmp_path, REVISION, at=1) == Exit.INCOMPLETE
        reported = " ".join(capsys.readouterr().err.split())
        assert "is not ready in the volume: it has no marker" in reported
        assert "see the pod of the DaemonSet chat-weights on this server's node" in reported
        assert "Job" not in reported
        assert not (site.root / "used" / REVISION).exists()


def test_a_disk_that_takes_no_mark_keeps_no_server_from_its_start(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        bring(site, REVISION)
        (site.root / "used").write_text("no folder")
        order = write_order(tmp_path / "order", site.order())[:2]
        names = ["--repository", REPOSITORY, "--revision", REVISION, "--daemon-set", "chat-weights"]
        assert main(["check", "--folder", str(site.folder), *names, "--used", str(site.root / "used"), *order], {}) == 0


def test_the_commands_flag_removes_earlier_revisions(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        bring(site, OTHER)
        options = ["--volume", str(site.root), *write_order(tmp_path / "order", site.order(keep=1))]
        assert main(["bring", *options], {}) == Exit.OK
        assert kept(site) == {OTHER, REVISION}
        assert main(["bring", "--remove-earlier", *options], {}) == Exit.OK
        assert kept(site) == {REVISION}


def test_the_pod_is_held_until_it_is_told_to_stop() -> None:
    program = (
        "import sys, threading; wait = threading.Event.wait\n"
        "threading.Event.wait = lambda self, timeout=None: (print('holds', flush=True), wait(self, timeout))\n"
        "from services.weights.__main__ import main; sys.exit(main(['hold'], {}))"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout
        assert held.stdout.readline() == "holds\n"
        assert held.poll() is None
        held.send_signal(signal.SIGTERM)
        assert held.wait(60) == Exit.OK
