"""`spec.formatting`: keys in the documented order, comments with the keys they belong to."""

import random
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from wdspec.spec.format import documented_keys, format_spec
from wdspec.spec.reference import reference_text
from wdspec.spec.schema import Document, SourceEntry

EXAMPLES = sorted(Path(__file__).parents[2].glob("examples/specs/*.yaml"))
BEFORE = """\
# about this file

dataset:
  # the scans
  - shards: a-{000..099}.tar  # many
    weight: 2
    # what it is called
    name: scans
    decode:
      jpg: rgb8   # eight bits
      json: json

  - {weight: 1, name: b, shards: "b.tar",
     tags: {z: 1, a: 2}}
  - dataset:
      - shards: x.tar
        name: x
    name: nested
# the size
batch: 32   
name: tryout

# version
wdspec: 1
description: |
  two  
  lines   

environments:
  far: {sources: {x: {shards: y.tar, weight: 2}}, epoch: 3, batch: 1}
epoch:
    batches: 5
# the end
"""  # noqa: W291
AFTER = """\
# about this file

# version
wdspec: 1
name: tryout
description: |
  two  
  lines   

dataset:
  # the scans
  # what it is called
  - name: scans
    shards: a-{000..099}.tar  # many
    weight: 2
    decode:
      jpg: rgb8   # eight bits
      json: json

  - {name: b, shards: "b.tar", weight: 1,
     tags: {z: 1, a: 2}}
  - name: nested
    dataset:
      - name: x
        shards: x.tar
# the size
batch: 32

epoch:
    batches: 5
environments:
  far: {sources: {x: {shards: y.tar, weight: 2}}, batch: 1, epoch: 3}
# the end
"""  # noqa: W291


def text_of(before):
    done = format_spec(before, "x.yaml")
    assert (done.problems, done.left) == ([], "")
    return done.text


def test_keys_move_with_their_comments_and_nothing_else_changes():
    assert text_of(BEFORE) == AFTER
    assert text_of(AFTER) == AFTER


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seed: 1\nwdspec: 1", "wdspec: 1\nseed: 1\n"),
        ("seed: 1   \n\n\n", "seed: 1\n"),
        ("", ""),
        ("# nothing\n\n", "# nothing\n"),
        ("seed: 1\nunknown: 2\nwdspec: 1\n", "wdspec: 1\nseed: 1\nunknown: 2\n"),
        ("seed: 1\nwdspec: 1 # v\n# end", "wdspec: 1 # v\nseed: 1\n# end\n"),
        ("{seed: 1, wdspec: 1}\n", "{wdspec: 1, seed: 1}\n"),
        ("{seed: 1, # s\n wdspec: 1}\n", "{seed: 1, # s\n wdspec: 1}\n"),
        ("? seed\n: 1\n? wdspec\n: 1\n", "? seed\n: 1\n? wdspec\n: 1\n"),
        ("seed: 1\nvars: {b: 1, a: 2}\n", "vars: {b: 1, a: 2}\nseed: 1\n"),
        ("seed: 1\nname: 'a\n\n  b'  \n", "name: 'a\n\n  b'\nseed: 1\n"),
        ("dataset:\n- shards: a\n  # n\n  name: b\n", "dataset:\n# n\n- name: b\n  shards: a\n"),
        ("mix:\n  # u\n  unit: batch\n  draw: even\n", "mix:\n  draw: even\n  # u\n  unit: batch\n"),
        (
            "batch: &b 3\nvars: {n: 1}\nepoch: *b\nwdspec: 1\n",
            "wdspec: 1\nvars: {n: 1}\nbatch: &b 3\nepoch: *b\n",
        ),
        (
            "dataset:\n  - &a {shards: x, name: y}\n  - *a\nwdspec: 1\n",
            "wdspec: 1\ndataset:\n  - &a {name: y, shards: x}\n  - *a\n",
        ),
        (
            "splits:\n  val: {dataset: [], batch: 1}\n  a: {}\nseed: 1\n",
            "seed: 1\nsplits:\n  val: {dataset: [], batch: 1}\n  a: {}\n",
        ),
    ],
)
def test_corner_cases(before, after):
    assert text_of(before) == after
    assert text_of(after) == after


def test_a_file_is_unchanged_if_moving_keys_would_break_it():
    alias = "epoch: &e 3\nbatch: *e\n"
    done = format_spec(alias, "x.yaml")
    assert (done.text, done.problems) == (alias, [])
    assert "an alias would be before its anchor" in done.left


@pytest.mark.parametrize(
    "broken", ["a: [1\n", "a: 1\na: 2\n", "- !!python/object:os.system x\n", "a: \x01\n"]
)
def test_invalid_yaml_is_reported_and_unchanged(broken):
    done = format_spec(broken, "x.yaml")
    assert done.text == broken
    assert done.problems


def test_keys_have_the_order_of_the_reference():
    page = reference_text()
    top, source = (
        re.search(rf"## {title}\n(.*?)\n## ", page, re.DOTALL)[1] for title in ("Top level", "A source")
    )
    assert re.findall(r"^\| `(\w+)`", top, re.MULTILINE) == [
        key for key in documented_keys(Document) if key != "sources"
    ]
    assert re.findall(r"^\| `(\w+)`", source, re.MULTILINE) == list(documented_keys(SourceEntry))


def shuffled(value, rng):
    if isinstance(value, dict):
        entries = [(key, shuffled(each, rng)) for key, each in value.items()]
        rng.shuffle(entries)
        return dict(entries)
    return [shuffled(each, rng) for each in value] if isinstance(value, list) else value


@given(st.sampled_from(EXAMPLES), st.integers(0, 10**6), st.sampled_from([None, True, False]))
@settings(max_examples=60, deadline=None)
def test_any_order_and_style_is_formatted_to_the_same_text(path, seed, flow):
    value = yaml.safe_load(path.read_text())
    wanted = text_of(yaml.dump(value, sort_keys=False, default_flow_style=flow, width=70))
    mixed = yaml.dump(
        shuffled(value, random.Random(seed)), sort_keys=False, default_flow_style=flow, width=70
    )
    done = text_of(mixed)
    assert yaml.safe_load(done) == value
    assert text_of(done) == done
    if flow is False:  # elsewhere lines break in other places, and names of one's own are in another order
        keys = [line.split(":")[0].strip(" -") for line in done.splitlines() if not line.startswith(" ")]
        assert keys == [
            line.split(":")[0].strip(" -") for line in wanted.splitlines() if not line.startswith(" ")
        ]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_comments_stay_with_their_keys(data):
    """Every key has a comment above it and one after it; they move with the key."""
    keys = data.draw(st.permutations(["wdspec", "name", "seed", "batch", "epoch", "limit", "allow"]))
    blanks = data.draw(st.lists(st.sampled_from(["", "\n", "\n\n"]), min_size=7, max_size=7))
    text = "".join(
        f"# above {key}\n{key}: 1 # after {key}\n{blank}" for key, blank in zip(keys, blanks, strict=True)
    )
    text = "# head\n\nvars: {}\n" + text
    done = text_of(text)
    assert sorted(done.split()) == sorted(text.split())
    for key in keys:
        assert f"# above {key}\n{key}: 1 # after {key}\n" in done
