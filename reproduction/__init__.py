"""Reproduction of the paper's tables: the training of each row, its results as JSON, and their comparison."""
