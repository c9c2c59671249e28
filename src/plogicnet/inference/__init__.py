"""Using a trained model: prediction, explanation, evaluation, added facts and export."""
