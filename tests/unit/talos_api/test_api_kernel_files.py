"""Files of the kernel that a machine shows: read whole, or not at all."""

from __future__ import annotations

import pytest

from talos.api import streams
from talos.api.errors import CutShortError, RpcError

VERSION = b"""NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  595.91.07  Release Build  (root@buildkitsandbox)
GCC version:  gcc version 15.2.0 (GCC)
"""


def test_lines_that_come_in_pieces_are_put_together() -> None:
    assert streams.lines(iter([b"nvidia 16384 0 - Li", b"ve 0x0\nnvme 1 0\n"])) == [
        "nvidia 16384 0 - Live 0x0",
        "nvme 1 0",
    ]
    assert streams.lines(iter([])) == []


def test_a_file_that_ends_within_a_line_is_not_whole() -> None:
    with pytest.raises(CutShortError):
        streams.lines(iter([b"nvidia 16384 0\nnvidia_uv"]))


def test_the_driver_is_the_version_of_the_kernels_module() -> None:
    assert streams.driver_version(iter([VERSION])) == "595.91.07"
    with pytest.raises(RpcError, match="no line of the file"):
        streams.driver_version(iter([b"GCC version:  gcc version 15.2.0 (GCC)\n"]))
