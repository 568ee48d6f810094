"""Measurements that ship with the package. Each prints a table and keeps its raw figures."""
