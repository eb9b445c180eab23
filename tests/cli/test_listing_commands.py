"""`explain`, `simulate` and `resolve` list shards as training does, by the command of an `@pipe:` list too."""

import pytest
from commandline import within


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "listed.yaml"
    file.write_text(
        "dataset: [{shards: '@pipe:touch ran; echo a-000000.tar'}]\nbatch: 2\nepoch: {batches: 2}\n"
    )
    return file


@pytest.mark.parametrize("command", ["explain", "simulate", "resolve"])
def test_a_list_command_runs_except_in_secure_mode(spec, command):
    _, error = within(command, spec, folder=spec.parent, code=1, WDS_SECURE="1")
    assert "WDS_SECURE" in error
    assert not (spec.parent / "ran").exists()
    (spec.parent / "a-000000.tar").write_bytes(
        b""
    )  # `explain` minds that a shard is missing, not what is in it
    within(command, spec, folder=spec.parent)
    assert (spec.parent / "ran").exists()


@pytest.mark.parametrize("command", ["explain", "simulate", "resolve"])
def test_the_help_mentions_the_command(command):
    out, _ = within(command, "--help")
    assert "@pipe:" in out
    assert "WDS_SECURE=1" in out


def test_validating_never_runs_it(spec):
    within("validate", spec, folder=spec.parent)
    assert not (spec.parent / "ran").exists()
