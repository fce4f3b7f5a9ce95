"""Rules of udev, as udevd reads them (udev(7))."""

from __future__ import annotations

import re

# What a part compares or sets; some take what they are about in braces.
_PLAIN = (
    "ACTION DEVPATH KERNEL KERNELS NAME SYMLINK SUBSYSTEM SUBSYSTEMS DRIVER DRIVERS TAG TAGS TEST PROGRAM RESULT OWNER "
    "GROUP MODE RUN LABEL GOTO OPTIONS"
)
_ABOUT = "ATTR ATTRS SYSCTL ENV CONST TEST SECLABEL RUN IMPORT"
_PART = (
    rf"(({'|'.join(_PLAIN.split())})|({'|'.join(_ABOUT.split())})\{{[^}}]+\}})"
    r"""\s*([=!]=|[-+:]?=)\s*[ei]?"(\\.|[^"\\])*"[\s,]*"""
)
_LINE = re.compile(rf"({_PART})+|#.*|")


def is_rule(text: str) -> bool:
    """Whether udevd reads every line; it leaves out one that it cannot read, and reports its own log alone."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return any(lines) and all(map(_LINE.fullmatch, lines))
