"""Sentence encoders: from texts to vectors, with onnxruntime and without torch."""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.encoders.encoder import Encoder
else:
    __getattr__, __dir__ = export_lazily(__name__, {"encoder": "Encoder"})

__all__ = ["Encoder"]
