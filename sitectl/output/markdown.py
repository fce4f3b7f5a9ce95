"""Reports as Markdown that is safe to post on a forge, whatever the names and values in a site are.

Names, images and messages come from a pull request. Nothing of them may become a link, a mention, a reference, HTML, a
quick action of GitLab or the end of a fence; and one comment has a largest size.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from floor.secret_texts import HIDDEN, looks_secret, without_secrets
from sitectl.change.machine_changes import MachineChange, names
from sitectl.change.report import SiteReport, folded
from sitectl.change.verdicts.model import Severity, Verdict
from sitectl.output.words import TITLES, cold_start, figures, foreign, signed, signed_gpus, targets, tightest

MARK = "<!-- inference-platform: plan of all sites -->"
# GitHub takes 65,536 characters; GitLab takes more.
MOST_CHARACTERS = 60_000
FENCE = "~~~~~~~~"
_MOST_IN_A_CELL = 600
_MOST_ROWS = 60
_MOST_ERROR = 4_000
# Breaks what a forge would turn into a link or mention, and shows as nothing.
_GAP = "\u200b"
_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()<>#+!|~$^=-])")


def document(reports: Sequence[SiteReport], *, rest: str = "") -> str:
    """One comment for all sites. `rest`: where a reader finds what does not fit, such as a job's artifact."""
    return cut(uncut(reports), rest)


def uncut(reports: Sequence[SiteReport]) -> str:
    """The same however long it is."""
    ordered = sorted(reports, key=_urgency)
    head = [MARK, "## What this changes", "", *_summary(ordered), ""]
    return "\n".join([*head, *(line for report in ordered if not report.empty for line in details(report))])


def cut(text: str, rest: str = "") -> str:
    """At most MOST_CHARACTERS, ended at a line and outside of every fence and fold."""
    if len(text) <= MOST_CHARACTERS:
        return text.rstrip("\n") + "\n"
    where = f" The whole of it: {sentence(rest)}." if rest else ""
    kept: list[str] = []
    size = MOST_CHARACTERS - 500
    for line in text.splitlines():
        size -= len(line) + 1
        if size < 0:
            break
        kept.append(line)
    if sum(line == FENCE for line in kept) % 2:
        kept.append(FENCE)
    folds = sum(line.startswith("<details>") for line in kept) - sum(line == "</details>" for line in kept)
    kept += ["", *["</details>"] * folds, "", f"**Cut here: a comment holds no more.**{where}"]
    return "\n".join(kept) + "\n"


def sentence(text: str) -> str:
    """Free text on one line that renders as just these characters."""
    plain = _clean(text, _MOST_IN_A_CELL).replace("&", "&amp;")
    escaped = _PUNCTUATION.sub(r"\\\1", plain).replace("\\<", "&lt;").replace("\\>", "&gt;")
    escaped = escaped.replace("@", f"@{_GAP}").replace("\\#", f"\\#{_GAP}").replace("://", f":{_GAP}//")
    escaped = re.sub(r"(?i)\bwww\.", f"www{_GAP}.", escaped)
    return (
        f"{_GAP}{escaped}"
        if escaped.startswith(("/", ":", "1", "2", "3", "4", "5", "6", "7", "8", "9", "0"))
        else escaped
    )


def name(text: str) -> str:
    """A name as code: no Markdown, mention or reference works inside."""
    plain = _clean(text, _MOST_IN_A_CELL).replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else "-"


def fenced(text: str) -> list[str]:
    """Lines of a message between fences that nothing in it can close."""
    shown = [
        _clean(line, 1000, spaces=True).replace("~~~", f"~{_GAP}~{_GAP}~")
        for line in without_secrets(text).splitlines()
    ]
    lines, size = [], _MOST_ERROR
    for line in shown:
        size -= len(line) + 1
        if size < 0:
            lines.append("[cut]")
            break
        lines.append(line)
    return [FENCE, *lines, FENCE]


def _clean(text: str, most: int, *, spaces: bool = False) -> str:
    """Without control and direction characters, which make a text read as another one."""
    if looks_secret(text):
        return HIDDEN
    kept = "".join(
        " " if character in "\r\n\t" else character
        for character in text
        if character in "\r\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
    )
    joined = kept if spaces else " ".join(kept.split())
    return joined if len(joined) <= most else f"{joined[: most - 3]}..."


def _urgency(report: SiteReport) -> tuple[int, int, str]:
    worst = report.worst
    return (0 if report.errors else 1, len(Severity) if worst is None else int(worst), report.site)


