"""Resources of GPUs and slices (MIG) as kube-state-metrics names them: what is no letter and no digit becomes `_`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WHOLE = 'resource="nvidia_com_gpu"'
"""Selects whole GPUs."""
WHOLE_OR_SLICE = 'resource=~"nvidia_com_gpu|nvidia_com_mig_.+"'
"""Selects whole GPUs and slices of every profile, for what does not know the site's."""


def any_of(slices: Iterable[str]) -> str:
    """Selects whole GPUs, and slices of these resources."""
    names = "|".join(map(_label, sorted(slices)))
    return f'resource=~"nvidia_com_gpu|{names}"' if names else WHOLE


def by_part(slices: Mapping[str, float]) -> list[tuple[str, str]]:
    """What selects whole GPUs and each kind of slices, and the factor that makes GPUs of their count, as PromQL.

    slices: resource -> which part of a GPU one is.
    """
    parts = [(f'resource="{_label(name)}"', f" * {share:.6g}") for name, share in sorted(slices.items())]
    return [(WHOLE, ""), *parts]


def _label(resource: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)
