import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import processes
from lab.plugins.command.process import CommandFailedError, Job, JobRunner, Redactor


def job(at: Path, command: str, **changes: Any) -> Job:
    given: dict[str, Any] = {"folder": at, "environment": dict(os.environ), "redact": Redactor(())}
    return Job(command=command, **{**given, **changes})


def ignore(line: str) -> None:
    """Shows nothing."""


def test_both_streams_are_captured_without_their_last_line_end(tmp_path: Path) -> None:
    result = JobRunner().run(job(tmp_path, "echo a; echo b; echo; echo c >&2"), ignore)
    assert (result.stdout, result.stderr) == ("a\nb\n", "c")


def test_lines_are_shown_masked_and_as_logging_says(tmp_path: Path) -> None:
    shown: list[str] = []
    words = job(
        tmp_path, "echo out hunter22; echo err >&2", logged=frozenset({"stdout"}), redact=Redactor(["hunter22", "r"])
    )
    assert JobRunner().run(words, shown.append).stdout == "out hunter22"
    assert shown == ["out [secret]"]


def test_stdin_of_any_size_reaches_the_command(tmp_path: Path) -> None:
    assert JobRunner().run(job(tmp_path, "wc -c", stdin="x" * 1_000_000), ignore).stdout.strip() == "1000000"
    assert JobRunner().run(job(tmp_path, "true", stdin="x" * 1_000_000), ignore).stdout == ""


def test_a_failure_ends_with_the_last_lines_of_stderr(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError) as failed:
        JobRunner().run(job(tmp_path, "seq 100 >&2; echo noise; exit 7"), ignore)
    lines = str(failed.value).splitlines()
    assert lines[0].startswith("exit status 7")
    assert lines[1:] == [str(number) for number in range(81, 101)]


def test_a_failure_holds_no_secret_not_even_a_line_of_one(tmp_path: Path) -> None:
    secret = "first-line\nsecond-line\n"
    failing = job(tmp_path, "echo second-line; cat >&2; exit 1", stdin=secret, redact=Redactor([secret]))
    with pytest.raises(CommandFailedError) as failed:
        JobRunner().run(failing, ignore)
    assert "-line" not in str(failed.value)
    assert "[secret]" in str(failed.value)


def test_output_that_may_not_be_logged_is_not_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError) as failed:
        JobRunner().run(job(tmp_path, 'printf "%s-made" fresh >&2; exit 1', logged=frozenset()), ignore)
    assert "fresh-made" not in str(failed.value)
    assert "withheld" in str(failed.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"folder": Path("/no/such")}, "/no/such"), ({"interpreter": ["/no/such/sh", "-c"]}, "/no/such/sh")],
)
def test_what_cannot_start_is_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(CommandFailedError, match=says):
        JobRunner().run(job(tmp_path, "true", **changes), ignore)


def test_a_time_limit_ends_the_command_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError, match=r"time limit of 2 s"):
        JobRunner().run(job(tmp_path, "sleep 3600 & echo $! > child; wait", timeout_s=2), ignore)
    # A process closes its output, with which the command ends, before the kernel counts it as ended.
    assert not processes.wait_gone([int((tmp_path / "child").read_text())], 60)


def test_cancel_ends_what_runs_and_refuses_the_rest(tmp_path: Path) -> None:
    runner = JobRunner()
    errors: list[str] = []

    def work() -> None:
        try:
            runner.run(job(tmp_path, "echo $$ > pid; sleep 60; true"), ignore)
        except CommandFailedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        time.sleep(0.01)
    runner.cancel()
    thread.join(10)
    assert errors
    assert "cancelled" in errors[0]
    with pytest.raises(CommandFailedError, match="cancelled"):
        runner.run(job(tmp_path, "true"), ignore)
