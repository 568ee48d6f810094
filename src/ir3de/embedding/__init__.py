"""Tokenizer and matrix together: the bundled default, a local folder, a hub id, a GGUF file."""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.embedding.embedding import Embedding
    from ir3de.embedding.matrix import Matrix
    from ir3de.embedding.proof import Proof
    from ir3de.embedding.tokenizer import Tokenizer
else:
    __getattr__, __dir__ = export_lazily(
        __name__, {"embedding": "Embedding", "matrix": "Matrix", "proof": "Proof", "tokenizer": "Tokenizer"}
    )

__all__ = ["Embedding", "Matrix", "Proof", "Tokenizer"]
