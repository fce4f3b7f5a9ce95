"""What `advise` may ask of a model's servers that the site does not have yet: drafts, and quantised weights."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from components.specs.model_server import SpeculativeSpec
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import catalogue
from stacks.plan import optimisations
from stacks.proof.online_quantisation import ONLINE
from stacks.proof.order import Order
from stacks.site.checks.products import nearest_product
from stacks.site.demand import OrderedModelSpec

_NONE = "none"
_EXAMPLE = "write it like mtp:1:0.85, ngram:4:0.3, draft=qwen3-0.6b:3:0.7 or none"


def with_inputs(spec: OrderedModelSpec, speculative: str | None, quantization: str | None) -> OrderedModelSpec:
    """The model with what the options set in place of the site's own. Raises SitectlError for what cannot be."""
    update: dict[str, Any] = {}
    if speculative is not None:
        update["speculative"] = _speculative(speculative)
    if quantization is not None:
        if quantization not in (*ONLINE, _NONE):
            allowed = ", ".join((*ONLINE, _NONE))
            raise _wrong("--quantization", "wants the name of a method", quantization, allowed, "write one of these")
        update["quantization"] = None if quantization == _NONE else quantization
    server = spec.server.model_copy(update=update)
    for problem in optimisations.refused((), server, spec.entry):
        option = "--quantization" if "quantization" in problem.path else "--speculative"
        raise _wrong(option, problem.what, problem.got, problem.allowed, problem.fix)
    return spec.model_copy(update={"server": server})


def inputs_line(order: Order) -> str:
    """What the figures assume of drafts and quantised weights; empty where there is nothing of it."""
    parts = []
    if speculation := order.speculation:
        parts.append(
            f"{speculation.method} drafts {speculation.tokens} per step, {speculation.per_step:.3g} tokens come of it "
            f"if {100 * speculation.acceptance:.3g} % are accepted, and ITL is the time between steps"
        )
    if order.stored:
        parts.append(f"weights are quantised to {order.model.quantisation.format}; what answers lose is not proven")
    return f"assumed: {'; '.join(parts)}" if parts else ""


def _speculative(text: str) -> SpeculativeSpec | None:
    if text == _NONE:
        return None
    parts = text.split(":")
    if len(parts) != 3:
        raise _wrong("--speculative", "wants METHOD:K:ACCEPTANCE", text, "", _EXAMPLE)
    method, _, entry = parts[0].partition("=")
    if entry and entry not in catalogue.names():
        near = nearest_product(entry, catalogue.names())
        fix = f"write {near}" if near else "python -m sitectl catalogue list"
        raise _wrong("--speculative", f"{entry} is not in the catalogue", text, "", fix)
    try:
        values: dict[str, Any] = {"method": method, "tokens": int(parts[1]), "acceptance": float(parts[2])}
    except ValueError:
        raise _wrong("--speculative", "wants a whole number and a share behind METHOD", text, "", _EXAMPLE) from None
    try:
        return SpeculativeSpec.model_validate(values | ({"catalogue": entry} if entry else {}))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "METHOD:K:ACCEPTANCE"
        raise _wrong("--speculative", f"{where}: {first['msg'].lower()}", text, "", _EXAMPLE) from None


def _wrong(option: str, what: str, got: str, allowed: str, fix: str) -> SitectlError:
    return SitectlError(f"{option}: {what}", got=got, allowed=allowed, fix=fix, status=Exit.USAGE)
