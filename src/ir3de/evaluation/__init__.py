"""How well a router does: accuracy, robustness, quality against cost, replayed traffic, thresholds."""
