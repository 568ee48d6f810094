"""Tokenizer and matrix together: the bundled default, a local folder, a hub id, a GGUF file."""

from ir3de.embeddings.embedding import Embedding
from ir3de.embeddings.matrix import Matrix
from ir3de.embeddings.proof import Proof
from ir3de.embeddings.tokenizer import Tokenizer

__all__ = ["Embedding", "Matrix", "Proof", "Tokenizer"]
