"""Weights arrive whole and as they are meant to be, whatever the server and the network between do."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hub.server import LIST, EmulatedHubServer, HubFaults
from lab.hub.server import Hub as EmulatedHub
from services.weights.failure import Exit
from stacks.facts import catalogue
from stacks.proof.order import Order
from stacks.proof.proof import prove
from tests.unit.services.weights_rig import (
    FILES,
    LARGE,
    OTHER,
    REPOSITORY,
    REVISION,
    Rig,
    VirtualClock,
    refused,
    rig,
    write_order,
)

pytestmark = pytest.mark.row("000.19", "000.22")

ROOT = Path(__file__).parents[3]
HALF = len(FILES[LARGE]) // 2


def test_a_revision_is_whole_after_one_run_and_a_second_run_asks_for_nothing(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.program().run()
        assert site.is_whole()
        assert "4 files" not in site.lines[0]
        before = list(site.emulated.requests)
        site.program().run()
        assert site.emulated.requests == before
        assert "whole already, 788 kB" in site.lines[-1]


def test_files_of_several_threads_arrive_as_those_of_one(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.program(site.order(parallel=4)).run()
        assert site.is_whole()
        assert site.emulated.sent == sum(map(len, FILES.values()))


def test_a_transfer_that_stalls_is_begun_again_where_it_stopped(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, stall_at=HALF, times=1)) as site:
        site.program().run()
        assert site.is_whole()
        assert site.asked() == ["", f"bytes={HALF}-"]
        assert any("no byte for" in line and LARGE in line for line in site.lines)


def test_a_server_that_sends_nothing_more_ends_in_a_failure_that_says_so(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, stall_at=0)) as site:
        failure = refused(site.program())
        assert failure.status == Exit.UNREACHABLE
        assert f"{LARGE} at 0 B of 197 kB does not go on: no byte for" in str(failure)
        assert "6 attempts in a row brought next to nothing" in str(failure)
        assert site.clock.slept == [1, 2, 5, 10, 30]
        assert not site.is_whole()


def test_a_reset_in_the_middle_is_resumed_at_the_byte_that_came_last(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, reset_at=HALF, times=1)) as site:
        site.program().run()
        assert site.is_whole()
        first, *again = site.asked()
        assert (first, len(again)) == ("", 1)


def test_a_server_without_ranges_is_read_from_the_start_again(tmp_path: Path) -> None:
    faults = HubFaults(path=LARGE, stall_at=HALF, times=1), HubFaults(path=LARGE, ranges=False)
    with rig(tmp_path, *faults) as site:
        site.program().run()
        assert site.is_whole()


def test_a_corrupt_byte_is_fetched_once_more(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, corrupt=True, times=1)) as site:
        site.program().run()
        assert site.is_whole()
        assert site.asked() == ["", ""]


@pytest.mark.parametrize("path", [LARGE, "config.json"])
def test_a_file_that_is_corrupt_twice_is_named_with_both_digests(tmp_path: Path, path: str) -> None:
    with rig(tmp_path, HubFaults(path=path, corrupt=True)) as site:
        failure = refused(site.program())
        assert failure.status == Exit.CORRUPT
        data = FILES[path]
        middle = len(data) // 2
        wrong = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        blob = hashlib.sha1(b"blob %d\0" % len(data) + wrong, usedforsecurity=False).hexdigest()
        digest = f"sha256 {_sha256(wrong)}" if path == LARGE else f"git's sha1 {blob}"
        assert f"{path} of {REPOSITORY} from {site.url} is not the expected file" in str(failure)
        assert f"got {digest}, expected " in str(failure)
        assert "(the same both times)" in str(failure)
        assert not (site.folder / path).exists()
        assert not (site.folder / ".weights.json").exists()


def test_the_lock_decides_whatever_a_mirror_serves(tmp_path: Path) -> None:
    """The mirror's own list agrees with its files, which have changed."""
    with rig(tmp_path) as site:
        locked = site.lock().text()
        changed = {**FILES, LARGE: bytes(len(FILES[LARGE])), "tokenizer.json": b"{}"}
        site.emulated.content = lambda *_: changed
        failure = refused(site.program(site.order(lock=locked)))
        assert failure.status == Exit.CORRUPT
        assert f"expected {_sha256(FILES[LARGE])}" in str(failure)
        site.emulated.content = lambda *_: {**FILES, "tokenizer.json": b"{}"}
        assert "tokenizer.json" in (reported := str(refused(site.program(site.order(lock=locked)))))
        assert f"got 2 bytes, expected {len(FILES['tokenizer.json'])} bytes" in reported
        site.emulated.content = lambda *_: FILES
        site.program(site.order(lock=locked)).run()
        assert site.is_whole()


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, Exit.TOKEN, "the token in inference-models/hub-token does not open"),
        (404, Exit.NOT_FOUND, "has no such file or revision"),
        (418, Exit.OTHER, "refuses"),
    ],
)
def test_a_refusal_in_the_middle_ends_it_and_keeps_what_came(
    tmp_path: Path, status: int, code: Exit, says: str
) -> None:
    faults = HubFaults(path=LARGE, end_at=HALF, times=1), HubFaults(path=LARGE, status=status)
    with rig(tmp_path, *faults, token="hf_secret") as site:
        order = site.order(token_from="inference-models/hub-token")
        failure = refused(site.program(order, token="hf_secret"))
        assert failure.status == code
        assert says in str(failure)
        assert f"status {status}" in str(failure)
        assert "hf_secret" not in f"{failure}{site.lines}"
        assert site.part.exists()
        site.emulated.faults = ()
        site.program(order, token="hf_secret").run()
        assert site.is_whole()
        assert site.asked()[-1].startswith("bytes=")


