"""`wdspec doctor`: this installation, this machine, its variables, and stores that answer."""

import json
import platform

import pytest
from commandline import NO_TORCH, wdspec, within
from shardmaking import write_source

from wdspec.cli.doctor import limits, set_variables
from wdspec.storage.environment import VARIABLES


@pytest.fixture
def spec(tmp_path):
    write_source(tmp_path, "here", 2, 3)
    path = tmp_path / "s.yaml"
    path.write_text(
        "dataset:\n"
        "  - {name: here, shards: here-*.tar, weight: 1}\n"
        "  - {name: gone, shards: gone-000.tar, weight: 1}\n"
        "  - {name: shut, shards: 'http://127.0.0.1:9/s.tar?sig=hush', weight: 1, errors: {retry: 1s}}\n"
    )
    return path


def doctor_report(*arguments, code=0, **variables):
    return json.loads(within("doctor", "--format", "json", *arguments, code=code, **variables)[0])


def test_versions_libraries_and_limits_are_shown():
    shown, _ = within("doctor")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.startswith(f"Python {platform.python_version()}") for line in lines)
    assert any(line.startswith("always ") and "pydantic" in line for line in lines)
    assert any(line.startswith("processors ") for line in lines)
    found = {(each["extra"], each["library"]): each["version"] for each in doctor_report()["libraries"]}
    assert found["torch", "torch"] is not None
    assert ("torchcodec", "torchcodec") in found
    assert not any(extra == "test" for extra, _ in found)


def test_it_works_without_torch():
    shown, _ = wdspec("doctor", before=NO_TORCH)
    assert "processors" in shown


def test_low_limits_come_with_advice(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    files = next(each for each in limits() if each.name == "open files")
    assert files.value == "256"
    assert "ulimit -n" in files.advice


@pytest.mark.parametrize(
    ("environ", "name", "advice"),
    [
        ({"WDS_REWRTE": "x"}, "WDS_REWRTE", "did you mean WDS_REWRITE?"),
        ({"AIS_ENDPIONT": "x"}, "AIS_ENDPIONT", "did you mean AIS_ENDPOINT?"),
        (
            {"WDS_REWRITE": "a=b", "GOPEN_REWRITE": "c=d"},
            "GOPEN_REWRITE",
            "it has no effect, since WDS_REWRITE is set",
        ),
        ({"AIS_ENDPOINT": "http://h"}, "AIS_ENDPOINT", "name other schemes in USE_AIS_FOR"),
        ({"USE_AIS_FOR": "s3"}, "USE_AIS_FOR", "AIS_ENDPOINT is not set"),
        ({"WDS_CACHE_SIZE": "much"}, "WDS_CACHE_SIZE", "much"),
        ({"AIS_ENDPOINT": "http://u:pw@h"}, "AIS_ENDPOINT", "has a user name or password"),
    ],
)
def test_misused_variables_come_with_advice(environ, name, advice):
    assert any(each.name == name and advice in each.advice for each in set_variables(environ))


def test_unused_schemes_produce_no_advice(tmp_path):
    (tmp_path / "s.yaml").write_text("wdspec: 1\ndataset: [{shards: ais://b/a.tar, errors: {retry: 0s}}]\n")
    variables = {"AIS_ENDPOINT": "http://127.0.0.1:9", "AIS_CONNECT_TIMEOUT": "1"}
    shown, _ = within("doctor", "s.yaml", folder=tmp_path, code=1, **variables)
    assert "USE_AIS_FOR" not in shown
    assert "name other schemes in USE_AIS_FOR" in within("doctor", **variables)[0]


def test_a_wrong_variable_exits_1_and_shows_everything_else():
    shown, _ = within("doctor", code=1, WDS_CACHE_SIZE="much")
    assert "processors" in shown
    assert "warning: WDS_CACHE_SIZE: " in shown


def test_secrets_in_variables_are_not_shown():
    environ = dict.fromkeys(VARIABLES, "https://u:hush@h/?sig=hush")
    shown = repr(
        list(set_variables({**environ, "AIS_AUTHN_TOKEN": "hush", "AIS_ENDPOINT": "http://u:hush@h"}))
    )
    assert "hush" not in shown
    assert "(set)" in shown


def test_a_shard_of_each_source_is_opened(spec):
    done = doctor_report(spec, code=1)["sources"]
    assert [(each["source"], each["shards"]) for each in done] == [("here", 2), ("gone", 1), ("shut", 1)]
    here, gone, shut = done
    assert here["error"] is None
    assert here["location"] == str(spec.parent / "here-000.tar")
    assert "no such file" in gone["error"].lower()
    assert "refuses the connection" in shut["error"]
    shown, said = within("doctor", spec, code=1)
    assert "2 sources of 3 cannot be read" in shown
    assert "hush" not in shown + said


def test_a_missing_temporary_folder_is_named(monkeypatch):
    def none_is_writable():
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", none_is_writable)
    (found,) = (each for each in limits() if each.name == "temporary folder")
    assert found.value == "none"
    assert "mount one, such as an `emptyDir` of Kubernetes, and name it in TMPDIR" in found.advice


def test_a_small_temporary_folder_and_little_shared_memory_are_named(monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 64 << 20}))
    advice = {each.name.partition(",")[0]: each.advice for each in limits()}
    assert "TMPDIR" in advice["temporary folder"]
    assert "--shm-size=8g" in advice["/dev/shm"]
    assert "kind: threads" in advice["/dev/shm"]
