"""Files on disk: atomic writes, checked reads, tensors, and the ledger of changes."""
