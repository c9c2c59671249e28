"""Training: the EM loop, its state, its hooks and its cost."""
