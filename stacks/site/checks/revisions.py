"""Whether a site may change by itself: each model is of one commit; and its licence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.model_server import ModelServerSpec
from floor.problems import Problem
from stacks.facts import catalogue
from stacks.site.reading.raw import at, mapping

_ENGINE = str(ModelServerSpec.model_fields["engine"].default)


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Models with no commit in the catalogue nor in the site: their weights would have no name."""
    for name, model in mapping(values.get("models")).items():
        entry, server = at(model, "catalogue"), mapping(at(model, "server"))
        if entry not in catalogue.names() or server.get("engine", _ENGINE) != "vllm" or server.get("revision"):
            continue
        known = catalogue.load(str(entry))
        if known.revision:
            continue
        yield Problem(
            path=("models", str(name), "server", "revision"),
            what=f"missing: {known.repository} would be brought as it is then, and no server could name it",
            got=f"none here, and none in stacks/facts/catalogue/{entry}.yaml",
            allowed="a commit of the repository, 40 digits of 0-9 and a-f",
            fix="add server.revision with the commit that you tested; the hub lists them below "
            f"{known.repository}/commits/main",
        )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Models whose licence lets no one earn with them, on a production site."""
    if values.get("purpose", "production") != "production":
        return
    for name, model in mapping(values.get("models")).items():
        entry = at(model, "catalogue")
        if entry not in catalogue.names() or at(model, "server", "engine") == "simulator":
            continue
        licence = catalogue.load(str(entry)).licence
        if "non-commercial" in licence or "-NC-" in licence:
            yield Problem(
                path=("models", str(name), "catalogue"),
                what="has a licence that excludes commercial use without its maker's consent",
                got=licence,
                fix="obtain the consent, or order another model",
            )
