"""How far published speeds lie from this proof's, as factors.

`bands.yaml` holds them by family of GPUs and storage of the weights, and lists what is covered by any timing at all.
A test derives the file from benchmarks/published.yaml and the recorded steps, and fails where it differs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GpuSlice
from stacks.facts.records import Record, read_facts
from stacks.proof.cache import KvDtype
from stacks.proof.figures import Band, Fidelity
from stacks.proof.order import Order

FILE = Path(__file__).parent / "bands.yaml"
# Of fewer rows the extremes mean nothing.
FEWEST_ROWS = 5
ALL = "all"


class BandEntry(Record):
    """Published speeds over the proof's."""

    low: float = Field(gt=0, le=1)
    """Nine of ten are at least this."""
    high: float = Field(ge=1)
    """Nine of ten are at most this."""
    rows: int = Field(ge=FEWEST_ROWS)
    """Published rows of the group."""
    held_out: int = Field(ge=1)
    """Of these, the ones that nothing was fitted to."""


class BandTable(Record):
    """What the file holds."""

    bands: dict[str, BandEntry]
    """By `family format`, `format` and `all`."""
    covered: dict[str, tuple[str, ...]]
    """By GPU: `format mixers cache` of which there are timings."""


def band_of(order: Order) -> Band:
    """Published speeds over the proof's, of such weights on this family of GPUs; where few are published, on any GPU,
    and then of all weights.

    Where the site has measured its own, only that counts. Of slices nothing is published: the least and the most of all
    bands, with the rows of all.
    """
    if of_site := order.measured:
        low, high = min(of_site.low, of_site.pace), max(of_site.high, of_site.pace)
        return Band(low=of_site.pace / high, high=of_site.pace / low, rows=of_site.periods)
    if isinstance(order.hardware, GpuSlice):
        entries = _table().bands.values()
        rows = _table().bands[ALL].rows
        return Band(low=min(entry.low for entry in entries), high=max(entry.high for entry in entries), rows=rows)
    stored = order.model.quantisation.format
    table = _table().bands
    names = (f"{order.hardware.family} {stored}", stored, ALL)
    entry = table[next(name for name in names if name in table)]
    return Band(low=entry.low, high=entry.high, rows=entry.rows)


def fidelity_of(order: Order) -> Fidelity:
    """calibrated where the site has measured it, or timings cover this GPU, storage, kind of attention and cache; else
    estimated.

    No timing has drafts, or weights that the engine quantises as it loads.
    """
    if order.measured:
        return "calibrated"
    if order.speculation or order.stored:
        return "estimated"
    covered = combination(order.model, order.kv_dtype) in _table().covered.get(order.gpu, ())
    return "calibrated" if covered else "estimated"


def combination(model: CatalogueModel, dtype: KvDtype) -> str:
    """Storage of the weights, kinds of attention and elements of the cache, as the file writes them."""
    kinds = set()
    for mixer in model.mixers.values():
        sparse = isinstance(mixer, catalogue.LatentAttention) and mixer.indexer_heads
        kinds.add("sparse" if sparse else mixer.kind)
    return f"{model.quantisation.format} {'+'.join(sorted(kinds))} {dtype}"


@cache
def _table() -> BandTable:
    return read_facts(FILE, BandTable)
