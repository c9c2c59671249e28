"""The mixture: several neural models as one, with weights that are fitted on validation triples."""
