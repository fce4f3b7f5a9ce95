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
    rows: tuple[str, ...]
    """Rows of docs/requirements.md that it looks at."""
    outcome: str
    """passed, failed or skipped."""
    seen: tuple[str, ...]
    """What was there."""
    reason: str = ""
    """Why it failed or was skipped."""


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
    contents = {"evidence.json": json.dumps(asdict(evidence), indent=2) + "\n", "evidence.md": _page(evidence)}
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
        "| check | rows | outcome | seen, or why not |",
        "|---|---|---|---|",
    ]
    for finding in sorted(evidence.findings, key=lambda finding: (finding.outcome != "failed", finding.check)):
        text = finding.reason or "; ".join(finding.seen)
        cells = (finding.check, ", ".join(finding.rows), finding.outcome, " ".join(text.split()).replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
