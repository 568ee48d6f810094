"""What is counted of a domain: additive integers, a sample of prompts, and the files that hold them."""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.statistics.contributions import Contribution
    from ir3de.statistics.counting import Recipe, collect
    from ir3de.statistics.domain import PromptSums, Statistics, pair_buckets
    from ir3de.statistics.files import load_statistics, save_statistics
    from ir3de.statistics.sample import Sample
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "contributions": "Contribution",
            "counting": "Recipe collect",
            "domain": "PromptSums Statistics pair_buckets",
            "files": "load_statistics save_statistics",
            "sample": "Sample",
        },
    )

__all__ = [
    "Contribution", "PromptSums", "Recipe", "Sample", "Statistics", "collect", "load_statistics", "pair_buckets",
    "save_statistics",
]  # fmt: skip
