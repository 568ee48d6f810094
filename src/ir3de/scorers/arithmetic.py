"""The arithmetic of a fit that grows with the embedding: the product over its rows, the solve, and the scores.

It works block by block, so that no more than one block of E is in memory as float64. numpy does it, unless `using` sets
another `Arithmetic`:

    with using(TorchArithmetic("cuda"), progress=show):
        Router.fit(...)

Scores from torch differ from numpy's by at most `TOLERANCE` of the largest, because sums are taken in another order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, MissingExtraError

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]
F = TypeVar("F", np.float32, np.float64)
Progress: TypeAlias = "Callable[[str, int, int], None]"  # stage, rows done, rows in all

TRIALS = "trials"  # the stage that tuning reports
FITS = "fits, in %"  # that of discriminative fits, each of which has 100; all others report rows
BLOCK_ROWS = 4_096  # of E in one symmetric product: bounds the memory, and is enough for BLAS
CACHED_ROWS = 128  # of E converted to float64 at a time: they stay in the cache


class Rows(Protocol):
    """E (V, h) or some rows of it: an array, or an object that reads rows from a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any) -> npt.NDArray[np.float32]: ...


class Arithmetic(Protocol):
    """The operations that a fit needs, in float64."""

    @property
    def name(self) -> str:
        """Arithmetics whose results may differ in the last bits have different names."""

    def product(self, rows: Rows, counts: Floats, *, bias: bool = True, targets: bool = True) -> Floats:
        """Ẽᵀ diag(n) Ẽ, n = Σ_c n_c with n_c the columns of `counts` (V, C), Ẽ = [E, 1] with a `bias`, else E.

        With `targets`, Ẽᵀ n_c are C further columns (and rows) of the result.
        """

    def solve(self, A: Floats, B: Floats, penalty: float) -> Floats:
        """W = (A + λI)⁻¹B. A may be overwritten."""

    def apply(self, W: npt.NDArray[F], rows: Rows) -> npt.NDArray[F]:
        """S = Ẽ W: (V, C), in the precision of W."""


class NumpyArithmetic:
    """On this machine's processor, with numpy's own BLAS."""

    name = "numpy"

    def product(self, rows: Rows, counts: Floats, *, bias: bool = True, targets: bool = True) -> Floats:
        """With rows √n·[x, 1] and n_c/√n next to them, YᵀY holds Ẽᵀ diag(n) Ẽ and Ẽᵀ n_c at once."""
        h = rows.shape[1]
        width = h + bias
        columns = width + (counts.shape[1] if targets else 0)
        seen = np.flatnonzero(counts.any(axis=1))
        block = np.empty((min(BLOCK_ROWS, len(seen)), columns))  # reused: fresh pages cost as much as the sums
        G = np.zeros((columns, columns))
        with stage("product", len(seen)) as advance:
            for begin in range(0, len(seen), BLOCK_ROWS):
                for first in range(begin, min(begin + BLOCK_ROWS, len(seen)), CACHED_ROWS):
                    ids = seen[first : min(first + CACHED_ROWS, begin + BLOCK_ROWS)]
                    Y = block[first - begin : first - begin + len(ids)]
                    root = np.sqrt(counts[ids].sum(axis=1))[:, None]
                    np.multiply(rows[ids], root, out=Y[:, :h])
                    Y[:, h:width] = root
                    if targets:
                        np.divide(counts[ids], root, out=Y[:, width:])
                Y = block[: min(BLOCK_ROWS, len(seen) - begin)]
                G += Y.T @ Y
                advance(len(Y))
        return G

    def solve(self, A: Floats, B: Floats, penalty: float) -> Floats:
        with stage("solve", len(A)) as advance:
            A[np.diag_indices(len(A))] += penalty
            W = np.asarray(np.linalg.solve(A, B), np.float64)
            advance(len(A))
        return W

    def apply(self, W: npt.NDArray[F], rows: Rows) -> npt.NDArray[F]:
        h = rows.shape[1]
        S = np.empty((rows.shape[0], W.shape[1]), W.dtype)
        # E is in float32, and its blocks are as large as BLAS wants; those converted to float64 stay in the cache
        size = BLOCK_ROWS if W.dtype == np.float32 else CACHED_ROWS
        with stage("scores", len(S)) as advance:
            for begin in range(0, len(S), size):
                part = np.asarray(rows[begin : begin + size], W.dtype)
                np.dot(part, W[:h], out=S[begin : begin + size])
                advance(len(part))
        if len(W) > h:
            S += W[h]
        return S


