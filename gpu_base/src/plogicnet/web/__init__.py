"""The page and the REST interface of one run: read-only, bounded, and on this machine alone unless told otherwise."""
