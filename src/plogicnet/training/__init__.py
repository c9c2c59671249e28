"""Training: the EM loop, its state, its callbacks, the choice of λ, and cost estimates."""
