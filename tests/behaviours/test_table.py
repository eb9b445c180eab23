"""The tests of each of the 40 required behaviours: its number is in their names; others are named here."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ALSO = {
    1: ["formats/test_keys.py::test_a_name_splits_at_the_first_dot_of_its_base"],
    5: ["urls/test_sequence.py::test_texts_are_split_at_double_colons_and_then_expanded"],
    7: ["formats/test_samples.py::test_hard_links_are_resolved"],
    13: ["formats/test_damage.py::test_a_truncation_anywhere_is_an_error_after_complete_samples"],
    14: ["formats/test_damage.py::test_a_truncated_shard_never_merges_with_the_next"],
    15: ["stores/test_pipe.py::test_the_exit_status_is_always_checked_even_if_late"],
    17: ["urls/test_rewrite.py::test_rules_rewrite_as_in_the_table"],
    20: ["cache/test_cache_names.py::test_urls_with_the_same_file_name_have_different_copies"],
    22: ["cache/test_reading.py::test_what_is_no_whole_shard_is_read_as_it_is_and_leaves_nothing"],
    23: ["cache/test_reading.py::test_the_directory_stays_within_the_limit_and_keeps_recent_copies"],
    24: ["fields/test_images.py::test_every_image_spec_returns_the_same_as_webdataset"],
    38: ["run/test_any_topology.py::test_random_specs_read_the_same_on_any_topologies"],
    40: ["write/test_tar_writer.py::test_a_killed_writer_leaves_no_file_with_the_final_name"],
}


def behaviours():
    """number → tests that keep it."""
    table = {number: list(ids) for number, ids in ALSO.items()}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in re.findall(r"^def (test_(\d\d)_\w+)", path.read_text(), re.MULTILINE):
            table.setdefault(int(name[1]), []).append(f"behaviours/{path.name}::{name[0]}")
    return table


def test_every_behaviour_has_its_own_test_here():
    own = {number for number, ids in behaviours().items() if any(id.startswith("behaviours/") for id in ids)}
    assert own == set(range(1, 41))


def test_every_listed_test_exists():
    for ids in behaviours().values():
        for id in ids:
            path, _, name = id.partition("::")
            assert re.search(rf"def {name}\b", (TESTS / path).read_text()), id
