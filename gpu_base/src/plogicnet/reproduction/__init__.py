"""The paper's tables, reproduced: which training makes which row, its results as data, and ours beside the printed."""
