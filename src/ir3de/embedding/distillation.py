"""Distil a sentence encoder into static vectors, one per token of its vocabulary, with model2vec."""

from __future__ import annotations

import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from ir3de.embedding.huggingface import load_folder
from ir3de.embedding.packaged_models import get_title, locate
from ir3de.embedding.parts import EmbeddingParts
from ir3de.errors import EmbeddingError, InputError, MissingExtraError

USUAL_WIDTH = 256


def distil(encoder: str, *, width: int = USUAL_WIDTH, device: str | None = None) -> EmbeddingParts:
    """The static embedding of a sentence encoder: each token's vector alone, by PCA, rare tokens weighing more.

    `encoder` is a folder, a hub id or a packaged model; `device` is where torch runs it ("cpu", "cuda").
    """
    if width < 1:
        raise InputError(f"the width of an embedding must be at least 1, found {width}")
    try:
        from model2vec.distill import distill
    except ImportError as error:  # model2vec itself, or what it needs to run encoders
        raise MissingExtraError("model2vec[distill,quantization]", "distil", "Distilling a sentence encoder") from error
    source = locate(encoder)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # the caller shows its own progress
            model = distill(source, pca_dims=width, device=device, quantize_to="float32")
    except (OSError, ValueError, RuntimeError) as error:
        first = " ".join(str(error).split()).rstrip(".")
        raise EmbeddingError(
            f"'{encoder}' cannot be distilled: {first}. It must be a sentence encoder that transformers can read: a "
            "folder with its weights and tokenizer, or a hub id"
        ) from error
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        model.save_pretrained(folder)
        return load_folder(Path(folder), tokenizer=None)._replace(name=f"{get_title(encoder)}, distilled")
