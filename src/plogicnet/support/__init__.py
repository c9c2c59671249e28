"""Shared utilities: errors, files, memory, numbers, progress, records and registries."""
