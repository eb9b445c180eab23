"""A remedy keeps what the user wrote next to the fault: it names the part to change, not a whole value without it."""

import pytest
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import UsageError
from wdspec.spec.load import check

DATA = "dataset:\n  - {name: a, shards: a.tar%s}\n"


@pytest.fixture
def problems(tmp_path):
    def find(text, code):
        (tmp_path / "spec.yaml").write_text(text)
        (found,) = [each for each in check(str(tmp_path / "spec.yaml"))[1] if each.code == code]
        return found.hint

    return find


@pytest.mark.parametrize(
    ("epoch", "read"),
    [("{pass: drop, reshuffle: true}", [4]), ("{pass: drop}", [4])],
    ids=["reshuffled", "plain"],
)
def test_a_pass_that_is_too_short_is_padded_and_keeps_its_other_keys(tmp_path, epoch, read):
    write_shard(tmp_path / "a.tar", [(f"k{n}", {"txt": b"x"}) for n in range(3)])
    (tmp_path / "s.yaml").write_text(f"batch: 4\nepoch: {epoch}\n{DATA % ''}")
    with pytest.raises(UsageError, match="write `pass: pad` in `epoch`"):
        wdspec.plan(tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text(f"batch: 4\nepoch: {epoch.replace('drop', 'pad')}\n{DATA % ''}")
    with wdspec.loader(tmp_path / "s.yaml", num_workers=0) as loader:
        assert [len(batch["txt"]) for batch in loader] == read


@pytest.mark.parametrize("value", ["true", "false"])
def test_drop_last_in_an_epoch_names_the_values_of_pass(problems, value):
    hint = problems(
        f"batch: 4\nepoch: {{pass: pad, reshuffle: true, drop_last: {value}}}\n{DATA % ''}", "E201"
    )
    assert hint == "`pass: drop` leaves out an incomplete last batch, and `pass: pad` fills it with copies"


@pytest.mark.parametrize(
    ("errors", "hint"),
    [
        ("skip", "write a budget such as `errors: {max_rate: 0.001}`"),
        ("{skip: [shard, decode, map], log: skips.jsonl}", "add a budget such as `max_rate: 0.001`"),
    ],
)
def test_a_budget_is_added_to_the_policy_that_is_there(problems, errors, hint):
    assert problems(f"batch: 4\nerrors: {errors}\n{DATA % ''}", "W374") == hint


@pytest.mark.parametrize(
    ("epoch", "code", "hint"),
    [
        ("{samples: total, pass: drop}", "E207", "keep one; `samples: null` removes an inherited one"),
        ("{samples: total, reshuffle: true}", "E206", "add `pass: drop`"),
    ],
)
def test_a_total_that_cannot_be_there_is_no_wrong_number(problems, epoch, code, hint):
    text = f"batch: 4\nepoch: {epoch}\n{DATA % ', samples: 12'}"
    assert problems(text, code) == hint


@pytest.mark.parametrize(
    ("epoch", "kept"), [("{pass: pad}", "pad"), ("{pass: drop}", "drop"), ("pass", "drop")]
)
def test_a_random_pass_is_reshuffled_and_keeps_its_end(problems, epoch, kept):
    text = f"batch: 4\nepoch: {epoch}\n{DATA % ', shuffle: 100'}"
    hint = f"write `epoch: {{pass: {kept}, reshuffle: true}}` for training; remove it for evaluation"
    assert problems(text, "W412") == hint


@pytest.mark.parametrize(
    ("count", "shares"),
    [(2, "s0: …, s1: …"), (5, "s0: …, s1: …, s2: …, s3: …, …")],
)
def test_a_schedule_keeps_its_first_change(problems, count, shares):
    sources = "".join(f"  - {{name: s{n}, shards: a{n}.tar}}\n" for n in range(count))
    text = f"mix: {{schedule: [{{at: 500, shares: {{s0: 1}}}}]}}\ndataset:\n{sources}"
    hint = f"add a step at 0 with the shares of the start: `{{at: 0, shares: {{{shares}}}}}`"
    assert problems(text, "E313") == hint
