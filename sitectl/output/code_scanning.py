"""What `validate` and `rules` find, as SARIF 2.1.0 and as annotations of GitHub's workflows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import click

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "sarif", "github"]),
    default="text",
    help="for people, code scanning, or GitHub's jobs",
)
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ANNOTATION = {"error": "error", "warning": "warning", "note": "notice"}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One finding at one place of a file."""

    rule: str
    level: Literal["error", "warning", "note"]
    text: str
    file: str
    """Relative to the checkout."""
    line: int | None = None


def sarif(results: Iterable[Result], rules: Mapping[str, str]) -> dict[str, Any]:
    """The log of one run. rules: every rule that was looked at, with its meaning."""
    driver = {
        "name": "sitectl",
        "rules": [{"id": name, "shortDescription": {"text": says}} for name, says in rules.items()],
    }
    findings = [
        {
            "ruleId": result.rule,
            "level": result.level,
            "message": {"text": result.text},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": result.file},
                        # A viewer that shows a finding in a file needs a line.
                        "region": {"startLine": result.line or 1},
                    }
                }
            ],
        }
        for result in results
    ]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": findings}]}


def workflow_commands(log: Mapping[str, Any]) -> str:
    """The results of a SARIF log as commands that GitHub's runner takes from a job's output."""
    return "\n".join(_annotations(log))


def _annotations(log: Mapping[str, Any]) -> Iterator[str]:
    for run in log["runs"]:
        for result in run["results"]:
            place = result["locations"][0]["physicalLocation"]
            properties = {
                "file": place["artifactLocation"]["uri"],
                "line": str(place["region"]["startLine"]),
                "title": result["ruleId"],
            }
            listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
            yield f"::{_ANNOTATION[result['level']]} {listed}::{_data(result['message']['text'])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
