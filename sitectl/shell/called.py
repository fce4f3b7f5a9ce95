"""What the user typed for sitectl. Its syntax is that of Python 3.6, as that of the launcher, which asks it first."""

import os
import shlex
import shutil


def called_as(program):
    # type: (str) -> str
    """`program`: the path by which the system started it."""
    on_path = shutil.which("sitectl")
    if on_path and os.path.realpath(on_path) == os.path.realpath(program):
        return "sitectl"
    try:
        relative = os.path.relpath(program)
    except OSError:
        # The current folder was deleted.
        return shlex.quote(program)
    return shlex.quote(relative if len(relative) < len(program) else program)
