"""The program that asks Talos's own libraries, as tests run it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class Checker:
    """The program, and a folder for what it is asked about."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, timeout=60)

    def answers(self, command: str, *texts: str) -> list[Answer]:
        """What it says of each text, in order."""
        files = [self.file(f"{position:03}.yaml", text) for position, text in enumerate(texts)]
        done = self.run(command, *files)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(answers) == len(texts), done.stderr
        assert done.returncode == (0 if all(answer["ok"] for answer in answers) else 1)
        return answers

    def validate(self, *texts: str) -> list[Answer]:
        return self.answers("validate", *texts)


def filled(value: Any) -> Any:
    """Without what says nothing: empty lists and mappings, and empty texts."""
    if isinstance(value, dict):
        return {
            name: content
            for name, content_of_name in value.items()
            if (content := filled(content_of_name)) not in ({}, [], None, "")
        }
    return [filled(item) for item in value] if isinstance(value, list) else value
