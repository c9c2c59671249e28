"""The web page and the REST API of one run. Both are read-only and, by default, reachable only from this machine."""