def _summary(reports: Sequence[SiteReport]) -> list[str]:
    lines = [
        "| site | worst | GPUs | cost per month | SLO headroom, least | restarts | cold start | tenants touched |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        worst = (
            "**preview failed**" if report.errors else "no change" if report.worst is None else _severity(report.worst)
        )
        if report.is_blind:
            lines.append(f"| {name(report.site)} | {worst} | ? | ? | - | ? | ? | ? |")
            continue
        cost = "?" if report.cost_per_month is None else f"{signed(report.cost_per_month)} {sentence(report.currency)}"
        left = sentence(tightest(report.headroom)) if report.headroom else "-"
        cold = cold_start(report.expected_start_s, report.cold_start_s) or "none"
        tenants = ", ".join(name(tenant) for tenant in report.tenants[:10]) or "none"
        more = f" and {len(report.tenants) - 10} more" if len(report.tenants) > 10 else ""
        cells = (
            name(report.site),
            worst,
            signed_gpus(report.gpus),
            cost,
            left,
            str(report.restarts),
            cold,
            tenants + more,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def details(report: SiteReport) -> list[str]:
    """Everything of one site."""
    lines = [f"### {name(report.site)}", ""]
    for error in report.errors:
        lines += ["**The preview failed:**", "", *fenced(error), ""]
    if report.warnings:
        count = "1 warning" if len(report.warnings) == 1 else f"{len(report.warnings)} warnings"
        lines += [f"**{count}: the site is valid, and this is not wise.**", "", *fenced("\n".join(report.warnings)), ""]
    if report.foreign:
        lines += ["**Fields that another manager than the program has set, and how to take them back:**", ""]
        lines += [*fenced("\n".join(foreign(report.foreign))), ""]
    known = dict(figures(report))
    lines += [f"Resources: {known['resources']}.", ""]
    rows = folded(report.rows)
    loud = [row for row in rows if row.severity is not Severity.LIVE]
    quiet = [row for row in rows if row.severity is Severity.LIVE]
    if loud:
        lines += [*_rows(loud), ""]
    if quiet:
        lines += [
            f"<details><summary>{len(quiet)} without an interruption</summary>",
            "",
            *_rows(quiet),
            "",
            "</details>",
            "",
        ]
    if report.machines_unseen:
        lines += [f"**{sentence(report.machines_unseen)}**", ""]
    if report.machines:
        lines += ["**Keys and configs of machines that change, with every secret masked:**", ""]
        lines += [*_machine_rows(report.machines), ""]
    if report.headroom:
        lines += ["| target | estimated | left |", "|---|---|---|"]
        lines += [
            "| " + " | ".join(sentence(cell) for cell in row) + " |" for row in targets(report.headroom)[:_MOST_ROWS]
        ]
        lines.append("")
    for proof in report.proofs:
        lines += [*fenced(proof), ""]
    return lines


def _machine_rows(changes: Sequence[MachineChange]) -> list[str]:
    lines = ["| machines | key | before | after | what it does |", "|---|---|---|---|---|"]
    for change in changes[:_MOST_ROWS]:
        sides = ("-" if side is None else name(side) for side in (change.before, change.after))
        effect = f"{change.effect}: {change.why}" if change.effect else ""
        cells = (name(names(change.machines)), name(change.key), *sides, sentence(effect))
        lines.append("| " + " | ".join(cells) + " |")
    if len(changes) > _MOST_ROWS:
        lines.append(f"| | and {len(changes) - _MOST_ROWS} more | | | |")
    return lines


def _rows(rows: Sequence[Verdict]) -> list[str]:
    lines = ["| severity | resource | what | why | tenants |", "|---|---|---|---|---|"]
    for row in rows[:_MOST_ROWS]:
        tenants = ", ".join(name(tenant) for tenant in row.tenants[:10]) if row.severity is not Severity.LIVE else ""
        cells = (_severity(row.severity), name(row.resource), sentence(row.what), sentence(row.reason), tenants)
        lines.append("| " + " | ".join(cells) + " |")
    if len(rows) > _MOST_ROWS:
        lines.append(f"| | and {len(rows) - _MOST_ROWS} more | | | |")
    return lines


def _severity(severity: Severity) -> str:
    word = TITLES[severity].partition(":")[0].lower()
    return f"**{word}**" if severity is Severity.IRREVERSIBLE else word
