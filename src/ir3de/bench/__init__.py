"""Measurements that ship with the package: `speed`, `accuracy`, `rivals`. Each prints a table and keeps raw figures."""
