"""The directory when its database goes away, comes back as it was before, or is written to by many at once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.directory.audit import Head, chained
from tests import documented
from tests.unit.services import directory_rig, postgres_rig
from tests.unit.services.directory_rig import READER, Directory, chain, created
from tests.unit.services.postgres_rig import Server

pytestmark = pytest.mark.processes


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path) as running:
        yield running


class Replica:
    """A reader, as each gateway has one: what it knows of the keys, by their digests."""

    def __init__(self) -> None:
        self.cursor = ""
        self.keys: dict[str, tuple[Any, ...]] = {}

    def poll(self, client: httpx.Client, wait: int = 0) -> bool:
        """Whether anything changed."""
        answer = self.ask(client, wait)
        assert answer.status_code == 200, answer.text
        return self.take(answer)

    def ask(self, client: httpx.Client, wait: int = 0) -> httpx.Response:
        """For what it does not know."""
        return client.get("/v1/changes", params={"after": self.cursor, "wait": wait})

    def take(self, answer: httpx.Response) -> bool:
        """Whether anything changed."""
        answered = answer.json()
        if answered["full"]:
            self.keys = {}
        self.keys |= {key["id"]: (key["digest"], key["expires"], key["revoked"]) for key in answered["keys"]}
        self.cursor = answered["cursor"]
        return bool(answered["full"] or answered["keys"])

    @property
    def working(self) -> dict[str, tuple[Any, ...]]:
        now = time.time()
        return {name: key for name, key in self.keys.items() if not key[2] and (key[1] is None or key[1] > now)}


def at_once(directory: Directory) -> Replica:
    replica = Replica()
    with directory.client(READER) as client:
        replica.poll(client)
    return replica


@pytest.mark.exhaustive
def test_no_reader_misses_a_change_of_writers_at_two_processes(both: tuple[Server, Directory]) -> None:
    """Readers that follow from any moment know what one knows that asks at the end, whatever commits in between."""
    server, first = both
    second = Directory(first.folder)
    second.start()
    try:
        second.wait_ready()
        ended = threading.Event()
        directories = (first, second)

        def write(seed: int) -> None:
            choose = random.Random(seed)  # noqa: S311 - a repeatable choice
            own: list[str] = []
            with directories[seed % 2].client() as client:
                for _ in range(40):
                    act = choose.choice(("create", "create", "rotate", "revoke")) if own else "create"
                    if act == "create":
                        own.append(created(client, name=f"n{seed}")["id"])
                    elif act == "rotate":
                        answer = client.post(f"/v1/keys/{own.pop()}/rotate", json={"overlap_s": 3600})
                        own.append(answer.json()["id"])
                    else:
                        assert client.delete(f"/v1/keys/{own.pop(0)}").status_code == 200

        def follow(seed: int) -> Replica:
            replica, choose = Replica(), random.Random(seed)  # noqa: S311 - a repeatable choice
            with first.client(READER) as near, second.client(READER) as far:
                while not ended.is_set() or replica.poll(near):
                    # The same cursor is good at every process.
                    replica.poll(choose.choice((near, far)), wait=choose.choice((0, 1)))
            return replica

        with ThreadPoolExecutor(12) as pool:
            readers = [pool.submit(follow, seed) for seed in range(4)]
            writers = [pool.submit(write, seed) for seed in range(8)]
            for writer in writers:
                writer.result()
            ended.set()
            replicas = [reader.result() for reader in readers]
        expected = at_once(second).keys
        assert len(expected) > 100
        for replica in replicas:
            assert replica.working == expected
    finally:
        second.end(signal.SIGKILL)
    rows = int(server.sql("SELECT count(*) FROM keys").stdout)
    assert rows == int(server.sql("SELECT count(*) FROM audit WHERE action = 'create'").stdout)
    # Both processes have written one chain.
    with first.client() as client:
        acts = chain(client)
    assert len(acts) > rows
    assert chained(acts) == (Head(len(acts), acts[-1]["hash"]), "")


def test_a_database_that_is_killed_ends_waits_and_is_found_again(both: tuple[Server, Directory]) -> None:
    server, directory = both
    with directory.client() as client, ThreadPoolExecutor(1) as pool:
        made = created(client)
        replica = at_once(directory)
        cursor = replica.cursor
        waiting = pool.submit(client.get, "/v1/changes", params={"after": cursor, "wait": 30})
        directory.wait_for_a_reader()
        server.kill()
        answers = [
            waiting.result(),
            client.get("/v1/changes"),
            client.get("/v1/keys"),
            client.post("/v1/keys", json={"tenant": "search", "name": "lost"}),
            client.delete(f"/v1/keys/{made['id']}"),
        ]
        for answer in answers:
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_unavailable")
            assert int(answer.headers["Retry-After"]) > 0
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200
        server.start()
        directory.wait_ready()
        (key,) = client.get("/v1/keys").json()["keys"]
        assert (key["id"], key["state"]) == (made["id"], "works")
        replica.poll(client)
        polled = pool.submit(replica.poll, client, 30)
        directory.wait_for_a_reader()
        second = created(client)
        assert polled.result()
        assert set(replica.working) == {made["id"], second["id"]}


@pytest.mark.exhaustive
def test_a_probe_reads_no_table(both: tuple[Server, Directory]) -> None:
    """With many keys and a probe every five seconds at each pod, it would be the most that the database does."""
    server, directory = both
    locked = subprocess.Popen(
        [str(postgres_rig.program("psql")), "--quiet", server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert locked.stdin
    assert locked.stdout
    try:
        locked.stdin.write("BEGIN; LOCK TABLE keys, last_change;\n\\echo locked\n")
        locked.stdin.flush()
        assert locked.stdout.readline() == "locked\n"
        with directory.client() as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/v1/keys").status_code == 503, "it is not locked"
    finally:
        locked.kill()
        locked.communicate()


def test_a_write_that_the_database_dies_in_is_done_or_not_done(both: tuple[Server, Directory]) -> None:
    server, directory = both
    done = threading.Semaphore(0)

    def write(name: str) -> list[str]:
        """Until the first that fails."""
        made: list[str] = []
        with directory.client() as client:
            while (answer := client.post("/v1/keys", json={"tenant": "search", "name": name})).status_code == 201:
                made.append(answer.json()["id"])
                done.release()
        assert answer.status_code == 503
        return made

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, f"w{number}") for number in range(4)]
        for _ in range(40):
            done.acquire()
        server.kill()
        answered = {key for writer in writers for key in writer.result()}
    server.start()
    directory.wait_ready()
    there = set(at_once(directory).keys)
    assert answered <= there
    # At most the one write of each that was under way has no answer.
    assert len(there - answered) <= len(writers)
    audited = server.sql("SELECT subject FROM audit WHERE action = 'create'").stdout.split()
    assert sorted(audited) == sorted(there)
    assert int(server.sql("SELECT version FROM last_change").stdout) == len(there)


@pytest.mark.parametrize(
    "address", ["", "postgresql://", "postgresql://u:canary@127.0.0.1:1/db", "canary", "http://canary"]
)
def test_a_directory_that_starts_without_its_database_waits_for_it(tmp_path: Path, address: str) -> None:
    """Also with an address that is none: the right one is taken from the file without a restart."""
    server, directory = Server.made(tmp_path / "data"), Directory(tmp_path)
    directory_rig.write_settings(tmp_path, address or server.url)
    try:
        directory.start()
        directory.wait_ready(503)
        server.start()
        directory_rig.write_settings(tmp_path, server.url)
        directory.wait_ready()
        assert "canary" not in directory.log.read_text()
    finally:
        directory.end(signal.SIGKILL)
        server.kill()


@pytest.mark.exhaustive
def test_another_address_is_followed_without_a_start(both: tuple[Server, Directory], tmp_path: Path) -> None:
    """Nothing is written to the earlier database from then on, and readers get what the other one has."""
    server, directory = both
    other = Server.made(tmp_path / "other")
    try:
        other.start()
        with directory.client() as client:
            earlier = created(client)
            replica = at_once(directory)
            directory_rig.write_settings(directory.folder, other.url)
            # A reader asks until it is at the other one, which has no key.
            deadline = time.monotonic() + 30
            with directory.client(READER) as reader:
                while replica.working:
                    assert time.monotonic() < deadline, "it is still at the earlier one"
                    # Between the two databases it has none.
                    if (answer := replica.ask(reader)).status_code != 503:
                        replica.take(answer)
            later = created(client)
            replica.poll(client)
            assert set(replica.working) == {later["id"]}
        ids = [database.sql("SELECT id FROM keys").stdout.split() for database in (server, other)]
        assert ids == [[earlier["id"]], [later["id"]]]
    finally:
        other.kill()


def test_a_dropped_database_is_restored_by_the_pages_commands(both: tuple[Server, Directory], tmp_path: Path) -> None:
    """Keys of the backup work, with their history; those that were made since do not."""
    server, directory = both

    def done(command: str) -> None:
        path = f"{postgres_rig.program('psql').parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "DATABASE_URL": server.url}
        subprocess.run(["sh", "-ec", command], cwd=tmp_path, env=environment, check=True)

    with directory.client() as client:
        kept, revoked = created(client), created(client)
        client.delete(f"/v1/keys/{revoked['id']}")
        done(documented.shell('(umask 077; pg_dump --clean --if-exists --no-owner --file keys.sql "$DATABASE_URL")'))
        lost = created(client)
        replica = at_once(directory)
        assert set(replica.working) == {kept["id"], lost["id"]}
        client.delete(f"/v1/keys/{kept['id']}")
        directory.end()
        server.sql("DROP OWNED BY CURRENT_USER CASCADE; CREATE SCHEMA IF NOT EXISTS public")
        done(documented.shell('psql --single-transaction --set ON_ERROR_STOP=1 --file keys.sql "$DATABASE_URL"'))
        directory.start()
        directory.wait_ready()
        replica.poll(client)
        assert set(replica.working) == {kept["id"]}
        states = {key["id"]: key["state"] for key in client.get("/v1/keys").json()["keys"]}
        assert states == {kept["id"]: "works", revoked["id"]: "revoked"}
    audited = server.sql("SELECT action, subject FROM audit ORDER BY number").stdout.split()
    assert audited == [f"create|{kept['id']}", f"create|{revoked['id']}", f"revoke|{revoked['id']}"]
    assert server.sql("DELETE FROM audit", check=False).returncode != 0


@pytest.mark.exhaustive
def test_a_restored_database_is_another_one(both: tuple[Server, Directory]) -> None:
    """A backup's versions are given out again, to other keys: a reader must not take them for those that it has."""
    server, directory = both
    backup = server.postgres.data.with_name("backup")
    with directory.client() as client:
        kept = created(client)
        server.kill()
        shutil.copytree(server.postgres.data, backup)
        server.start()
        directory.wait_ready()
        lost = [created(client)["id"] for _ in range(3)]
        replica = at_once(directory)
        assert set(replica.working) == {kept["id"], *lost}
        server.kill()
        shutil.rmtree(server.postgres.data)
        backup.rename(server.postgres.data)
        server.start()
        directory.wait_ready()
        later = [created(client)["id"] for _ in range(5)]
        replica.poll(client)
        assert set(replica.working) == {kept["id"], *later}


@pytest.mark.exhaustive
def test_tables_that_a_dump_brings_back_are_others(both: tuple[Server, Directory]) -> None:
    server, directory = both
    with directory.client() as client:
        created(client)
        dump = server.postgres.data.with_name("dump.sql")
        dump.write_text(server.dump())
        lost = created(client)
        replica = at_once(directory)
        server.sql("DROP OWNED BY CURRENT_USER CASCADE; CREATE SCHEMA IF NOT EXISTS public")
        assert client.get("/v1/changes").status_code == 503
        server.run_file(dump)
        later = created(client)
        replica.poll(client)
        assert lost["id"] not in replica.working
        assert later["id"] in replica.working


def test_the_end_of_a_process_ends_its_waits_without_an_error(both: tuple[Server, Directory]) -> None:
    _, directory = both
    with directory.client(READER) as client, ThreadPoolExecutor(1) as pool:
        cursor = at_once(directory).cursor
        waiting = pool.submit(client.get, "/v1/changes", params={"after": cursor, "wait": 30})
        directory.wait_for_a_reader()
        assert directory.end() == -signal.SIGTERM
        answer = waiting.result().json()
        assert (answer["cursor"], answer["full"], answer["keys"]) == (cursor, False, [])
