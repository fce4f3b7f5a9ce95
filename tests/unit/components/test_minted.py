"""A random value is made once; after a loss of the state it comes from the recovered file, or from nowhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from components.minted import mint

CLIENT = "search.prod"


def ran(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)


def recovered(folder: Path, rotation: int = 1) -> str:
    file = folder / "a file.json"
    file.write_text(json.dumps({CLIENT: {"value": "sk-kept", "rotation": rotation}}))
    return str(file)


def test_a_new_value_is_another_one_each_time() -> None:
    made = {ran(mint(CLIENT, prefix="sk-")).stdout for _ in range(2)}
    assert len(made) == 2
    assert all(key.startswith("sk-") and len(key) == 46 for key in made)


def test_a_recovered_value_is_taken(tmp_path: Path) -> None:
    assert ran(mint(CLIENT, prefix="sk-", recovered=recovered(tmp_path))).stdout == "sk-kept"


def test_a_rotation_since_then_makes_a_new_value(tmp_path: Path) -> None:
    """The file stays named in the site: the next rotation still replaces the key."""
    made = ran(mint(CLIENT, prefix="sk-", rotation=2, recovered=recovered(tmp_path))).stdout
    assert made.startswith("sk-")
    assert made != "sk-kept"


def test_a_client_that_the_file_lacks_gets_a_new_value(tmp_path: Path) -> None:
    assert len(ran(mint("search.new", prefix="sk-", recovered=recovered(tmp_path))).stdout) == 46


def test_a_file_that_is_gone_makes_no_new_value(tmp_path: Path) -> None:
    done = ran(mint(CLIENT, recovered=str(tmp_path / "gone.json")))
    assert done.returncode != 0
    assert done.stdout == ""
    assert "gone.json" in done.stderr
