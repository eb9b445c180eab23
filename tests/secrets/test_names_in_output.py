"""Names in shards and specs cannot set the title of a terminal, or start a line that a CI runner obeys."""

import io
import json
import tarfile

import pytest
from commandline import within

FORGED = "b\n::error file=x.py::FORGED"
TITLE = "c\x1b]0;OWNED\x07"
BOO = """
def breaks(sample):
    raise ValueError("boo\\n::error file=x.py::FORGED \\x1b]0;OWNED\\x07")
"""
SKIPS = "errors: {skip: [shard, decode, map], max_rate: 1}\nbatch: 1\nepoch: 4\n"


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in (
            ("a.txt", b"ok"),
            (f"{FORGED}.txt", b"\xff\xfe"),
            (f"{TITLE}.txt", b"\xff\xfe"),
            ("d.txt", b"ok"),
            ("d.TXT", b"ok"),
            (f"e.{TITLE}", b"1"),
            (f"f.{FORGED.replace('.', '-')}", b"1"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    (tmp_path / "boo.py").write_text(BOO)
    (tmp_path / "s.yaml").write_text(f"dataset: [{{shards: x.tar}}]\n{SKIPS}")
    (tmp_path / "m.yaml").write_text(
        f"dataset: [{{shards: x.tar, extensions: txt, map: 'boo:breaks'}}]\n{SKIPS}"
    )
    (tmp_path / "e.yaml").write_text(
        '"da\\e]0;O\\ata": 3\ndataset: [{shards: x.tar, "b\\n::error file=x.py::FORGED": 2}]\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("check s.yaml --all", 1),
        ("check s.yaml --format github", 1),
        ("check m.yaml", 1),
        ("head s.yaml", 0),
        ("head m.yaml", 1),
        ("batch s.yaml --step 1", 0),
        ("explain s.yaml", 0),
        ("stats s.yaml", 0),
        ("ls x.tar", 1),
        ("validate e.yaml", 1),
        ("validate e.yaml --format github", 1),
        ("lock e.yaml", 1),
    ],
)
def test_names_are_escaped_in_output(folder, command, code):
    printed = "".join(within(*command.split(), folder=folder, code=code))
    assert printed
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert not any(line.lstrip().startswith("::error file=x.py") for line in printed.splitlines())


ODD = "x\u009b31m\u202etxt\u2028y"


@pytest.mark.parametrize(
    "command", ["validate --format sarif s.yaml", "validate --format json s.yaml", "croissant s.yaml"]
)
def test_documents_for_other_programs_have_no_invisible_characters(tmp_path, command):
    (tmp_path / "s.yaml").write_text(
        json.dumps({"name": ODD, "dataset": [{"name": ODD, "shards": f"{ODD}.tar", "extensions": "jpg;JPG"}]})
    )
    shown, _ = within(*command.split(), folder=tmp_path, code=0)
    assert all(each.isprintable() or each == "\n" for each in shown)
    found = json.loads(shown)
    assert "croissant" not in command or ODD in found["description"], "the values are the same"
