"""Measurements that ship with the package: `speed`, `accuracy` and `rivals`. Each prints a table and keeps its raw figures."""
