"""One process for each GPU: NCCL among GPUs, and gloo where a machine has none, as in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.multiprocessing.spawn import ProcessException

from services.load_test.verdict import Reached

# Products are of whole numbers this small, whose sums of up to 2^18 are exact in fp32.
_LARGEST = 4
_REPEATS = 20
_POLL_S = 1.0


def measure(
    gpus: int, kind: str, folder: Path, *, seconds: float, matrix: int, mebibytes: int, patience_s: float
) -> list[Reached]:
    """What each GPU reached, in their order.

    kind: `cuda`, or `cpu` in tests. folder: empty, where the processes meet. Raises RuntimeError where one of them
    fails, TimeoutError where they hang.
    """
    if kind == "cuda" and (there := torch.cuda.device_count()) != gpus:
        raise RuntimeError(f"PyTorch finds {there} of {gpus} GPUs")
    given = (gpus, kind, str(folder), seconds, matrix, mebibytes, patience_s)
    running = processes.spawn(_rank, args=given, nprocs=gpus, join=False)
    deadline = time.monotonic() + patience_s
    try:
        while not running.join(timeout=_POLL_S):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the GPUs have not ended within {patience_s:.0f} s: one hangs")
    except ProcessException as error:
        raise RuntimeError(str(error)) from error
    finally:
        for process in running.processes:
            process.kill()
    reached: list[Reached] = torch.load(folder / "reached", weights_only=False)
    return reached


def _rank(
    rank: int, gpus: int, kind: str, folder: str, seconds: float, matrix: int, mebibytes: int, patience_s: float
) -> None:
    on_gpu = kind == "cuda"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
        # Else parts of a product may be added in bf16, which is not exact.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=gpus,
        timeout=timedelta(seconds=patience_s),
    )
    # First, as it heats the GPUs that the rest is measured on.
    tflops, checksum = _multiply(device, matrix, seconds)
    values = torch.ones(mebibytes * 2**20 // 4, device=device)
    took = _timed(device, values.sum)
    memory_gb_s = values.nbytes / took / 1e9
    all_reduce_gb_s, summed = _sum_among(device, values, gpus)
    own = Reached(
        tflops=tflops,
        memory_gb_s=memory_gb_s,
        all_reduce_gb_s=all_reduce_gb_s,
        checksum=checksum,
        summed=summed,
    )
    reached: list[Reached | None] = [None] * gpus
    dist.all_gather_object(reached, own)
    if rank == 0:
        torch.save(reached, f"{folder}/reached")
    dist.destroy_process_group()


def _multiply(device: torch.device, matrix: int, seconds: float) -> tuple[float, int]:
    """Mean TFLOP/s over the second half of the time, and a checksum of the last product."""
    random = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(-_LARGEST, _LARGEST + 1, (matrix, matrix), generator=random).to(device, torch.bfloat16)
        for _ in range(2)
    )
    product = left @ right
    half = time.monotonic() + seconds / 2
    rates: list[float] = []
    while time.monotonic() < half:
        _timed(device, lambda: torch.matmul(left, right, out=product))
    while not rates or time.monotonic() < half + seconds / 2:
        rates.append(2 * matrix**3 / _timed(device, lambda: torch.matmul(left, right, out=product)) / 1e12)
    # The bits of each number, as whole numbers that add up the same in any order.
    return sum(rates) / len(rates), int(product.view(torch.int16).to(torch.int64).sum())


def _sum_among(device: torch.device, values: torch.Tensor, gpus: int) -> tuple[float, bool]:
    """Bus bandwidth in GB/s, and whether the sum is right."""
    if gpus == 1:
        return 0.0, True
    dist.all_reduce(values)
    is_right = bool((values == gpus).all())
    values.zero_()
    took = _timed(device, lambda: dist.all_reduce(values))
    return 2 * (gpus - 1) / gpus * values.nbytes / took / 1e9, is_right


def _timed(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of one run, of some after another."""
    work()
    _wait(device)
    begun = time.monotonic()
    for _ in range(_REPEATS):
        work()
    _wait(device)
    return (time.monotonic() - begun) / _REPEATS


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
