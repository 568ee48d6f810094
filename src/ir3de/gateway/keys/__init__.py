"""Who asks: the keys of clients."""
