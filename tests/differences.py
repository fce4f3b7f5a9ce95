"""What differs between two values as rows: `[JSON pointer, value]`, and `[JSON pointer]` for what is gone."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

Row = list[Any]


def rows(old: Any, new: Any, pointer: str = "") -> Iterator[Row]:
    """What leads from one value to the other; lists of one length entry by entry, others whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            at = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in new:
                yield [at]
            elif key not in old:
                yield [at, new[key]]
            else:
                yield from rows(old[key], new[key], at)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from rows(before, after, f"{pointer}/{index}")
    elif old != new:
        yield [pointer, new]


def over(old: Any, changes: Sequence[Row]) -> Any:
    """The new value; the old one stays as it is. Raises KeyError and IndexError for rows over another value."""
    value = copy.deepcopy(old)
    for pointer, *new in changes:
        holder = value
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
        for part in path:
            holder = holder[int(part) if isinstance(holder, list) else part]
        key = int(last) if isinstance(holder, list) else last
        if new:
            holder[key] = new[0]
        else:
            del holder[key]
    return value
