"""Renders configuration text from templates; the result is parsed and emitted again, so bad text fails here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import yaml

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    # Own delimiters: the rendered text may itself hold {{ }} of Go or Prometheus templates.
    variable_start_string="<<",
    variable_end_string=">>",
    block_start_string="<%",
    block_end_string="%>",
    comment_start_string="<#",
    comment_end_string="#>",
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # noqa: S701 - the output is YAML, never HTML
)


def render_yaml(template: str, **values: Any) -> str:
    """Render `templates/<template>` with `values`; a name without a value raises jinja2.UndefinedError.

    Returns YAML in a canonical form: block style, keys in the template's order.
    """
    values_of_text = yaml.load(render_text(template, **values), Loader=yaml.CSafeLoader)
    return yaml.dump(values_of_text, Dumper=yaml.CSafeDumper, sort_keys=False)


def render_text(template: str, **values: Any) -> str:
    """The same for text that is no YAML, as it is."""
    return _ENVIRONMENT.get_template(template).render(values)
