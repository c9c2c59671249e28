"""Readers and writers of graphs, labels and questions."""
