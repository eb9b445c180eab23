"""The words of the language: which keys there are, what values they take, what each means.

Read `values.py` first, which has the kinds of values and the base class of all models. `options.py`, `samples.py`,
`batch.py`, `expect.py` and `locations.py` define the models inside a spec; `Spec` and `Source` are in `../spec.py`. A
field with a description is a key, and its description is used for the reference and the JSON Schema.
"""
