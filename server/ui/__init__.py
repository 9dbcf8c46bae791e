"""Pages for people: what the agent does, what it learns, and what people think of it.

A client of the public admin API and nothing else, in a process of its own. It imports no code of the gateway or the
journal, and serving cannot feel it. Pages are HTML from the server, charts are SVG, and one small script adds keys and
live figures. Nothing is loaded from elsewhere.
"""
