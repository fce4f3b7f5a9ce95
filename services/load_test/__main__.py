"""`python -m services.load_test`: all GPUs of a node multiply, read their memory and sum among each other, for a while.

Prints a line of what they reached, and ends with 1 where one is below a floor, differs from the others, or hangs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services.load_test.verdict import Floors, faults, summary


def main(arguments: Sequence[str]) -> None:
    """Test until the verdict is clear."""
    parser = argparse.ArgumentParser(prog="python -m services.load_test", description=__doc__)
    parser.add_argument("--gpus", type=int, required=True, help="that the node has")
    parser.add_argument("--tflops", type=float, required=True, help="least of a GPU, bf16, in TFLOP/s")
    parser.add_argument("--memory", type=float, required=True, help="least of a GPU that reads its memory, in GB/s")
    parser.add_argument("--all-reduce", type=float, required=True, help="least bus bandwidth of all together, in GB/s")
    parser.add_argument("--seconds", type=float, default=60, help="of multiplying; default: %(default)s")
    parser.add_argument("--matrix", type=int, default=8192, help="rows and columns; default: %(default)s")
    parser.add_argument("--mib", type=int, default=4096, help="that are read or summed at once; default: %(default)s")
    parser.add_argument("--patience", type=float, default=600, help="seconds until it hangs; default: %(default)s")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: %(default)s")
    parser.add_argument("--message", type=Path, help="file for the outcome, which the kubelet reads")
    given = parser.parse_args(arguments)
    # Only a pod of the engine's image has torch.
    from services.load_test.ranks import measure  # noqa: PLC0415

    floors = Floors(tflops=given.tflops, memory_gb_s=given.memory, all_reduce_gb_s=given.all_reduce)
    wrong: Sequence[str] = ()
    with tempfile.TemporaryDirectory() as folder:
        try:
            reached = measure(
                given.gpus,
                given.device,
                Path(folder),
                seconds=given.seconds,
                matrix=given.matrix,
                mebibytes=given.mib,
                patience_s=given.patience,
            )
            outcome, wrong = summary(reached), faults(reached, floors)
        except (RuntimeError, TimeoutError) as error:
            outcome, wrong = "", [str(error).strip().splitlines()[-1]]
    text = "; ".join([*wrong, outcome]).removesuffix("; ")
    if given.message:
        given.message.write_text(text)
    sys.exit(text) if wrong else print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
