"""The paper's tables, reproduced: the training behind each row, its results as JSON, and ours beside the printed."""
