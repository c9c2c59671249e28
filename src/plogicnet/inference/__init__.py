"""What a trained model answers: predictions, explanations, new facts, files."""
