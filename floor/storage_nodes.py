"""How nodes with disks for Longhorn differ."""

from __future__ import annotations

LABEL, VALUE = "node.longhorn.io/create-default-disk", "config"
"""The label with which Longhorn reads a node's disks from its annotation; machine configs set it on such nodes."""
DISKS_ANNOTATION = "node.longhorn.io/default-disks-config"
"""The annotation that lists the node's disks."""
REBUILD_S = 4 * 3600
"""How long a roll waits for Longhorn to rebuild the copies of the node before: a terabyte at 70 MB/s."""
