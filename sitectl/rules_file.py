"""A site's `rules.<site>.yaml`: facts for the rules, and waivers."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import ValidationError

from components.rules.waivers import RulesSpec
from sitectl.errors import Exit, SitectlError


def path(project: Path, site: str) -> Path:
    """Where the file would be; outside of the stack files' own pattern, so that no engine takes it for one."""
    return project / f"rules.{site}.yaml"


def read(project: Path, site: str) -> RulesSpec:
    """What the file says; defaults without one. Raises SitectlError with every mistake."""
    file = path(project, site)
    if not file.exists():
        return RulesSpec()
    try:
        return RulesSpec.model_validate(yaml.safe_load(file.read_text()) or {})
    except yaml.YAMLError as error:
        raise SitectlError(
            f"{file.name} is not YAML: {error}", fix="mend the line it names", status=Exit.REFUSED
        ) from None
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}; got {one['input']!r}"
            for one in error.errors()
        ]
        raise SitectlError(
            f"{file.name}: {len(lines)} mistake(s)\n  " + "\n  ".join(lines),
            allowed=", ".join(RulesSpec.model_fields),
            fix="a waiver has rule, resource, reason (10 letters or more) and expires (YYYY-MM-DD)",
            status=Exit.REFUSED,
        ) from None
