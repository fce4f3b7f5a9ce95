"""Documents as YAML text that parsers of YAML 1.1 and 1.2 read the same way; equal documents give equal bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from talos.documents.document import Wire


def render(documents: Sequence[Wire]) -> str:
    """Several documents in wire form as one YAML text."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=10**6
    )


class _Dumper(yaml.CSafeDumper):
    """Writes nothing that Talos's YAML 1.2 reader could take for another type than PyYAML's 1.1 does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - shared values are written out, never as aliases
        return True


# `1e3`, `0o17` and the like are texts in YAML 1.1 and numbers in 1.2.
_NUMBER_LIKE = re.compile(r"[-+.]?[0-9.]")


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else "'" if _NUMBER_LIKE.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
