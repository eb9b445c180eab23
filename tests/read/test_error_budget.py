"""When an error is a skip, and when there are too many: `ErrorBudget` compared with explicit arithmetic."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wdspec
from wdspec.base.errors import FieldError, ShardError, SpecError, StoreError, UsageError
from wdspec.read.error_budget import MIN_SAMPLES, ErrorBudget, is_mistake
from wdspec.spec.spec import Errors

CAUSES = ("shard", "decode", "map")


def chained(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(
    ("skip", "skipped"),
    [
        (False, ()),
        (True, ("shard", "decode")),
        ((), ()),
        (("map",), ("map",)),
        (CAUSES, CAUSES),
    ],
)
def test_an_error_is_skipped_only_if_the_spec_names_its_cause(skip, skipped, cause):
    budget = ErrorBudget(Errors(skip=skip), "s")
    if cause in skipped:
        budget(ValueError("x"), cause)
        assert budget.skipped == {{"shard": "D102", "decode": "D202", "map": "D203"}[cause]: 1}
    else:
        with pytest.raises(ValueError, match="x"):
            budget(ValueError("x"), cause)
        assert not budget.skipped


class CountedError(Exception):
    """Builds its text from numbers, and includes no place."""

    def __str__(self):
        return f"{len(self.args)} problems"


@pytest.mark.parametrize("error", [CountedError("a", "b"), ValueError("x"), KeyError("x"), FieldError("x")])
def test_each_skip_is_logged_with_its_url_and_its_key(error, caplog):
    ErrorBudget(Errors(skip=CAUSES), "s")(error, "map", url="a.tar", key="k7")
    (line,) = caplog.messages
    assert line.count("[source s, url a.tar, key k7]") == 1


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("kind", [SpecError, UsageError, StoreError, ImportError, ModuleNotFoundError])
def test_user_mistakes_are_raised_under_every_policy(kind, cause):
    budget = ErrorBudget(Errors(skip=CAUSES), "s")
    for error in (kind("x"), chained(FieldError("y"), kind("x"))):
        assert is_mistake(error)
        with pytest.raises(type(error)) as caught:
            budget(error, cause)
        assert caught.value is error
    assert not budget.skipped


@pytest.mark.parametrize(
    "error", [ShardError("x"), FieldError("x"), ZeroDivisionError(), OSError(), KeyError()]
)
def test_other_errors_are_not_user_mistakes(error):
    assert not is_mistake(error)
    assert not is_mistake(chained(ShardError("y"), error))


def test_an_error_gets_its_place():
    budget = ErrorBudget(Errors(skip=True), "s")
    error = FieldError("x", field="f")
    budget(error, "decode", url="u", key="k")
    assert error.place == {"field": "f", "source": "s", "url": "u", "key": "k"}


def within(errors, skips, delivered):
    """The rule from the docstring of the class, word for word."""
    if errors.max_count is not None and skips > errors.max_count:
        return False
    return errors.max_rate is None or skips <= int(errors.max_rate * max(delivered + skips, MIN_SAMPLES))


@given(
    max_count=st.none() | st.integers(0, 12),
    max_rate=st.none() | st.floats(0, 0.02),
    delivered=st.integers(0, 3000),
    skips=st.integers(1, 20),
)
def test_the_budget_is_exhausted_according_to_the_rule(max_count, max_rate, delivered, skips):
    errors = Errors(skip=True, max_count=max_count, max_rate=max_rate)
    budget = ErrorBudget(errors, "s")
    budget.delivered = delivered
    for number in range(1, skips + 1):
        if within(errors, number, delivered):
            budget(ShardError("bad"), "shard")
            continue
        with pytest.raises(
            wdspec.ShardError, match=f"^{number} errors exceed the budget of .*: D102 {number}"
        ):
            budget(ShardError("bad"), "shard")
        return


def test_a_new_budget_without_a_log_does_not_change_the_log(tmp_path):
    log = tmp_path / "skips.jsonl"
    budget = ErrorBudget(Errors(skip=True, log=str(log)), "s")
    budget(FieldError("x"), "decode", key="k")
    budget.without_log()(FieldError("y"), "decode")
    [line] = log.read_text().splitlines()
    assert json.loads(line) == {
        "source": "s",
        "code": "D202",
        "cause": "FieldError",
        "message": "x",
        "key": "k",
    }
