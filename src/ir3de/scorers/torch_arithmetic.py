"""The arithmetic of a fit in torch, on a GPU or CPU, in float64. Blocks of E are streamed to the device.

Scores differ from numpy's by at most `TOLERANCE` of the largest, because sums are taken in another order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, MissingExtraError
from ir3de.scorers.arithmetic import BLOCK_ROWS, F, Floats, Ids, Rows, stage, using

TOLERANCE = 1e-8  # of the largest score
READER_THREADS = 4  # threads that read the next blocks of E while the device computes


class TorchArithmetic:
    """On a device that torch has, in float64: "cuda", "cuda:1", "cpu"."""

    def __init__(self, device: str = "cuda") -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("torch", "torch", f"fitting on the device {device!r}") from error
        self._torch: Any = torch
        self._device = _find_device(torch, device)

    @property
    def name(self) -> str:
        return f"torch {self._device.type}"

    def product(self, rows: Rows, counts: Floats, *, bias: bool = True, targets: bool = True) -> Floats:
        torch, h = self._torch, rows.shape[1]
        width = h + bias
        columns = width + (counts.shape[1] if targets else 0)
        seen = np.flatnonzero(counts.any(axis=1))
        Y = torch.empty((min(BLOCK_ROWS, len(seen)), columns), dtype=torch.float64, device=self._device)
        G = torch.zeros((columns, columns), dtype=torch.float64, device=self._device)
        with stage("product", len(seen)) as advance:
            for ids, block in self._blocks(rows, seen):
                own = self._to_device(counts[ids])
                root = own.sum(dim=1, keepdim=True).sqrt_()
                part = Y[: len(ids)]
                part[:, :h] = block
                part[:, :h] *= root
                part[:, h:width] = root
                if targets:
                    part[:, width:] = own / root
                G.addmm_(part.T, part)
                advance(len(ids))
            found: Floats = G.cpu().numpy()
        return found

    def solve(self, A: Floats, B: Floats, penalty: float) -> Floats:
        with stage("solve", len(A)) as advance:
            left = self._to_device(A)
            left.diagonal().add_(penalty)
            W: Floats = self._torch.linalg.solve(left, self._to_device(B)).cpu().numpy()
            advance(len(A))
        return W

    def apply(self, W: npt.NDArray[F], rows: Rows) -> npt.NDArray[F]:
        h, weights = rows.shape[1], self._to_device(W).double()
        S = np.empty((len(rows), W.shape[1]), W.dtype)
        with stage("scores", len(S)) as advance:
            for ids, block in self._blocks(rows, np.arange(len(rows))):
                part = block.double() @ weights[:h]
                if len(W) > h:
                    part += weights[h]
                S[ids] = part.cpu().numpy()
                advance(len(ids))
        return S

    def _blocks(self, rows: Rows, ids: Ids) -> Iterator[tuple[Ids, Any]]:
        """Rows of E on the device, as floats of any kind, a block at a time, while the next blocks are being read."""
        read = getattr(rows, "as_stored", rows.__getitem__)  # float16 halves the bytes to send
        pending: deque[tuple[Ids, Future[npt.NDArray[Any]]]] = deque()
        with ThreadPoolExecutor(READER_THREADS, thread_name_prefix="ir3de-rows") as pool:
            for begin in range(0, len(ids), BLOCK_ROWS):
                some = ids[begin : begin + BLOCK_ROWS]
                pending.append((some, pool.submit(read, some)))
                if len(pending) > READER_THREADS:
                    done, block = pending.popleft()
                    yield done, self._to_device(block.result())
            for done, block in pending:
                yield done, self._to_device(block.result())

    def _to_device(self, array: npt.NDArray[Any]) -> Any:
        """A copy on the device, also on the CPU, because operations in place must not change the input."""
        if self._device.type == "cpu":
            return self._torch.tensor(array)
        return self._torch.from_numpy(np.require(array, requirements=("C", "W"))).to(self._device)


def on_device(device: str | None) -> AbstractContextManager[None]:
    """Fit on that device, or with numpy if it is None. A device that does not exist is refused at once."""
    return nullcontext() if device is None else using(TorchArithmetic(device))


def _find_device(torch: Any, device: str) -> Any:
    """The device, if torch has it."""
    do = "leave the device out to fit with numpy"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise InputError(f"no device {device!r}: it is 'cuda', 'cuda:1' and so on, or 'cpu'; or {do}")
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (found.index or 0) >= count:
            has = f"{count} CUDA devices" if count else "no CUDA device"
            raise InputError(f"no device {device!r}: torch {torch.__version__} finds {has} here; {do}")
    return found
