"""What every other package builds on: errors, files, memory, progress."""
