"""What any implementation of a seam must do: neural models, engines, systems, metrics."""
