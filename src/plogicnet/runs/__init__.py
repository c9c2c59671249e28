"""Run directories: files, checksums, reading, writing and life cycle."""
