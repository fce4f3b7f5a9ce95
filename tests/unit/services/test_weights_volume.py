"""A volume: room, what is in it already, when a revision is whole, and which earlier ones go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.hub.server import HubFaults
from services.weights.__main__ import main
from services.weights.completion import problem
from services.weights.failure import Exit
from services.weights.order import Source
from services.weights.volume import open_part
from tests.unit.services.weights_rig import (
    FILES,
    LARGE,
    OTHER,
    REPOSITORY,
    REVISION,
    THIRD,
    Rig,
    refused,
    rig,
    write_order,
)

pytestmark = pytest.mark.row("000.20", "000.22", "003.12")


def test_a_volume_without_room_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        failure = refused(site.program(free=lambda _: 500_000))
        assert failure.status == Exit.NO_SPACE
        assert "287 kB are missing; got 500 kB free; allowed: 787 kB or more" in str(failure)
        assert "storage.weights.revisions" in str(failure)
        assert site.emulated.requests == []


def test_what_came_before_is_not_counted_as_missing_room(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, status=401, times=1)) as site:
        refused(site.program())
        left = sum(len(data) for path, data in FILES.items() if not (site.folder / path).exists())
        assert 0 < left < 787_000
        assert refused(site.program(free=lambda _: left - 1)).status == Exit.NO_SPACE
        site.program(free=lambda _: left).run()
        assert site.is_whole()


def test_the_cache_of_an_earlier_program_is_compared_and_not_downloaded(tmp_path: Path) -> None:
    """As the hub's client leaves it: links into a folder of blobs. It takes no room a second time."""
    with rig(tmp_path) as site:
        _cache(site, FILES)
        site.program(free=lambda _: 0).run()
        assert site.is_whole()
        assert site.emulated.requests == []
        assert (site.folder / LARGE).stat().st_nlink == 2


