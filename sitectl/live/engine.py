"""Asks the Pulumi engine for a preview as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sitectl.change import saved_previews
from sitectl.shell import home, programs
from sitectl.shell.errors import SitectlError


def preview(project: Path, stack: str, *, refresh: bool = False, config_file: Path | None = None) -> dict[str, Any]:
    """`pulumi preview --json` of a stack, also when it failed half-way. Raises SitectlError when it prints nothing."""
    command = ["pulumi", "preview", "--json", "--non-interactive", "--stack", stack]
    command += ["--refresh"] if refresh else []
    command += ["--config-file", str(config_file)] if config_file else []
    done = programs.run(
        command,
        cwd=project,
        fix="https://www.pulumi.com/docs/install/"
        + (', or in the lab: eval "$(.venv/bin/python -m lab env)"' if home.is_checkout() else ""),
    )
    try:
        answer = json.loads(done.stdout)
    except (ValueError, RecursionError):
        words = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")
        last = "\n  ".join(words.splitlines()[-12:])
        login = f"pulumi login, pulumi stack select {stack}, and a passphrase or key for its secrets"
        init = f"pulumi stack init {stack}, with a backend and a secrets provider: python -m sitectl docs add-a-site"
        raise SitectlError(
            f"`{' '.join(command)}` ended with {done.returncode} and no preview:\n  {last}",
            fix=init if f"no stack named '{stack}' found" in words else login,
        ) from None
    if not isinstance(answer, dict) or ("steps" not in answer and "diagnostics" not in answer):
        raise SitectlError("the engine's answer is no preview", fix="use the pulumi version of requirements.lock")
    answer["steps"] = answer.get("steps") or []
    return saved_previews.in_form(answer, "the engine's answer")
