"""The job without credentials: are the sites valid, do they keep the rules, what do they declare differently.

Runs the code of the change itself, also of a fork's, so nothing that is worth stealing may be near it.
`python -m ci.offline --base REV --out DIR`
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr
from pathlib import Path

import click

from floor import command_line
from sitectl.output.code_scanning import workflow_commands
from sitectl.output.markdown import fenced
from sitectl.shell.cli import main as sitectl
from sitectl.shell.errors import Exit

# GitHub takes 1 MiB of summary a step.
_MOST_SUMMARY = 900_000
_SCANNED = ("validate", "rules")
_FOLDER = click.Path(path_type=Path)


@click.command(cls=command_line.Command, help=__doc__)
@click.option("--base", metavar="REV", help="what the change is compared with")
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="folder for the job's artifact")
@click.option("--project", type=_FOLDER, default=Path.cwd, metavar="DIR", help="the checkout")
@click.pass_obj
def command(environment: Mapping[str, str], *, base: str | None, out: Path, project: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    compared = out / "diff.md"
    checks = {
        "validate": ["validate"],
        "rules": ["rules"],
        "render": ["render", "--out", str(out / "rendered")],
    }
    if base:
        checks["diff"] = ["diff", "--markdown", str(compared), "--", base]
    worst = Exit.OK
    summary: list[str] = []
    for name, words in checks.items():
        status, output = _run([words[0], "--quiet", "--project", str(project), *words[1:]])
        worst = max(worst, Exit(status))
        (out / f"{name}.txt").write_text(output)
        if name in _SCANNED:
            _scan(name, words, project, out, on_github=environment.get("GITHUB_ACTIONS") == "true")
        print(f"== {name}: {'passed' if status == Exit.OK else 'FAILED'}\n{output}", flush=True)
        if name == "diff" and compared.exists():
            summary.append(compared.read_text())
        else:
            summary += [f"## {name}: {'passed' if status == Exit.OK else 'failed'}", "", *fenced(output), ""]
    text = "\n".join(summary)
    (out / "summary.md").write_text(text)
    if step := environment.get("GITHUB_STEP_SUMMARY"):
        Path(step).write_text(text[:_MOST_SUMMARY])
    return int(worst)


def main(argv: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Run every check, also after one has failed; the worst status of them."""
    return command_line.run(command, argv, name="python -m ci.offline", obj=environment)


def _scan(name: str, words: list[str], project: Path, folder: Path, *, on_github: bool) -> None:
    """The same findings as SARIF in the artifact, and on GitHub at the lines of the change."""
    out = io.StringIO()
    with redirect_stderr(io.StringIO()):
        sitectl([words[0], "--quiet", "--project", str(project), "--format", "sarif", *words[1:]], out=out)
    # Nothing from a command that could not check; its text already gave the reason.
    if sarif := out.getvalue():
        (folder / f"{name}.sarif").write_text(sarif)
        if on_github:
            print(workflow_commands(json.loads(sarif)), flush=True)


def _run(words: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stderr(err):
        status = sitectl(words, out=out)
    return status, out.getvalue() + err.getvalue()


if __name__ == "__main__":
    sys.exit(main())
