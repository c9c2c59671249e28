"""Metrics, filtered ranking, the best answers to queries, and calibration.

Import names from the modules of this package. All modules except `metrics`, `results` and `seeds` import torch.
"""
