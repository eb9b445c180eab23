"""What `wdspec croissant` writes: a spec as metadata for catalogues, in MLCommons' Croissant 1.1.

An explanation of the spec goes in, plain JSON-LD comes out (`croissant_document.py`); `responsible_ai.py` reads what
only people know.
"""
