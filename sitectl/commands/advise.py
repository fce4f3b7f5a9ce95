"""`advise`: which kind of GPU carries a model's load at the least cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import Any, TypeVar

import click
from pydantic import ValidationError

from floor.problems import Path, meant, nearest
from sitectl.commands.advised_inputs import inputs_line, with_inputs
from sitectl.commands.catalogue import model_names
from sitectl.offline import checkout
from sitectl.offline.planned import plan_of
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import catalogue, versions
from stacks.facts.hardware import GPUS, GpuSlice, other_kinds
from stacks.plan import advice
from stacks.plan.advice import Advice, PublicPrice, advise
from stacks.plan.orders import order_of
from stacks.plan.site_plan import SitePlan
from stacks.plan.weight_places import place_words, places_of
from stacks.proof.demand import Prices
from stacks.proof.order import Order
from stacks.proof.split_verdict import SplitVerdict
from stacks.site.checks.models import problems as model_problems
from stacks.site.checks.products import nearest_product
from stacks.site.demand import LoadSpec, OrderedModelSpec, SloSpec

MORE = """\
It proves the model on every kind of GPU that has a price: the site's own by its `prices`, others by --offer; without
any --offer on all kinds that the platform knows, without prices. Load and targets are those of the site's model of that
name, or of the options. Each kind gets the fewest GPUs that carry the load within its targets by the computed figures;
the verdict shows whether they do over the whole band of its speed. A model on a slice of a GPU (MIG) is also compared
with the other slices of that GPU and with the whole one; a slice is named GPU/PROFILE and counts as a GPU.

\b
  python -m sitectl advise --site prod qwen3-32b
  python -m sitectl advise --site prod qwen3-32b --offer b200=6.5
  python -m sitectl advise --site prod gpt-oss-20b --requests-per-s 4
  python -m sitectl advise --site prod glm-5-1 --speculative mtp:1:0.85

exit status 1: no kind carries the load within its targets, not even at the fast end of its band; each line shows why
"""
# Options that set a key of the load, by that key.
_LOAD_OPTIONS = {
    "requests_per_s": "--requests-per-s",
    "prompt_tokens": "--prompt",
    "answer_tokens": "--answer",
    "prefix_hit": "--prefix-hit",
}


@click.command(cls=Command, epilog=MORE)
@click.argument("model", shell_complete=model_names, help="a model of the site, or a name of the catalogue")
@click.option("--site", metavar="SITE", shell_complete=site_names, help="which site (default: the only one)")
@click.option("--requests-per-s", type=float, metavar="RATE", help="requests that arrive per second")
@click.option("--prompt", metavar="P50/P95", help="tokens of a prompt, such as 2000/16000")
@click.option("--answer", metavar="P50/P95", help="tokens of an answer, such as 400/2000")
@click.option("--prefix-hit", type=float, metavar="SHARE", help="share of the prompt that is cached, 0 to 1")
@click.option("--slo", "targets", multiple=True, metavar="KEY=MS", help="a target, as ttft_p95_ms=2000; repeatable")
@click.option("--offer", "offers", multiple=True, metavar="GPU=PRICE", help="an hour of one whole GPU; repeatable")
@click.option("--speculative", metavar="METHOD:K:ACCEPTANCE", help="drafts, as mtp:1:0.85 or draft=qwen3-0.6b:3:0.7")
@click.option("--quantization", metavar="METHOD", help="quantise 16-bit weights on loading, as fp8_per_tensor")
@click.option("--public", metavar="IN/OUT", help="a public API's prices per million tokens, in the site's currency")
@pass_context
def command(context: CommandContext, /, *, model: str, site: str | None, public: str | None, **given: Any) -> int:
    """Show which kind of GPU carries a model's load at the least cost."""
    plan = plan_of(context.project, site or only_site(context.project))
    order = _order(plan, model, given)
    price = PublicPrice(*_prices(public)) if public else None
    if price and order.load is None:
        raise _wrong("--public", "a cost needs a load", fix="add --requests-per-s")
    with context.progress.layer(f"prove {model}"):
        advices = advise(order, _offers(order, given["offers"]))
        split = advice.split_of(advices)
    cost = advice.public_cost(order, price) if price else None
    assumed, last = inputs_line(order), [advice.split_line(split)] if split else []
    notes = [note for note in (advice.slices_line(advices), assumed) if note]
    places = f"weights: {place_words(places_of(plan.site.storage, advices[0].proof), plan.site.storage.weights.place)}"
    lines = [*advice.table(advices), *notes, places, advice.verdict(advices, cost), *last]
    record = {"kinds": [_record(kind) for kind in advices], "public_per_hour": cost}
    context.say("\n".join(lines), record | {"split": _split_record(split) if split else None})
    return int(Exit.OK if any(kind.works for kind in advices) else Exit.REFUSED)


