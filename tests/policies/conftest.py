"""Policies and specs as text, and what `wdspec validate` says about them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from wdspec.cli.main import cli


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WDSPEC_ENV", "WDS_SECURE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def validate(here):
    """Run `wdspec validate`; returns the exit code and the problems."""

    def run(*arguments):
        done = CliRunner().invoke(
            cli, ["validate", "--format", "json", *map(str, arguments)], standalone_mode=False
        )
        if done.exception is not None:
            raise done.exception
        return done.return_value, json.loads(done.stdout)

    return run


@pytest.fixture
def findings(here, validate):
    """What a policy says about a spec: `(code, line, column, message)` for each problem."""

    def run(policy, spec, *options, name="spec.yaml"):
        (here / "policy.yaml").write_text(policy)
        (here / name).write_text(spec)
        _, problems = validate("--policy", "policy.yaml", *options, name)
        return [(each["code"], each["line"], each["column"], each["message"]) for each in problems]

    return run
