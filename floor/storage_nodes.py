"""How nodes with disks for Longhorn differ."""

from __future__ import annotations

LABEL, VALUE = "node.longhorn.io/create-default-disk", "config"
"""The label with which Longhorn reads a node's disks from its annotation; machine configs set it on such nodes."""
