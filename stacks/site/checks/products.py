"""Names of models and GPUs that are alike: of one family, one generation and one size, or no suggestion at all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_PARTS = re.compile(r"\d+(?:\.\d+)?|[a-z]+")
# Billions of parameters (32b, 8x22b, a22b) and gigabytes (80gb).
_SIZES = re.compile(r"(\d+(?:\.\d+)?)g?b(?![a-z])")
_ALIKE = 0.75


def nearest_product(word: str, names: Iterable[str]) -> str:
    """The one of `names` that `word` means, or nothing: another size or generation is another product.

    Nothing too where several are as near, such as `qwen3` for its sizes.
    """
    asked = _plain(word.rpartition("/")[2])
    plain = {name: _plain(name) for name in names}
    # Whatever others begin with it too, as the quantised ones of a model do.
    if exact := [name for name, other in plain.items() if other == asked]:
        return exact[0]
    same = [name for name, other in plain.items() if asked and _compatible(asked, other)]
    whole = [name for name in same if _begins(plain[name], asked) or _begins(asked, plain[name])]
    if whole:
        return whole[0] if len(whole) == 1 else ""
    scores = {name: _ratio(asked, plain[name]) for name in same}
    best = max(scores.values(), default=0.0)
    nearest = [name for name, score in scores.items() if score == best]
    return nearest[0] if best >= _ALIKE and len(nearest) == 1 else ""


def _compatible(asked: str, other: str) -> bool:
    """Whether family, generation and sizes do not contradict each other."""
    ours, theirs = _PARTS.findall(asked), _PARTS.findall(other)
    if not ours or _ratio(ours[0], theirs[0]) < _ALIKE:
        return False
    generation, their_generation = _generation(ours), _generation(theirs)
    if generation and generation != their_generation:
        return False
    sizes = set(_SIZES.findall(asked))
    return not sizes or sizes == set(_SIZES.findall(other))


def _generation(parts: list[str]) -> str:
    """The first number without what follows its dot: 3 of qwen3-32b and of llama-3.3."""
    return next((part.partition(".")[0] for part in parts if part[0].isdigit()), "")


def _begins(longer: str, shorter: str) -> bool:
    """Whether `longer` is `shorter` and something more, and not a longer number."""
    rest = longer.removeprefix(shorter)
    return rest != longer and not (shorter[-1:].isdigit() and re.match(r"\.?[0-9]", rest))


def _ratio(text: str, other: str) -> float:
    return difflib.SequenceMatcher(None, text, other).ratio()


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "-", word.strip().casefold())
