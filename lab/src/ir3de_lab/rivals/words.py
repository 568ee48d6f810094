"""Words as scikit-learn counts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.rivals.interface import needed


def counted_words(texts: list[str], most: int, purpose: str, **options: Any) -> tuple[Any, Any]:
    """What turns texts into logarithmic counts of the most frequent words, and these texts' counts.

    The options are those of scikit-learn's TfidfVectorizer.
    """
    text = needed("sklearn.feature_extraction.text", extra="", purpose=purpose)
    vectorizer = text.TfidfVectorizer(sublinear_tf=True, max_features=most, dtype=np.float32, **options)
    try:
        return vectorizer, vectorizer.fit_transform(texts)
    except ValueError as error:  # no word of two letters in any text
        raise InputError(f"the training texts hold no words to count ({error}): give texts with words") from error
