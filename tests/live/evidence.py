"""What the checks found, as a file for programs and as a page for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from floor.secret_texts import without_secrets

OUTCOMES = ("passed", "failed", "skipped")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check of a site."""

    check: str
    """Its name in words; with its parameter, if it has one, in brackets."""
    rows: tuple[str, ...]
    """Rows of docs/requirements.md that it looks at."""
    outcome: str
    """passed, failed or skipped."""
    seen: tuple[str, ...]
    """What was there."""
    reason: str = ""
    """Why it failed or was skipped."""

    @property
    def name(self) -> str:
        """The check with its rows."""
        return f"{self.check} [{', '.join(self.rows)}]" if self.rows else self.check


def in_brackets(rows: Sequence[str]) -> str:
    """Rows at the end of a test's name, where pytest's `-k` finds them: it takes no word with a space."""
    return ",".join(row.replace(" ", "-") for row in rows)


def check_of(test: str, rows: Sequence[str]) -> str:
    """The check that a test is, in words: with the test's own parameter and without the rows of its name."""
    own = test.removesuffix(f"[{in_brackets(rows)}]")
    if own.endswith(f"-{in_brackets(rows)}]"):
        own = own.removesuffix(f"-{in_brackets(rows)}]") + "]"
    return own.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All checks of one run."""

    site: str
    at: str
    """UTC, ISO 8601."""
    commit: str
    """Of the platform's checkout, with `-dirty` where files are changed."""
    findings: tuple[Finding, ...]

    def count(self, outcome: str) -> int:
        return sum(finding.outcome == outcome for finding in self.findings)


def write(folder: Path, evidence: Evidence, secrets: Sequence[str]) -> list[Path]:
    """evidence.json and evidence.md in the folder, for its owner alone; no text of `secrets` is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = asdict(evidence) | {"findings": [{"name": finding.name, **asdict(finding)} for finding in evidence.findings]}
    contents = {"evidence.json": json.dumps(data, indent=2) + "\n", "evidence.md": _page(evidence)}
    files = []
    for name, content in contents.items():
        file = folder / name
        file.touch(mode=0o600)
        file.write_text(_safe(content, secrets), encoding="utf-8")
        files.append(file)
    return files


def _safe(text: str, secrets: Sequence[str]) -> str:
    for secret in filter(None, secrets):
        text = text.replace(secret, "[secret]")
    return without_secrets(text)


def _page(evidence: Evidence) -> str:
    counts = ", ".join(f"{evidence.count(outcome)} {outcome}" for outcome in OUTCOMES)
    lines = [
        f"# Checks of {evidence.site}",
        "",
        f"{evidence.at}, platform {evidence.commit}: {counts}.",
        "",
        "| check | outcome | seen, or why not |",
        "|---|---|---|",
    ]
    for finding in sorted(evidence.findings, key=lambda finding: (finding.outcome != "failed", finding.check)):
        text = finding.reason or "; ".join(finding.seen)
        cells = (finding.name, finding.outcome, " ".join(text.split()).replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
