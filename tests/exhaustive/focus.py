"""FOCUS's own validator, in an environment that has it: https://pypi.org/project/focus-validator/

It needs Python 3.12 and 650 MB, so `make venv` does not bring it. Its environment is made once, in the lab's cache, and
again when what is named here changes. What cannot be run is an error: nothing here is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.bootstrap import stamp
from lab.paths import Lab

VALIDATOR = "focus-validator==2.2.1"
# Later ones need a NumPy that the validator does not take.
PACKAGES = (VALIDATOR, "pyarrow~=21.0")
VERSION = "1.2"
"""Of FOCUS, whose rules come with the package: nothing is fetched while it runs."""
CRITERIA = (
    "ACCOUNT_NAMING_SUPPORTED",
    "PUBLIC_PRICE_LIST_SUPPORTED",
    "SUB_ACCOUNT_SUPPORTED",
    "UNIT_PRICING_SUPPORTED",
    "USAGE_MEASUREMENT_SUPPORTED",
)
"""What a bill of the ledger has; rules of other criteria are not about it."""
_TAKEN = ((3, 12), (3, 13))
"""Versions of Python."""
_STAMP = "made-of.sha256"
_RULE = re.compile(r"^\S+ ([A-Za-z]+-[A-Z]-\d{3}-[A-Z]): (PASS|FAIL|SKIPPED)\b(?:.*?reason=([^,)]*))?", re.MULTILINE)


class NotRunError(Exception):
    """The validator cannot be run; states why and the fix."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the validator states of a file."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: Mapping[str, str]
    """Rule -> why it was not looked at."""


def validated(file: Path, folder: Path) -> Outcome:
    """Of a CSV. folder: an empty one, in which the validator runs and logs. Raises NotRunError."""
    python = environment(Lab.from_environment().cache / VALIDATOR.replace("==", "-"))
    (packages,) = python.parents[1].glob("lib/python3*/site-packages")
    # It looks for its own currencies from where it runs.
    (folder / "focus_validator").symlink_to(packages / "focus_validator")
    words = [
        str(python.parent / "focus-validator"),
        "--data-file",
        str(file),
        "--validate-version",
        VERSION,
        "--block-download",
    ]
    words += ["--focus-dataset", "CostAndUsage", "--applicability-criteria", ",".join(CRITERIA)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    rules = _RULE.findall(done.stdout)
    if not rules:
        raise NotRunError(f"the validator states nothing: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return Outcome(
        passed=frozenset(rule for rule, what, _ in rules if what == "PASS"),
        failed=frozenset(rule for rule, what, _ in rules if what == "FAIL"),
        skipped={rule: why for rule, what, why in rules if what == "SKIPPED"},
    )


def environment(folder: Path) -> Path:
    """The Python of an environment with the validator; made unless it is there. Raises NotRunError."""
    python, made_of = folder / "bin" / "python", stamp(" ".join(PACKAGES).encode(), VERSION)
    if (folder / _STAMP).exists() and (folder / _STAMP).read_text() == made_of:
        return python
    try:
        subprocess.run([_interpreter(), "-m", "venv", "--clear", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        fix = f"let pip reach a package registry that has {VALIDATOR}"
        raise NotRunError(f"no environment for FOCUS's validator: {error}; fix: {fix}") from None
    (folder / _STAMP).write_text(made_of)
    return python


def _interpreter() -> str:
    """One that the validator takes: on PATH, or one of pyenv's."""
    own = [sys.executable] if sys.version_info[:2] in _TAKEN else []
    named = [f"python{major}.{minor}" for major, minor in _TAKEN]
    on_path = [there for name in named if (there := shutil.which(name))]
    of_pyenv = [str(there) for name in named for there in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for python in (*own, *on_path, *of_pyenv):
        # pyenv has a name on PATH for versions that are not in use, which fails.
        if not subprocess.call([python, "-c", ""], stderr=subprocess.DEVNULL):
            return python
    raise NotRunError(f"no Python that FOCUS's validator takes; fix: have one of {', '.join(named)} on PATH")
