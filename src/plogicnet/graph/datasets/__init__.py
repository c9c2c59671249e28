"""Benchmark data sets.

`registry` contains names, counts, checksums and sources (`datasets.yaml`) and finds a data set in `$PLOGICNET_DATA` or
in the cache. `download` downloads a data set into the cache.
"""
