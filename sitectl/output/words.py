"""Reports as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from sitectl.change.changes import Change
from sitectl.change.field_owners import ForeignFields
from sitectl.change.headroom import Headroom, least
from sitectl.change.machine_changes import between_words, names
from sitectl.change.report import SiteReport, folded
from sitectl.change.verdicts.model import Severity, Verdict

TITLES = {
    Severity.IRREVERSIBLE: "IRREVERSIBLE: lost, and no later up brings it back",
    Severity.REPLACED: "REPLACED: deleted and created again; its users notice",
    Severity.RESTARTS: "RESTARTS: pods or streams end and begin again",
    Severity.LIVE: "LIVE: in place, nothing is interrupted",
}
_NO_FILE = "not known: a rendered folder holds no prices and targets, a git revision does"


def minutes(seconds: int) -> str:
    """Whole minutes, at least one: `4 min`."""
    return f"{-(-seconds // 60)} min"


def cold_start(expected_s: int | None, at_most_s: int) -> str:
    """`about 21 min, at most 95 min`; empty without a start."""
    if not at_most_s:
        return ""
    about = f"about {minutes(expected_s)}, " if expected_s is not None else ""
    return f"{about}at most {minutes(at_most_s)}"


def signed(count: float) -> str:
    return f"{count:+,.0f}" if count else "0"


def signed_gpus(count: float) -> str:
    """As `signed`, with two digits of a part of a GPU, as slices are."""
    return signed(count) if count == round(count) else f"{count:+,.2f}"


def figures(report: SiteReport) -> list[tuple[str, str]]:
    """The figures of a report with their names, for every form of output."""
    return [
        ("GPUs", signed_gpus(report.gpus)),
        ("cost per month", _money(report)),
        ("SLO headroom, least", tightest(report.headroom) if report.knows_site else _NO_FILE),
        ("pods that stop or restart", str(report.restarts)),
        ("cold start", cold_start(report.expected_start_s, report.cold_start_s) or "none"),
        ("tenants touched", ", ".join(report.tenants) or "none"),
        ("resources", _operations(report)),
        *([("keys of machines", f"{len(report.machines)} changed")] if report.machines else []),
    ]


def _operations(report: SiteReport) -> str:
    if report.is_blind:
        return "not known"
    return ", ".join(f"{count} {op}" for op, count in report.operations.items()) or "no change"


def _money(report: SiteReport) -> str:
    if not report.knows_site:
        return _NO_FILE
    if report.cost_per_month is None:
        return "no price known: set prices.gpu_hour in the site"
    return f"{signed(report.cost_per_month)} {report.currency}".rstrip()


def tightest(rows: Sequence[Headroom]) -> str:
    """The least headroom of a site: `62 % (-12 points), glm-5-1 TTFT p95`."""
    if not any(row.after_target_ms for row in rows):
        return "no model declares a target: set its slo"
    row = least(rows)
    if row is None:
        return "not known: a model with a target declares no load"
    return f"{_left(row)}, {row.model} {row.figure}"


def _left(row: Headroom) -> str:
    change = "" if row.change is None else " (unchanged)" if row.change == 0 else f" ({row.change:+.3g} points)"
    return "unknown" if row.after is None else f"{row.after:.3g} %{change}"


def targets(rows: Sequence[Headroom]) -> list[tuple[str, str, str]]:
    """(model and figure, milliseconds and target, headroom) of each row."""
    return [(f"{row.model} {row.figure}", _latency(row), _left(row)) for row in rows]


def _latency(row: Headroom) -> str:
    new = _side(row.after_ms, row.after_target_ms)
    if row.before_target_ms is None:
        return new
    old = _side(row.before_ms, row.before_target_ms)
    return new if old == new else f"{old} -> {new}"


def _side(value: float | None, target: float | None) -> str:
    latency = "not known" if value is None else f"{value:,.0f} ms"
    return f"{latency} of {target:,.0f}" if target is not None else f"{latency}, no target"


def _headroom(report: SiteReport) -> list[str]:
    rows = targets(report.headroom)
    changed = [row for row in report.headroom if row.change or row.before_target_ms != row.after_target_ms]
    if not rows or not (report.rows or changed):
        return []
    widths = [max(len(row[place]) for row in rows) for place in range(2)]
    lines = [f"  {name:<{widths[0]}}  {latency:<{widths[1]}}  left {left}" for name, latency, left in rows]
    return ["", "SLO HEADROOM: what the proof leaves to each target, estimated", *lines]


def plan(report: SiteReport) -> str:
    """A whole report for a terminal."""
    lines = [f"Site {report.site}"]
    for error in report.errors:
        lines += [
            "",
            "PREVIEW FAILED: what follows is how far it looked",
            textwrap.indent(error, "  "),
        ]
    for warning in report.warnings:
        lines += ["", textwrap.indent(f"warning: {warning}", "  ")]
    lines += _set_by_others(report)
    if not report.rows and not report.machines:
        none = [] if report.errors or report.foreign else ["  no change"]
        none += _machines(report)
        return "\n".join([*lines, *none, *_headroom(report), *_proofs(report)]) + "\n"
    width = max(len(name) for name, _ in figures(report))
    lines += [f"  {name:<{width}}  {value}" for name, value in figures(report)]
    lines += _headroom(report)
    lines += _machines(report)
    for severity in Severity:
        rows = folded([row for row in report.rows if row.severity is severity])
        if rows:
            lines += ["", TITLES[severity]]
            lines += table(rows)
    return "\n".join([*lines, *_proofs(report)]) + "\n"


def _machines(report: SiteReport) -> list[str]:
    if report.machines_unseen:
        return ["", f"  {report.machines_unseen}"]
    if not report.machines:
        return []
    rows = [(names(change.machines), change.key, between_words(change)) for change in report.machines]
    widths = [min(40, max(len(row[place]) for row in rows)) for place in range(2)]
    lines = ["", "MACHINES: keys and configs that change, with every secret masked"]
    for (machines, key, value), change in zip(rows, report.machines, strict=True):
        lines.append(f"  {machines:<{widths[0]}}  {key:<{widths[1]}}  {value}")
        lines += [f"      {change.effect}: {change.why}"] if change.effect else []
    return lines


def drift(report: SiteReport) -> str:
    """What of a live site differs from its file, for a terminal."""
    if report.empty:
        return f"{report.site}: no drift"
    lines = [f"Site {report.site}"]
    for error in report.errors:
        lines += ["", "PREVIEW FAILED: what follows is how far it looked", textwrap.indent(error, "  ")]
    lines += _set_by_others(report)
    if report.rows:
        changes = table(folded(report.rows))
        lines += ["", f"CHANGED: what `pulumi up --refresh --stack {report.site}` would do", *changes]
    return "\n".join(lines)


def _set_by_others(report: SiteReport) -> list[str]:
    if not report.foreign:
        return []
    return [
        "",
        "SET BY OTHERS: fields of the site's objects that another manager than the program has set",
        *(f"  {line}" for line in foreign(report.foreign)),
    ]


def foreign(objects: Iterable[ForeignFields]) -> list[str]:
    """Fields that others have set, by object, and the commands that take them back."""
    lines = []
    for fields in objects:
        lines.append(fields.resource)
        lines += [f"  {field.path}  set by {field.manager}" for field in fields.fields]
        lines += [f"  take back: {command}" for command in fields.take_back]
    return lines


def table(rows: Sequence[Verdict]) -> list[str]:
    """One line for what happens, one for why and whom it touches."""
    width = min(60, max(len(row.resource) for row in rows))
    lines = []
    for row in rows:
        lines.append(f"  {row.resource:<{width}}  {row.what}")
        notes = [row.reason, *_extras(row)]
        lines.append(f"      {'; '.join(notes)}")
    return lines


def _extras(row: Verdict) -> Iterable[str]:
    if row.gpus:
        yield f"GPUs {signed_gpus(row.gpus)}"
    if row.cold_start_s:
        yield f"cold start {cold_start(row.expected_start_s, row.cold_start_s)}"
    if row.tenants and row.severity is not Severity.LIVE:
        yield f"tenants: {', '.join(row.tenants)}"


def _proofs(report: SiteReport) -> list[str]:
    return [line for proof in report.proofs for line in ("", proof)]


_VERBS = {"create": "added", "update": "changed", "replace": "replaced", "delete": "removed"}


def difference(changes: Sequence[Change]) -> list[str]:
    """Objects that are added, changed and removed, with each changed field."""
    lines = []
    for change in sorted(changes, key=lambda change: (list(_VERBS).index(change.op), change.label)):
        lines.append(f"{_VERBS[change.op]:<8}  {change.label}")
        lines += [f"            {line}" for line in changed_fields(change)]
    return lines


def changed_fields(change: Change) -> list[str]:
    """Each changed field of one resource as text."""
    return [line for leaf in change.fields() for line in field_words(leaf.path, leaf.before, leaf.after)]


def field_words(path: str, before: object, after: object) -> list[str]:
    """One changed leaf as text, lists by what was added and removed."""
    if isinstance(before, list) and isinstance(after, list):
        gone = [f"{path}: without {item}" for item in before if item not in after]
        come = [f"{path}: with {item}" for item in after if item not in before]
        return gone + come or [f"{path}: in another order"]
    if before is None:
        return [f"{path}: set to {_line(after)}"]
    if after is None:
        return [f"{path}: no longer set (was {_line(before)})"]
    if isinstance(before, str) and isinstance(after, str) and ("\n" in before or "\n" in after):
        old, new = before.splitlines(), after.splitlines()
        gone = [f"{path}: - {line.strip()}" for line in old if line not in new]
        return gone + [f"{path}: + {line.strip()}" for line in new if line not in old]
    return [f"{path}: {_line(before)} -> {_line(after)}"]


def _line(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= 200 else f"{text[:197]}..."
