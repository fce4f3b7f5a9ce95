"""`python -m tests.exhaustive.second_source`: the comparisons with AIConfigurator, in an environment that has it.

The package is 850 MB with its data, so `make venv` does not bring it. Its environment is made once, in the lab's cache,
and again when requirements.lock or Python changes. What cannot be run is an error: nothing here is skipped.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from lab.bootstrap import LOCK, stamp
from lab.paths import CHECKOUT, Lab
from stacks.proof.second_source import SERIES

PACKAGE = f"aiconfigurator~={SERIES}.0"
MARKER = "second_source"
_STAMP = "made-of.sha256"


def main() -> int:
    """Exit status of pytest, or 1 when the environment cannot be made."""
    folder = Lab.from_environment().cache / f"aiconfigurator-{SERIES}"
    try:
        python = environment(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"\nNOT RUN: the comparisons with AIConfigurator ({error})", file=sys.stderr)
        print(f"  fix: let pip reach a package registry that has {PACKAGE}, then `make test-all`", file=sys.stderr)
        return 1
    return subprocess.call([python, "-m", "pytest", "-q", "-m", MARKER, "tests/unit"], cwd=CHECKOUT)


def environment(folder: Path) -> Path:
    """The Python of an environment with the project's packages and AIConfigurator; made unless it is there."""
    python, made_of = folder / "bin" / "python", stamp(LOCK.read_bytes() + PACKAGE.encode(), sys.version)
    if (folder / _STAMP).exists() and (folder / _STAMP).read_text() == made_of:
        return python
    print(f"making {folder} with {PACKAGE}: 850 MB, once", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(LOCK)], check=True)
    subprocess.run([*pip, PACKAGE], check=True)
    (folder / _STAMP).write_text(made_of)
    return python


if __name__ == "__main__":
    sys.exit(main())
