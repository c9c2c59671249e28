"""The page and the REST interface of one run: read-only, bounded, by default for this machine alone."""
