"""`python -m lab.vllm_cpu`: make the environment of a real vLLM in the lab's cache; does nothing where it is there."""

from __future__ import annotations

import sys

from lab.errors import LabError
from lab.paths import Lab
from lab.vllm_cpu import environment


def main() -> int:
    """Exit status 1 with what to do, where it cannot be made."""
    lab = Lab.from_environment()
    try:
        environment.make(lab)
    except LabError as error:
        print(f"error: {error.what}\nfix: {error.fix}", file=sys.stderr)
        return 1
    print(environment.python_of(lab))
    return 0


if __name__ == "__main__":
    sys.exit(main())
