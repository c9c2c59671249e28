"""Benchmark data sets: which there are, where they are on this machine, and how to download them.

`registry` has the names, counts, checksums and sources (`datasets.yaml`) and finds a data set in `$PLOGICNET_DATA` or
in the cache. `download` downloads one into the cache.
"""
