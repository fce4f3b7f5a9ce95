"""The old name of what `stacks.sizing` raises."""

from stacks.sizing import DoesNotFitError

__all__ = ["DoesNotFitError"]
