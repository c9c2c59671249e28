"""Checks of graphs and runs."""
