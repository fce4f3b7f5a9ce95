"""Makes the virtual environment; run by the machine's own Python before anything is installed, so only with the stdlib.

Its syntax is that of Python 3.6: an old one must get as far as the sentence that names what is missing.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

OLDEST = (3, 11)
NEWER = ("python3.14", "python3.13", "python3.12", "python3.11")
CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
LOCK = CHECKOUT / "requirements.lock"
STAMP = "lock.sha256"


def stamp(lock: bytes, version: str) -> str:
    """What the environment is made of: the lock's content and the Python that runs it."""
    return hashlib.sha256(lock + version.encode()).hexdigest()


def is_current(version: str) -> bool:
    """Whether the environment is the one that the lock asks for; `version` as that Python prints sys.version."""
    path = VENV / STAMP
    return path.exists() and path.read_text() == stamp(LOCK.read_bytes(), version)


def chosen_python() -> str:
    """This Python, or a newer one on PATH when this one is too old; ends the program when there is none."""
    if sys.version_info >= OLDEST:
        return sys.executable
    for name in NEWER:
        program = shutil.which(name)
        # A version manager's shim is there for every version and may still run none.
        if program and subprocess.call([program, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return program
    have, want = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
    return fail(f"Python {have} is too old, {want} or later is needed", "install one; `make PYTHON=...` names it")


def make(python: str) -> None:
    """Create the environment again and install exactly what the lock names."""
    if subprocess.call([python, "-c", "import ensurepip"], stderr=subprocess.DEVNULL) != 0:
        # Debian ships venv and pip's wheel in a package of their own.
        apt = shutil.which("apt-get")
        if apt and os.geteuid() == 0:
            say("installing python3-venv")
            environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
            subprocess.call([apt, "update", "-q"], env=environment, stdout=subprocess.DEVNULL)
            subprocess.call([apt, "install", "-qy", "python3-venv"], env=environment, stdout=subprocess.DEVNULL)
        if subprocess.call([python, "-c", "import ensurepip"], stderr=subprocess.DEVNULL) != 0:
            fail(f"{python} cannot make virtual environments", "apt-get install python3-venv, or python3-full")
    if subprocess.call([python, "-m", "venv", "--clear", str(VENV)]) != 0:
        fail(f"no virtual environment in {VENV}", "see the lines above")
    say("installing the packages of requirements.lock")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call([*pip, "--require-hashes", "-r", str(LOCK)]) != 0:
        fail(f"the packages of {LOCK.name} cannot be installed", "see pip's lines above; is there a network?")


def main() -> None:
    """Make the environment unless it is already the one that the lock asks for."""
    python = chosen_python()
    version = subprocess.check_output([python, "-c", "import sys; print(sys.version)"]).decode()
    if is_current(version):
        if "--report" in sys.argv:
            say(f"{VENV} holds the packages of {LOCK.name}")
        return
    if VENV.is_symlink():
        # Clearing it would empty another checkout's.
        fail(f"{VENV} is a link to {os.path.realpath(VENV)}, which has the packages of another lock", "remove the link")
    say(f"making {VENV} with {python}: the packages of {LOCK.name}, a minute or two")
    make(python)
    (VENV / STAMP).write_text(stamp(LOCK.read_bytes(), version))
    say(f"{VENV} is ready")


def say(text: str) -> None:
    sys.stderr.write(f"[venv] {text}\n")


def fail(what: str, fix: str) -> NoReturn:
    sys.stderr.write(f"error: {what}\n  fix: {fix}\n")
    sys.exit(1)


if __name__ == "__main__":
    main()