class SelectedRows:
    """Some rows of E, read on access."""

    def __init__(self, rows: Rows, ids: Ids) -> None:
        self._rows, self._ids = rows, ids

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._ids), *self._rows.shape[1:])

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> npt.NDArray[np.float32]:
        return self._rows[self._ids[index]]


def select_rows(rows: Rows, ids: Ids) -> Rows:
    """Some rows of E: copied from an array, else read on access."""
    return rows[ids] if isinstance(rows, np.ndarray) else SelectedRows(rows, ids)


def softmax(scores: npt.NDArray[F]) -> npt.NDArray[F]:
    """Softmax along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers, scores.dtype)


_current: ContextVar[Arithmetic] = ContextVar("arithmetic")
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)
_stage_advance: ContextVar[Callable[[int], None] | None] = ContextVar("stage", default=None)

_fit_advance: ContextVar[Callable[[int], None]] = ContextVar("fits", default=lambda more: None)

_NUMPY = NumpyArithmetic()


def current() -> Arithmetic:
    """The arithmetic that fits use in this context."""
    return _current.get(_NUMPY)


@contextmanager
def using(arithmetic: Arithmetic | None = None, *, progress: Progress | None = None) -> Iterator[None]:
    """Fit with this arithmetic, and report every block to `progress`. None leaves a setting as it is."""
    arithmetic_token = _current.set(current() if arithmetic is None else arithmetic)
    progress_token = _progress.set(_progress.get() if progress is None else progress)
    try:
        yield
    finally:
        _current.reset(arithmetic_token)
        _progress.reset(progress_token)


@contextmanager
def stage(doing: str, rows: int) -> Iterator[Callable[[int], None]]:
    """Report the progress of one stage of a fit. A stage inside another one advances the outer stage."""
    if (outer := _stage_advance.get()) is not None:
        yield outer
        return
    report, done = _progress.get(), 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        if report is not None:
            report(doing, done, rows)

    token = _stage_advance.set(advance)
    try:
        advance(0)
        yield advance
    finally:
        _stage_advance.reset(token)


@contextmanager
def steps(doing: str, count: int) -> Iterator[Callable[[int], None]]:
    """Report the progress of several steps. The stages of their fits are not reported."""
    with stage(doing, count) as advance:
        token = _stage_advance.set(lambda more: None)
        try:
            yield advance
        finally:
            _stage_advance.reset(token)


@contextmanager
def fits(count: int) -> Iterator[None]:
    """Report the progress of so many discriminative fits."""
    with steps(FITS, 100 * count) as advance:
        token = _fit_advance.set(advance)
        try:
            yield
        finally:
            _fit_advance.reset(token)


def report_fit() -> Callable[[float], None]:
    """A function that takes the share of a discriminative fit that is done, from 0 to 1, and reports it."""
    advance, done = _fit_advance.get(), 0

    def report(share: float) -> None:
        nonlocal done
        now = max(done, int(100 * share))
        advance(now - done)
        done = now

    return report


TOLERANCE = 1e-8  # of the largest score
READER_THREADS = 4  # threads that read the next blocks of E while the device computes


class TorchArithmetic:
    """On a device of torch, in float64: "cuda", "cuda:1", "cpu". Blocks of E are streamed to the device."""

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
    """Fit on that device, or with numpy if it is None. A missing device raises an error at once."""
    return nullcontext() if device is None else using(TorchArithmetic(device))


def _find_device(torch: Any, device: str) -> Any:
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
