"""Measurements that ship with the package: `speed` and `accuracy`. Each prints a table and keeps its raw figures."""
