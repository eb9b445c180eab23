"""Of parameters that protect the same, only some are in the default run; `pytest -m long` runs the others."""

import pytest


def mostly_long(values, fast):
    """These values of a parameter, of which all but those in `fast` are long."""
    values, fast = list(values), list(fast)
    assert all(value in values for value in fast)
    return [
        value
        if value in fast
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in values
    ]
