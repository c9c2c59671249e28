"""Benchmark data sets: the registry and downloads."""