def _order(plan: SitePlan, model: str, given: Mapping[str, Any]) -> Order:
    spec = plan.site.models.get(model) or OrderedModelSpec(catalogue=_entry(plan, model))
    load = _changed(LoadSpec, spec.load, _load_values(given), _LOAD_OPTIONS)
    slo = _changed(SloSpec, spec.slo, _targets(given["targets"]), {})
    if slo and not load:
        raise _wrong("--slo", "a target needs a load", fix="add --requests-per-s")
    _refuse(spec.catalogue, load, slo)
    spec = with_inputs(spec, given["speculative"], given["quantization"])
    engine = versions.minor_of(versions.load().images.vllm)
    return order_of(plan.site, model, spec.model_copy(update={"load": load, "slo": slo}), engine)


def only_site(project: FilePath) -> str:
    """The site whose prices and kind of GPU are taken where none is named."""
    names = list(checkout.chosen_sites(project, ()))
    if len(names) > 1:
        allowed, fix = ", ".join(names), "add --site, for its kind of GPU and its prices"
        raise _wrong("--site", "is missing, and there are several sites", allowed=allowed, fix=fix)
    return names[0]


def _refuse(entry: str, load: LoadSpec | None, slo: SloSpec | None) -> None:
    """Raise SitectlError for what no site may set of this model: caches of an encoder, answers of one that has none."""
    parts = {"load": load, "slo": slo}
    values = {key: part.model_dump(mode="json", exclude_unset=True) for key, part in parts.items() if part}
    refused = [
        (_option(problem.path[2:]), problem)
        for problem in model_problems({"models": {entry: {"catalogue": entry, **values}}})
        if problem.path[2:3] in (("load",), ("slo",))
    ]
    if refused:
        what = "; ".join(f"{option}: {problem.what}" for option, problem in refused)
        fix = "; ".join(f"{option}: {problem.fix}" for option, problem in refused)
        raise SitectlError(what, fix=fix, status=Exit.USAGE)


def _option(keys: Path) -> str:
    """The option that sets the key at `keys` of a model; --prompt for a load whose default is too long."""
    section, *key = keys
    if section == "slo":
        return f"--slo {key[0]}"
    return _LOAD_OPTIONS.get(str(key[0]) if key else "", "--prompt")


def _entry(plan: SitePlan, model: str) -> str:
    if model in catalogue.names():
        return model
    known = [*plan.site.models, *catalogue.names()]
    near = nearest_product(model, known)
    raise SitectlError(
        f"neither the site nor the catalogue has a model '{model}'" + meant(near),
        fix="python -m sitectl catalogue list",
        status=Exit.USAGE,
    )


def _load_values(given: Mapping[str, Any]) -> dict[str, Any]:
    values = {key: given[key] for key in ("requests_per_s", "prefix_hit") if given[key] is not None}
    for option, key in (("prompt", "prompt_tokens"), ("answer", "answer_tokens")):
        if given[option]:
            p50, p95 = _pair(f"--{option}", given[option], "2000/16000")
            values[key] = {"p50": p50, "p95": p95}
    return values


def _targets(words: Sequence[str]) -> dict[str, float]:
    values = _assignments("--slo", words, "ttft_p95_ms=2000")
    for key in values.keys() - SloSpec.model_fields.keys():
        near = nearest(key, SloSpec.model_fields)
        allowed = ", ".join(SloSpec.model_fields)
        raise _wrong("--slo", f"no target is called {key}", allowed=allowed, fix=f"write {near or 'one of these'}")
    return values


