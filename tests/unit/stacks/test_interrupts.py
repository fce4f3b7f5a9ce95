"""The program's end by the engine: a failed `up` shows the failure, not where the program happened to be."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from lab.paths import CHECKOUT

# The program itself, except its first step, which never ends here.
PROGRAM = textwrap.dedent(
    """
    import runpy, time
    from stacks.program import engine_config

    def declare(name):
        print("declaring", flush=True)
        time.sleep(600)

    engine_config.plan_stack = declare
    runpy.run_path("__main__.py", run_name="__main__")
    """
)


@pytest.mark.processes
def test_interrupted_program_says_nothing() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "declaring\n"
    program.send_signal(signal.SIGINT)
    printed, complained = program.communicate(timeout=60)
    assert (printed, complained, program.returncode) == ("", "", -signal.SIGINT)
