"""Reading and writing graph files.

`unpacking` opens files with limited memory. `readers` reads triples as tables of names. `dictionaries` reads ids and
labels of names. `sources` creates a graph from files or from data in memory. `queries` reads triples and queries with
the names of a graph. `writers` writes a graph.
"""
