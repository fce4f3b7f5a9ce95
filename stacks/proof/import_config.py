"""`python -m stacks.proof.import_config config.json --repository OWNER/MODEL ...`: makes a file for the catalogue."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from stacks.catalogue import CatalogueModel
from stacks.loading.files import UnreadableError, text_of
from stacks.proof.geometry import NotUnderstoodError, Section, geometry
from stacks.proof.quantising import quantisation
from stacks.proof.weights import parameters, weight_bytes

# Derived and published parameters may differ by norms, biases and a vision tower; by more, something was misread.
_PUBLISHED_BAND = 0.03


def catalogue_file(config: Mapping[str, Any], meta: Section, nvidia: Mapping[str, Any] | None = None) -> Section:
    """The content of a catalogue file. Raises NotUnderstoodError with every reason.

    meta: what no config.json says: repository, licence, published, sources and whatever else the catalogue allows;
    `ignore`: names of keys that are known to be harmless.
    """
    more = dict(meta)
    ignored = frozenset(more.pop("ignore", ()))
    found = geometry(config, ignored=ignored)
    content = {
        **more,
        **found,
        "quantisation": quantisation(config, found, repository=meta["repository"], nvidia=nvidia),
    }
    try:
        model = CatalogueModel.model_validate(content)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise NotUnderstoodError("\n".join(lines)) from None
    said, counted = model.published.parameters, parameters(model).total
    if abs(counted / said - 1) > _PUBLISHED_BAND:
        raise NotUnderstoodError(
            f"published.parameters: got {said / 1e9:.1f} billion, but the geometry gives {counted / 1e9:.1f}, more "
            f"than {_PUBLISHED_BAND:.0%} apart; fix: correct the figure, or the family in stacks/proof/geometry.py"
        )
    order = [key for key in CatalogueModel.model_fields if key in content]
    return {key: content[key] for key in order}


def text(content: Section, comment: str) -> str:
    """The file as YAML, after a line that says what it is."""
    body = yaml.safe_dump(content, sort_keys=False, width=118, default_flow_style=None)
    return f"# {comment}\n{body}"


def main(argv: list[str] | None = None) -> int:
    """Print or write the file; exit status 1 with every reason, and no file, where the config is not understood."""
    parser = argparse.ArgumentParser(prog="python -m stacks.proof.import_config", description=__doc__)
    parser.add_argument("config", type=Path, help="config.json of the repository")
    parser.add_argument("--quantisation", type=Path, help="hf_quant_config.json of the repository, if it has one")
    parser.add_argument("--repository", required=True, help="name at the hub, owner/model")
    parser.add_argument("--licence", required=True, help="SPDX name, or what the model card says")
    parser.add_argument("--source", required=True, help="where this config.json is from")
    parser.add_argument(
        "--parameters", type=float, required=True, help="all parameters that the maker names, as 32.8e9"
    )
    parser.add_argument("--active", type=float, help="active parameters that the maker names; default: all")
    parser.add_argument("--published", required=True, help="where the maker names them")
    parser.add_argument("--task", choices=("generate", "embed", "rerank"), default="generate")
    parser.add_argument("--flag", action="append", default=[], help="vLLM flag that the model needs; may be repeated")
    parser.add_argument("--ignore", action="append", default=[], help="key that is harmless; may be repeated")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there; default: print it")
    arguments = parser.parse_args(argv)
    meta: Section = {
        "repository": arguments.repository,
        "licence": arguments.licence,
        "task": arguments.task,
        "engine_flags": arguments.flag,
        "published": {
            "parameters": arguments.parameters,
            "active_parameters": arguments.active or arguments.parameters,
            "source": arguments.published,
        },
        "sources": {"geometry": arguments.source, "licence": "model card"},
        "ignore": arguments.ignore,
    }
    try:
        nvidia = _read(arguments.quantisation) if arguments.quantisation else None
        content = catalogue_file(_read(arguments.config), meta, nvidia)
    except NotUnderstoodError as error:
        reasons = str(error).splitlines()
        print(f"{arguments.config}: {len(reasons)} reason(s) not to import it", file=sys.stderr)
        for reason in reasons:
            print(f"  {reason}", file=sys.stderr)
        return 1
    model = CatalogueModel.model_validate(content)
    files = weight_bytes(model).files
    made = text(content, f"{arguments.repository}: {parameters(model).total / 1e9:.1f} billion, {files / 1e9:.1f} GB.")
    if arguments.out is None:
        print(made, end="")
        return 0
    try:
        arguments.out.write_text(made)
    except OSError as error:
        print(f"error: {arguments.out}: {error.strerror}\n  fix: name a file that you may write", file=sys.stderr)
        return 1
    return 0


def _read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises NotUnderstoodError."""
    try:
        found = json.loads(text_of(path))
    except FileNotFoundError:
        raise NotUnderstoodError(f"{path}: no such file; fix: name the repository's config.json") from None
    except UnreadableError as error:
        raise NotUnderstoodError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise NotUnderstoodError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise NotUnderstoodError(f"{path}: got {type(found).__name__}, allowed: a JSON object")
    return found


if __name__ == "__main__":
    sys.exit(main())
