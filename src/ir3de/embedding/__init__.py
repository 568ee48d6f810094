"""Tokenizer and matrix together: the bundled default, a local folder, a hub id, a GGUF file."""

from ir3de.embedding.embedding import Embedding
from ir3de.embedding.matrix import Matrix
from ir3de.embedding.proof import Proof
from ir3de.embedding.tokenizer import Tokenizer

__all__ = ["Embedding", "Matrix", "Proof", "Tokenizer"]
