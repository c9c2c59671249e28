"""Run directories: their files, their integrity, their life cycle."""