def test_a_file_that_the_hub_itself_forbids_is_a_matter_of_the_token(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path="config.json", status=403), token="hf_secret") as site:
        failure = refused(site.program(site.order(token_from="inference-models/hub-token"), token="hf_secret"))
        assert failure.status == Exit.TOKEN
        assert "the token in inference-models/hub-token does not open" in str(failure)


def test_a_link_that_has_run_out_is_asked_for_again_and_the_file_goes_on(tmp_path: Path) -> None:
    faults = HubFaults(path=LARGE, end_at=HALF, times=1), HubFaults(path=LARGE, status=403, times=2)
    with rig(tmp_path, *faults) as site:
        site.program().run()
        assert site.is_whole()
        assert site.asked() == ["", *[f"bytes={HALF}-"] * 3]
        assert any("refuses the link of" in line for line in site.lines)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["of the hub's host", "of another host"])
def test_links_that_are_all_refused_end_in_words_about_the_store(tmp_path: Path, elsewhere: bool) -> None:
    store = EmulatedHub(faults=[HubFaults(path=LARGE, status=403)])
    other = EmulatedHubServer(store)
    with rig(tmp_path, *([] if elsewhere else store.faults)) as site:
        where = other.url.replace("127.0.0.1", "localhost") if elsewhere else site.url
        site.emulated.store = where if elsewhere else ""
        failure = refused(site.program())
        assert failure.status == Exit.UNREACHABLE
        assert f"the store {where.removeprefix('http://')} refuses the link of {site.url} with 403" in str(failure)
        assert "6 attempts in a row" in str(failure)
    other.close()


def test_a_server_that_counts_requests_is_given_more_than_its_five_minutes(tmp_path: Path) -> None:
    """Without Retry-After; of one that stays busy the run ends, and keeps what came."""
    with rig(tmp_path, HubFaults(path=LARGE, status=429, times=3)) as site:
        site.program().run()
        assert site.is_whole()
        assert site.clock.slept == [15, 30, 60]
    with rig(tmp_path / "ever", HubFaults(path=LARGE, status=429)) as site:
        failure = refused(site.program())
        assert (failure.status, sum(site.clock.slept) > 300) == (Exit.UNREACHABLE, True)
        assert "answers 429; 6 attempts in a row" in str(failure)


