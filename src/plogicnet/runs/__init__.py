"""Run directories: their files, their integrity, the order of writing and reading, their life cycle."""