def test_a_file_of_that_cache_that_is_another_one_is_downloaded(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        _cache(site, {**FILES, LARGE: bytes(len(FILES[LARGE]))})
        site.program().run()
        assert site.is_whole()
        assert [path for path, _ in site.emulated.requests] == [LARGE]


def test_files_that_were_copied_into_their_place_are_compared_with_the_lock(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        order = site.order(source="volume", lock=site.lock().text())
        _copy(site, {**FILES, LARGE: bytes(len(FILES[LARGE]))})
        failure = refused(site.program(order))
        assert failure.status == Exit.CORRUPT
        assert f"{LARGE} in the volume is not the file" in str(failure)
        assert problem(site.folder, REPOSITORY, REVISION)
        _copy(site, FILES)
        site.program(order).run()
        assert site.is_whole()


def test_files_without_a_lock_are_written_down_as_they_are_found(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        _copy(site, {**FILES, "notes/own.txt": b"mine", ".cache/huggingface/x.lock": b""})
        site.program(site.order(source="volume")).run()
        assert '"against": "found"' in (site.folder / ".weights.json").read_text()
        assert (site.folder / "notes" / "own.txt").exists()
        assert ".cache" not in (site.folder / ".weights.json").read_text()


def test_an_empty_volume_names_what_to_copy_and_the_commits_that_are_there(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        failure = refused(site.program(site.order(source="volume")))
        assert failure.status == Exit.INCOMPLETE
        assert f"revisions/{REVISION}" in str(failure)
        _cache(site, FILES, OTHER)
        assert f"got a cache with {OTHER}" in str(refused(site.program(site.order(source="volume"))))


def test_a_file_that_the_lock_has_and_the_volume_has_not_is_named(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        locked = site.lock().text()
        _copy(site, {path: data for path, data in FILES.items() if path != LARGE})
        failure = refused(site.program(site.order(source="volume", lock=locked)))
        assert f"{LARGE} in the volume is not the file of {REPOSITORY}: got 0 bytes" in str(failure)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / ".weights.json").unlink(), "no marker"),
        (lambda folder: (folder / ".weights.json").write_text("{"), "no marker"),
        (lambda folder: (folder / LARGE).write_bytes(b"short"), f"{LARGE} has 5 bytes, and 196608 were verified"),
        (lambda folder: (folder / LARGE).unlink(), f"{LARGE} cannot be read"),
    ],
)
def test_a_server_does_not_start_on_a_folder_that_is_not_whole(
    tmp_path: Path, spoil: object, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with rig(tmp_path) as site:
        site.program().run()
        check = _check(site, tmp_path)
        assert main(check, {}) == Exit.OK
        assert callable(spoil)
        spoil(site.folder)
        assert main(check, {}) == Exit.INCOMPLETE
        reported = capsys.readouterr().err
        assert says in reported
        assert "kubectl logs job/chat-weights" in reported
        site.program().run()
        assert main(check, {}) == Exit.OK


def test_a_server_does_not_start_on_files_that_another_lock_lists(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        locked = site.lock()
        site.program().run()
        fewer = locked.text().replace(*_without_last(locked.text()))
        check = _check(site, tmp_path, lock=fewer)
        assert main(check, {}) == Exit.INCOMPLETE
        site.program(site.order(lock=fewer)).run()
        assert main(check, {}) == Exit.OK
        assert not (site.folder / "tokenizer.json").exists()


def test_a_writer_that_lost_its_lock_writes_into_a_file_without_a_name(tmp_path: Path) -> None:
    """As one on a node that was cut off and comes back: its bytes reach nothing that a server reads."""
    with rig(tmp_path) as site:
        lost = open_part(site.part)
        lost.write(FILES[LARGE][:1000])
        site.program().run()
        lost.write(b" and more")
        lost.close()
        assert site.is_whole()


def test_earlier_revisions_go_when_the_servers_run_on_the_new_one(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        for age, revision in enumerate((THIRD, OTHER, REVISION)):
            site.program(site.order(revision)).run()
            os.utime(site.root / "revisions" / revision / ".weights.json", (age, age))
        # Each of them may still have a server: bringing a revision removes nothing.
        assert all(site.is_whole(revision) for revision in (THIRD, OTHER, REVISION))
        # Begun by this program, and never finished.
        (site.root / "revisions" / ("d" * 40)).mkdir()
        (site.root / "parts" / ("d" * 40)).mkdir(parents=True)
        site.program(site.order(keep=2)).prune()
        assert site.is_whole()
        assert site.is_whole(OTHER)
        assert sorted(path.name for path in (site.root / "revisions").iterdir()) == [REVISION, OTHER]
        site.program(site.order(keep=1)).prune()
        assert [path.name for path in (site.root / "revisions").iterdir()] == [REVISION]


@pytest.mark.parametrize("source", ["volume", "hub"])
def test_a_revision_that_was_copied_in_waits_for_its_turn(tmp_path: Path, source: Source) -> None:
    """The next commit of a volume that is filled by hand has no mark before its own `up`."""
    with rig(tmp_path) as site:
        site.program().run()
        copied = site.root / "revisions" / OTHER
        copied.mkdir()
        (copied / "model.safetensors").write_bytes(b"756 GB of it")
        site.program(site.order(keep=1, source=source)).prune()
        assert (copied / "model.safetensors").exists()
        assert "left alone" in " ".join(site.lines)


def test_nothing_goes_before_the_new_revision_is_whole(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.program(site.order(OTHER)).run()
        site.program().prune()
        assert site.is_whole(OTHER)
        assert "nothing is removed" in site.lines[-1]


def test_the_cache_of_an_earlier_program_goes_with_them(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        _cache(site, FILES)
        site.program().run()
        site.program(site.order(source="volume")).prune()
        assert (site.root / "hub").exists()
        site.program().prune()
        assert not [*(site.root / "hub").iterdir()]
        assert site.is_whole()


def test_the_command_writes_its_reason_and_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rig(tmp_path, token="hf_secret") as site:
        options = write_order(tmp_path / "order", site.order(token_from="inference-models/hub-token"))
        status = main(["bring", "--volume", str(site.root), *options], {"HF_TOKEN": "hf_wrong"})
        shown = capsys.readouterr()
        assert status == Exit.TOKEN
        assert shown.err.startswith("error: the token in inference-models/hub-token does not open")
        assert "hf_wrong" not in shown.err + shown.out
        assert main(["bring", "--volume", str(site.root), *options], {"HF_TOKEN": "hf_secret"}) == Exit.OK
        assert main(["prune", "--volume", str(site.root), *options], {"HF_TOKEN": "hf_secret"}) == Exit.OK
        other = [*options[:3], "00000000"]
        assert main(["bring", "--volume", str(site.root), *other], {}) == Exit.ORDER


def _cache(site: Rig, files: Mapping[str, bytes], revision: str = REVISION) -> None:
    repository = site.root / "hub" / f"models--{REPOSITORY.replace('/', '--')}"
    for number, (path, data) in enumerate(files.items()):
        blob, link = repository / "blobs" / str(number), repository / "snapshots" / revision / path
        blob.parent.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link.symlink_to(os.path.relpath(blob, link.parent))


def _copy(site: Rig, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (site.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (site.folder / path).write_bytes(data)


def _check(site: Rig, tmp_path: Path, lock: str = "") -> list[str]:
    order = write_order(tmp_path / "order", site.order(lock=lock))[:2]
    names = ["--repository", REPOSITORY, "--revision", REVISION, "--job", "chat-weights"]
    return ["check", "--folder", str(site.folder), *names, *order]


def _without_last(text: str) -> tuple[str, str]:
    *_, size, line = text.splitlines()
    return f"{size}\n{line}\n", ""