@pytest.mark.parametrize(("asks", "waits"), [("7", 7), ("90", 90), ("86400", 300), ("soon", 1)])
def test_a_server_sets_the_pause_within_a_bound(tmp_path: Path, asks: str, waits: int) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, status=503, retry_after=asks, times=1)) as site:
        site.program().run()
        assert site.is_whole()
        assert site.clock.slept == [waits]


def test_a_list_of_files_is_waited_for_within_the_same_bound(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LIST, status=429, retry_after="86400")) as site:
        failure = refused(site.program())
        assert failure.status == Exit.UNREACHABLE
        assert site.clock.slept == [300] * 5
        assert "gives no list of files" in str(failure)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (HubFaults(path=LIST, stall_at=10), "no byte for "),
        (HubFaults(path=LIST, reset_at=10), "the connection broke: "),
        (HubFaults(path=LIST, end_at=10), "the connection broke: "),
    ],
    ids=["stalls", "is reset", "ends early"],
)
def test_a_list_of_files_that_breaks_is_asked_for_again(tmp_path: Path, fault: HubFaults, says: str) -> None:
    with rig(tmp_path, dataclasses.replace(fault, times=1)) as site:
        site.program().run()
        assert site.is_whole()
        assert sum(says in line for line in site.lines) == 1, site.lines
    with rig(tmp_path / "for-ever", fault) as site:
        assert refused(site.program()).status == Exit.UNREACHABLE, "no fault of the volume's storage"


def test_a_missing_token_names_the_key_or_the_secret(tmp_path: Path) -> None:
    with rig(tmp_path, token="hf_secret") as site:
        assert "storage.weights.token_secret" in str(refused(site.program()))
        named = refused(site.program(site.order(token_from="inference-models/hub-token")))
        assert named.status == Exit.TOKEN
        assert "there is no token in inference-models/hub-token" in str(named)


