"""Files of graphs: reading triples in every format, numbering them, writing them.

`unpacking` opens files within bounds of memory, `readers` turns them into tables of names, `dictionaries` reads
numbered names and labels, `sources` makes a graph from files or from data in memory, `questions` reads triples and
queries about a graph, `writers` writes a graph.
"""
