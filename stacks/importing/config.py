"""A catalogue file from a model's config.json; `sitectl catalogue add` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from floor.reading.files import UnreadableError, text_of
from stacks.facts.catalogue import CatalogueModel
from stacks.importing.geometry import NotUnderstoodError, Section, geometry
from stacks.importing.quantising import quantisation
from stacks.importing.vision import vision_parameters, vision_tower
from stacks.proof.weights import parameters

# Derived and published parameters may differ by norms, biases and a vision tower; by more, something was misread.
_PUBLISHED_BAND = 0.03
# An index of the weights names every one of some hundred thousand tensors.
_LARGEST_BYTES = 64 * 1024**2
# Sections of whole sentences.
_SENTENCES = ("published", "sources", "remote_code")


def catalogue_file(config: Mapping[str, Any], meta: Section, nvidia: Mapping[str, Any] | None = None) -> Section:
    """The content of a catalogue file. Raises NotUnderstoodError with every reason.

    meta: what no config.json holds: repository, licence, published, sources and whatever else the catalogue allows;
    `ignore`: names of keys that are known to be harmless.
    """
    more = dict(meta)
    ignored = frozenset(more.pop("ignore", ()))
    shape = geometry(config, ignored=ignored)
    if tower := vision_parameters(config, ignored=ignored):
        shape["vision_parameters"] = tower
        shape["vision_tower"] = vision_tower(config, ignored=ignored)
    content = {
        **more,
        **shape,
        "quantisation": quantisation(config, shape, repository=meta["repository"], nvidia=nvidia),
    }
    try:
        model = CatalogueModel.model_validate(content)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise NotUnderstoodError("\n".join(lines)) from None
    stated, counted = model.published.parameters, parameters(model).total
    if abs(counted / stated - 1) > _PUBLISHED_BAND:
        raise NotUnderstoodError(
            f"published.parameters: got {stated / 1e9:.1f} billion, but the geometry gives {counted / 1e9:.1f}, more "
            f"than {_PUBLISHED_BAND:.0%} apart; fix: correct the figure, or the family in stacks/importing/geometry.py"
        )
    order = [key for key in CatalogueModel.model_fields if key in content]
    return {key: content[key] for key in order}


def text(content: Section, comment: str) -> str:
    """The file as YAML, after a line about what it is."""
    parts = [
        yaml.safe_dump({key: value}, sort_keys=False, width=118, default_flow_style=_flow(key, value))
        for key, value in content.items()
    ]
    return f"# {comment}\n{''.join(parts)}"


def _flow(key: str, value: Any) -> bool | None:
    """False for what has a line for each key; None where the innermost is on one line."""
    return None if isinstance(value, dict | list) and key not in _SENTENCES else False


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises NotUnderstoodError."""
    try:
        content = json.loads(text_of(path, largest=_LARGEST_BYTES))
    except FileNotFoundError:
        raise NotUnderstoodError(
            f"{path}: no such file; fix: name the repository's config.json, or the folder that has it"
        ) from None
    except UnreadableError as error:
        raise NotUnderstoodError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise NotUnderstoodError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise NotUnderstoodError(f"{path}: got {type(content).__name__}, allowed: a JSON object")
    return content
