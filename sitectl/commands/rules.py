"""`rules`: what no site may do, checked on what it declares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import click

from floor.problems import SiteError
from policy import rules_file
from policy.listing import RULES
from policy.waivers import Judgement, judge
from sitectl.offline import checkout, warned
from sitectl.offline.checkout import Declared, Told
from sitectl.output.code_scanning import Result, format_option, sarif, workflow_commands
from sitectl.shell.command import Command, CommandContext, pass_context, sites_argument
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import SitePlan, plan_file

MORE = """\
Renders each site and applies every rule to its objects; no engine, no cluster. `pulumi preview` and `pulumi up` apply
the same rules before they change anything. A site waives a rule for one resource in rules.SITE.yaml, with a reason and
a last day:

\b
  waivers:
    - rule: image-pinned
      resource: Deployment inference-models/glm-5-1
      reason: waits for the release that fixes the tokenizer
      expires: 2027-01-31

\b
  python -m sitectl rules --list         what the rules are

exit status 1: a rule is broken, a waiver has expired, or rules.SITE.yaml is wrong
"""


_RENDERS = {"renders": "A site is valid and can be rendered, so that the rules can look."}
_LEVELS: Mapping[str, Literal["error", "note"]] = {"errors": "error", "advice": "note"}


@click.command(cls=Command, epilog=MORE)
@sites_argument
@format_option
@click.option("--list", "only_list", is_flag=True, help="list every rule and stop")
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], form: str, only_list: bool) -> int:
    if only_list:
        if sites:
            checkout.site_files(context.project, sites)
        width = max(len(rule.name) for rule in RULES)
        text = "\n".join(
            f"{rule.name:<{width}}  {rule.says}{' (advice)' if rule.level == 'advice' else ''}" for rule in RULES
        )
        context.say(text, [{"name": rule.name, "says": rule.says, "level": rule.level} for rule in RULES])
        return int(Exit.OK)
    project = context.project
    files = checkout.chosen_sites(project, sites)
    report = checkout.tell_declared(
        project,
        files,
        context.progress,
        lambda site, declared: _judge(project, site, files[site], declared),
        without=", so no rule could look",
    )
    if form != "text":
        log = sarif(_results(report.records, files), {rule.name: rule.says for rule in RULES} | _RENDERS)
        context.say(workflow_commands(log) if form == "github" else json.dumps(log, indent=2), log)
        return report.status
    lines = report.lines
    if not report.wrong:
        lines += [f"next: python -m sitectl plan {site}" for site in sites or ("SITE",)]
        lines.append("      it needs the stack and its cluster: python -m sitectl docs add-a-site")
    context.say("\n".join(lines), report.records)
    return report.status


def _judge(project: Path, site: str, file: Path, declared: Declared) -> Told:
    try:
        rules = rules_file.read(project, site)
    except SiteError as error:
        text = checkout.relative(str(error), project)
        return Told(lines=[text], record={"error": text}, good=False)
    plan = _valid(file)
    known = (
        (plan.load_s, plan.replaced_registries, plan.machine_secrets, plan.pepper, plan.locked_images) if plan else ()
    )
    facts = rules.facts(site, *known, spans_nodes=bool(plan and plan.site.spans_nodes))
    judgement = judge(checkout.as_rules_see(declared.resources), facts, rules.waivers, rules_file.today())
    lines = [*_lines(site, judgement), *(warned.lines(plan, project) if plan else [])]
    record = {**_record(judgement), "warnings": warned.records(plan.warnings, plan.file, project) if plan else []}
    return Told(lines=lines, record=record, good=not judgement.errors)


def _valid(file: Path) -> SitePlan | None:
    """Its plan; None for one that is not valid, which `validate` reports."""
    try:
        return plan_file(file)
    except SiteError:
        return None


def _results(records: Mapping[str, Any], files: Mapping[str, Path]) -> Iterator[Result]:
    """Findings are of resources; the file that declares them is the site's."""
    for site, record in records.items():
        file = files[site].name
        if error := record.get("error"):
            yield Result(rule="renders", level="error", text=error, file=file)
        for section, level in _LEVELS.items():
            for finding in record.get(section, ()):
                text = f"{finding['resource']}: {finding['problem']}\n  fix: {finding['fix']}"
                yield Result(rule=finding["rule"], level=level, text=text, file=file)


def _lines(site: str, judgement: Judgement) -> list[str]:
    lines = [f"{site}: {len(judgement.errors)} broken, {len(judgement.advice)} advised, {len(judgement.waived)} waived"]
    for finding in judgement.errors:
        lines += [f"  {line}" for line in str(finding).splitlines()]
    for finding in judgement.advice:
        lines += [
            f"  advice: {line}" if number == 0 else f"  {line}" for number, line in enumerate(str(finding).splitlines())
        ]
    for finding, waiver in judgement.waived:
        lines.append(f"  waived until {waiver.expires}: {finding.resource} [{finding.rule}], {waiver.reason}")
    return lines


def _record(judgement: Judgement) -> dict[str, Any]:
    def plain(finding: Any) -> dict[str, str]:
        return {"rule": finding.rule, "resource": finding.resource, "problem": finding.problem, "fix": finding.fix}

    return {
        "errors": [plain(finding) for finding in judgement.errors],
        "advice": [plain(finding) for finding in judgement.advice],
        "waived": [
            {**plain(finding), "until": str(waiver.expires), "reason": waiver.reason}
            for finding, waiver in judgement.waived
        ],
    }
