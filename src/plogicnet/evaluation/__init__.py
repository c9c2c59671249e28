"""Metrics, filtered ranking, the best answers to queries, and calibration.

Import from the modules: `metrics`, `figures` and `seeds` are light, the others import torch.
"""