def _offers(order: Order, words: Sequence[str]) -> dict[str, Prices | None]:
    """Prices by kind: the site's own, and what the options offer; without any, all kinds without prices.

    For a model on a slice, the site's own are all slices of its GPU and the whole one, which share one price per hour.
    """
    here = [order.gpu, *other_kinds(order.gpu)] if isinstance(order.hardware, GpuSlice) else [order.gpu]
    whole = here[-1]
    offers: dict[str, Prices | None] = dict.fromkeys(here, order.prices)
    if not words:
        return {**dict.fromkeys(GPUS), **offers}
    own = order.prices or Prices(gpu_hour=0.0)
    for gpu, hour in _assignments("--offer", words, "l40s=1.1").items():
        if gpu not in GPUS:
            near = nearest_product(gpu, GPUS)
            fix = f"write {near or 'one of these'}"
            raise _wrong("--offer", f"unknown GPU {gpu}", allowed=", ".join(GPUS), fix=fix)
        offers |= dict.fromkeys(here if gpu == whole else [gpu], replace(own, gpu_hour=hour))
    return offers


def _assignments(option: str, words: Sequence[str], example: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for word in words:
        key, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise _wrong(option, "wants a name and a number above 0", got=word, fix=f"write it like {example}")
        if key in values:
            raise _wrong(option, f"{key} is given twice", got=word, fix=f"give {key} once")
        values[key] = value
    return values


def _pair(option: str, text: str, example: str) -> tuple[float, float]:
    first, _, second = text.partition("/")
    try:
        return float(first), float(second)
    except ValueError:
        raise _wrong(option, "wants two numbers", got=text, fix=f"write them like {example}") from None


def _prices(text: str) -> tuple[float, float]:
    """Of --public: an API may give one kind of token away, but not both."""
    prices = _pair("--public", text, "0.6/2.2")
    if not (all(0 <= price < math.inf for price in prices) and any(prices)):
        raise _wrong("--public", "wants two prices from 0, not both 0", got=text, fix="write them like 0.6/2.2")
    return prices


_Of = TypeVar("_Of", LoadSpec, SloSpec)


def _changed(kind: type[_Of], spec: _Of | None, values: Mapping[str, Any], options: Mapping[str, str]) -> _Of | None:
    """What the site sets, with what the options set instead; `options`: which sets a key, --slo where none is named."""
    if not values:
        return spec
    try:
        return kind.model_validate({**(spec.model_dump(exclude_unset=True) if spec else {}), **values})
    except ValidationError as error:
        first = error.errors()[0]
        option = options.get(str(first["loc"][0]), "--slo") if first["loc"] else "--slo"
        where = ".".join(map(str, first["loc"])) or option
        raise _wrong(option, f"{where}: {first['msg'].lower()}", fix="correct it; --help has examples") from None


def _wrong(option: str, what: str, *, got: str = "", allowed: str = "", fix: str) -> SitectlError:
    return SitectlError(f"{option}: {what}", got=got, allowed=allowed, fix=fix, status=Exit.USAGE)


def _record(kind: Advice) -> dict[str, Any]:
    case = kind.proof.case
    return {
        "gpu": kind.gpu,
        "here": kind.owned,
        "holds": kind.verdict == "holds",
        "verdict": kind.verdict,
        "why_not": kind.why_not,
        "layout": str(case.layout),
        "replicas": case.replicas,
        "gpus": case.gpus,
        "per_hour": kind.hour,
        "per_million_tokens": kind.million,
        "figures": {key: asdict(figure) for key, figure in kind.proof.figures().items()} if kind.works else {},
    }


def _split_record(verdict: SplitVerdict) -> dict[str, Any]:
    split = verdict.split
    record: dict[str, Any] = {"gpu": verdict.joint.order.gpu, "better": verdict.better, "reasons": verdict.reasons}
    if split is None:
        return record
    return record | {
        "prefill": f"{split.prefill.replicas} x {split.prefill.case.layout}",
        "decode": f"{split.decode.replicas} x {split.decode.layout}",
        "gpus": split.gpus,
        "joint_gpus": verdict.joint.gpus,
        "ttft_mean_ms": split.ttft_mean_s * 1e3,
        "itl_p99_ms": split.decode.steady.itl_quantile_s(0.99) * 1e3,
        "transfer_ms": split.transfer_s * 1e3,
    }
