"""The search for good settings: the search space, the trials and their directory, and the search itself."""
