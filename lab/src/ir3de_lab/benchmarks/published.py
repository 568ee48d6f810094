"""The published fit as published: every token's embedding goes through the Gram product, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def batchwise_fit(
    domains: Sequence[npt.NDArray[np.int64]], embeddings: npt.NDArray[np.float32], batch: int = 16 * 1_024
) -> str:
    """Fit W = (A + λI)⁻¹B in float32 from the token ids of each domain; the library that did it is returned.

    Batches of 16 prompts of 1,024 tokens; torch if it is there, otherwise the same products in numpy.
    """
    try:
        import torch
    except ImportError:
        _fit_numpy(domains, embeddings, batch)
        return "numpy"
    with torch.no_grad():
        table = torch.nn.Embedding.from_pretrained(torch.from_numpy(np.array(embeddings)))
        width = embeddings.shape[1] + 1
        A, B = torch.zeros(width, width), torch.zeros(width, len(domains))
        for c, ids in enumerate(domains):
            for tokens in torch.from_numpy(ids).split(batch):
                x = torch.cat([table(tokens), torch.ones(len(tokens), 1)], dim=1)
                y = torch.nn.functional.one_hot(torch.full((len(tokens),), c), len(domains)).float()
                A += x.T @ x
                B += x.T @ y
        W = torch.linalg.solve(A + 1e-2 * torch.eye(width), B)
        W /= W[:-1].norm(dim=0)
    return "torch"


def _fit_numpy(domains: Sequence[npt.NDArray[np.int64]], embeddings: npt.NDArray[np.float32], batch: int) -> None:
    width = embeddings.shape[1] + 1
    A, B = np.zeros((width, width), np.float32), np.zeros((width, len(domains)), np.float32)
    for c, ids in enumerate(domains):
        for begin in range(0, len(ids), batch):
            tokens = ids[begin : begin + batch]
            x = np.c_[embeddings[tokens], np.ones(len(tokens), np.float32)]
            y = np.zeros((len(tokens), len(domains)), np.float32)
            y[:, c] = 1.0
            A += x.T @ x
            B += x.T @ y
    W = np.linalg.solve(A + np.float32(1e-2) * np.eye(width, dtype=np.float32), B)
    W /= np.linalg.norm(W[:-1], axis=0)
