"""Benchmarks: each prints one table, or one JSON document with ``--json``; ratios are taken within one run."""
