"""Measurements that print tables: `python -m benchmarks.NAME`."""
