"""The words of the language: which keys there are, what values they take, what each means.

Values of a merged tree go in, frozen models come out, and mistakes become problems at the value's own position
(`validation.py`). Read `models.py` first: a field with a description is a key, and the descriptions are the reference
and the JSON Schema. `options.py`, `locations.py` and `aistore.py` hold the small models, `value_types.py` the kinds of
value, `vocabulary.py` the words that other rooms share.
"""