def test_a_revision_that_is_not_there_is_no_traceback(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        failure = refused(site.program(site.order("0" * 40)))
        assert failure.status == Exit.NOT_FOUND
        assert "has no such revision" in str(failure)
        assert "models.NAME.server.revision" in str(failure)


def test_the_token_goes_to_the_hub_alone_and_not_to_the_store_that_it_redirects_to(tmp_path: Path) -> None:
    store = EmulatedHub()
    other = EmulatedHubServer(store)
    with rig(tmp_path, token="hf_secret") as site:
        site.emulated.store = other.url.replace("127.0.0.1", "localhost")
        site.program(token="hf_secret").run()
        other.close()
        assert site.is_whole()
        assert store.seen_by_store == [""] * 4


def test_a_busy_server_sets_the_pause(tmp_path: Path) -> None:
    with rig(tmp_path, HubFaults(path=LARGE, status=503, times=2)) as site:
        site.program().run()
        assert site.is_whole()
        assert site.clock.slept == [1, 2]


def test_no_more_bytes_pass_in_a_second_than_the_limit(tmp_path: Path) -> None:
    """Within a twentieth, on a clock that the limit alone moves: what the preview predicts is what comes."""
    with rig(tmp_path) as site:
        count, limit = sum(map(len, FILES.values())), 50_000
        site.program(site.order(bytes_per_s=limit, parallel=4)).run()
        assert site.is_whole()
        assert site.clock.time == pytest.approx(count / limit, rel=0.05)


@pytest.mark.row("opening 10")
def test_a_download_takes_as_long_as_the_plan_predicts(tmp_path: Path) -> None:
    """A model that is as large as its catalogue entry, by the plan's limit, on a clock that this alone moves."""
    known = catalogue.load("bge-m3")
    two_layers = {
        field: {kind: layers.model_copy(update={"count": 2}) for kind, layers in getattr(known, field).items()}
        for field in ("mixers", "feed_forward")
    }
    model = known.model_copy(update={"hidden": 64, "vocabulary": 4096, **two_layers})
    asked = Order(name="m", model=model, gpu="h200-sxm", kv_dtype="bf16", download_bytes_per_s=50_000)
    size = round(asked.file_bytes)
    assert 1_000_000 < size < 10_000_000
    server = EmulatedHubServer(EmulatedHub(content=lambda *_: {"model.safetensors": bytes(size)}))
    try:
        site = Rig(tmp_path / "volume", EmulatedHub(), server.url)
        site.program(site.order(bytes_per_s=asked.download_bytes_per_s or 0, parallel=4)).run()
    finally:
        server.close()
    predicted = prove(asked).cold_start["download_weights"].value
    assert site.clock.time == pytest.approx(predicted, rel=0.05)


def test_progress_names_bytes_rate_and_time_left(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.program(site.order(bytes_per_s=5_000)).run()
        shown = [line for line in site.lines if "kB/s" in line]
        assert len(shown) >= 4
        assert "kB of 787 kB" in shown[0]
        assert re.search(r"\(\d+ %\), 5 kB/s, \d min \d+ s left", shown[0])
        assert shown[-1].startswith("787 kB of 787 kB (100 %)")


def test_a_killed_writer_is_followed_by_one_that_continues(tmp_path: Path) -> None:
    """The second is there while the first still holds the volume, and goes on where that one was killed."""
    faults = HubFaults(path=LARGE, end_at=HALF, times=1), HubFaults(path=LARGE, stall_at=0, times=1)
    with rig(tmp_path, *faults) as site:
        options = write_order(tmp_path / "order", site.order())
        first = subprocess.Popen(
            [sys.executable, "-m", "services.weights", "bring", "--volume", str(site.root), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        # It stalls for a minute: what came before is on the disk when it asks for the rest.
        assert site.emulated.wait_for_request(LARGE, f"bytes={HALF}-", 30)
        before = len(site.emulated.requests)

        def kill(_: float) -> None:
            os.kill(first.pid, signal.SIGKILL)
            first.wait()

        site.clock = VirtualClock(kill)
        site.program().run()
        assert first.stdout and first.stdout.close() is None
        assert site.is_whole()
        assert "another writer holds the volume" in site.lines[0]
        later = site.emulated.requests[before:]
        assert later[0] == (LARGE, f"bytes={HALF}-")
        assert "model-00001-of-00004.safetensors" not in [path for path, _ in later]


def test_a_stopped_writer_ends_in_order_and_keeps_what_came(tmp_path: Path) -> None:
    faults = HubFaults(path=LARGE, end_at=HALF, times=1), HubFaults(path=LARGE, status=503)
    with rig(tmp_path, *faults) as site:
        program = site.program()
        site.clock = VirtualClock(lambda _: program.stop.set())
        program = type(program)(program.order, program.volume, program.hub, site.lines.append, site.clock, program.stop)
        failure = refused(program)
        assert failure.status == Exit.STOPPED
        assert site.part.stat().st_size == HALF


def test_files_of_another_list_do_not_stay(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.folder.mkdir(parents=True)
        (site.folder / "old.safetensors").write_bytes(b"of another list")
        (site.folder / "deep" / "er").mkdir(parents=True)
        site.program().run()
        assert sorted(path.name for path in site.folder.iterdir()) == [".weights.json", *sorted(FILES)]


def test_two_repositories_of_one_model_are_brought_one_after_the_other(tmp_path: Path) -> None:
    with rig(tmp_path) as site:
        site.program(site.order(REVISION, OTHER)).run()
        assert site.is_whole()
        assert site.is_whole(OTHER)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
