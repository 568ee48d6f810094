"""The rivals IR3DE is compared with, one file a family, all of one interface: `fit(domains)`, then `route(texts)`."""

from ir3de_lab.rivals.interface import Baseline, Fitted

__all__ = ["Baseline", "Fitted"]
