"""The shards of a source: braces cost no I/O; globs and directories are spelt as in the spec."""

import os
import re
import warnings
from pathlib import Path

import pytest
from shardmaking import write_shard

import wdspec
from wdspec.base.errors import MissingShardError, ShardError, UrlError
from wdspec.shards import listing as lists
from wdspec.shards.listing import shards_of
from wdspec.spec.spec import Source
from wdspec.storage.environment import Environment
from wdspec.storage.storage import Storage


def source_of(shards, base):
    shards = [shards] if isinstance(shards, str) else shards
    return Source.model_validate({"name": "pages", "shards": shards, "base": str(base)})


def texts_of(shards, base, rewrite="", secure=""):
    environment = Environment.read({"WDS_REWRITE": rewrite, "WDS_SECURE": secure})
    sequence = shards_of(source_of(shards, base), Storage.of(environment))
    assert all(url.base == str(base) for url in sequence)
    return [url.text for url in sequence]


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def folder(tmp_path):
    touch(tmp_path, "b-1.tar", "b-0.tar", "a.tar", ".hidden.tar", "sub/c.tar", "sub/deep/d.tar", "notes.txt")
    return tmp_path


def test_braces_do_not_touch_the_disk(monkeypatch, tmp_path):
    few, many = source_of("x-{0..1}.tar", tmp_path), source_of("gs://b/a-{000000..999999}.tar", tmp_path)
    storage = Storage.of(Environment.read({}))
    with monkeypatch.context() as patch:
        for name in ("scandir", "listdir", "stat", "lstat", "open"):
            patch.setattr(os, name, None)
        assert [url.text for url in shards_of(few, storage)] == ["x-0.tar", "x-1.tar"]
        assert len(shards_of(many, storage)) == 1_000_000


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.tar", ["a.tar", "b-0.tar", "b-1.tar"]),
        ("b-?.tar", ["b-0.tar", "b-1.tar"]),
        ("b-[!0].tar", ["b-1.tar"]),
        (".*.tar", [".hidden.tar"]),
        ("*", ["a.tar", "b-0.tar", "b-1.tar", "list.txt", "notes.txt"]),
        ("**/*.tar", ["a.tar", "b-0.tar", "b-1.tar", "sub/c.tar", "sub/deep/d.tar"]),
        ("sub/**", ["sub/c.tar", "sub/deep/d.tar"]),
        ("**/**/d.tar", ["sub/deep/d.tar"]),
        ("s*/d*p/*", ["sub/deep/d.tar"]),
        ("*/c.tar", ["sub/c.tar"]),
        ("./s*/c.tar", ["./sub/c.tar"]),
        ("sub//*.tar", ["sub//c.tar"]),
        ("sub/../a*", ["sub/../a.tar"]),
        ("{b-*,a*}.tar", ["b-0.tar", "b-1.tar", "a.tar"]),
        ("b-*::x-{0..1}.tar::sub/", ["b-0.tar", "b-1.tar", "x-0.tar", "x-1.tar", "sub/c.tar"]),
        ("{sub/,a.tar,@list.txt}", ["sub/c.tar", "a.tar", "z.tar"]),
    ],
)
def test_globs_and_directories_are_listed_in_code_point_order(folder, pattern, expected):
    (folder / "list.txt").write_text("z.tar\n")
    assert texts_of(pattern, folder) == expected


def test_a_directory_lists_only_complete_visible_shards(tmp_path):
    wanted = ["A.TAR", "a.tar", "b.tar.gz", "b.tar.zst", "c.tgz", "d.tar.bz2", "e.txz", "é.tar", "\udce9.tar"]
    touch(
        tmp_path,
        *wanted,
        ".x.tar",
        "~x.tar",
        "x.tar.tmp",
        "x.tar~",
        "x.tar.part",
        "x.zip",
        "sub/x.tar",
        "d.tar/x",
    )
    assert texts_of(f"{tmp_path}/", "/") == [f"{tmp_path}/{name}" for name in sorted(wanted)]


def test_a_name_can_contain_any_characters(tmp_path):
    names = ["a b.tar", "a#?%20.tar", "new\nline.tar", "caf\udce9.tar", "[x].tar", "{y}.tar", "a::b.tar"]
    touch(tmp_path, *names)
    assert texts_of("*", tmp_path) == sorted(names)
    assert texts_of(f"file://{tmp_path}/*%20b*", "/") == [f"file://{tmp_path}/a%20b.tar"]
    assert texts_of(f"file://{tmp_path}/*%23*", "/") == [f"file://{tmp_path}/a%23%3F%2520.tar"]


def test_a_name_that_exists_is_taken_literally(tmp_path):
    touch(tmp_path, "a[1].tar", "a1.tar", "what?.tar", "whatx.tar", "d[1]/x.tar", "d1/y.tar")
    assert texts_of("a[1].tar", tmp_path) == ["a[1].tar"]
    assert texts_of("what?.tar", tmp_path) == ["what?.tar"]
    assert texts_of("d[1]/*", tmp_path) == ["d[1]/x.tar"]
    assert texts_of("a[[]1].tar::a[12].tar", tmp_path) == ["a[1].tar", "a1.tar"]
    assert texts_of(r"wha\?.tar", tmp_path) == ["wha?.tar"]


def test_shards_listed_under_a_rewritten_url_keep_the_original_url(folder):
    rewrite = f"gs://bucket/={folder}/"
    assert texts_of("gs://bucket/b-*.tar", "/", rewrite) == ["gs://bucket/b-0.tar", "gs://bucket/b-1.tar"]
    assert texts_of("gs://bucket/", "/", rewrite) == [f"gs://bucket/{n}.tar" for n in ("a", "b-0", "b-1")]
    assert texts_of("gs://bucket/**/d.tar", "/", rewrite) == ["gs://bucket/sub/deep/d.tar"]
    assert texts_of("gs://s*/c.tar", "/", f"gs://={folder}/") == ["gs://sub/c.tar"]


def test_a_rule_that_changes_the_names_in_a_listing_is_an_error(folder):
    for rewrite in (f"gs://b/.*={folder}/x.tar", rf"gs://b/(.*)\.tar={folder}/\1.tgz"):
        with pytest.raises(ShardError, match=r"the rule WDS_REWRITE rule 1: .* changes names"):
            texts_of("gs://b/*.tar", "/", rewrite)
    with pytest.raises(ShardError, match="changes names that a glob or directory must find"):
        texts_of("gs://b/*.tar", "/", f"gs://b/b={folder}/zzz;gs://b/={folder}/")


def test_a_glob_without_a_listing_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(
        ShardError, match=r"globs and directories cannot be listed there .*; write the shards out"
    ):
        texts_of("https://h/dir/", tmp_path)
    with pytest.raises(ShardError, match=r"no opener for vault://"):
        texts_of("@vault://b/list.txt", tmp_path)


@pytest.mark.parametrize(
    ("pattern", "kind", "message"),
    [
        ("c-*.tar", ShardError, "no file in `.*/` matches `c-.*`"),
        ("nowhere/*.tar", MissingShardError, "no such file: `.*` has no `nowhere`"),
        ("nowhere/", MissingShardError, "no such file: `.*` has no `nowhere`"),
        ("a.tar/", MissingShardError, "`.*/a.tar` is not a directory"),
        (
            "empty/",
            ShardError,
            "no shards among the 1 entries of the directory `.*/empty/`: .*tar.zst, .tar.zstd; for other names",
        ),
        (
            "loose/",
            ShardError,
            "no shards among the 2 entries of the directory `.*/loose/`: .*; for shards of its images or recordings "
            "`wdspec create .*/loose/ -o 'train-%06d.tar' --maxsize 1GB`",
        ),
        ("@missing.txt", MissingShardError, "no such file: `.*` has no `missing.txt`"),
        ("@", UrlError, "write the name of a text file"),
        ("@sub/", UrlError, "write the name of a text file"),
        ("x::a-{3..0}.tar", UrlError, "empty brace range: 3 > 0"),
        ("{0..9999999}/", UrlError, "10,000,000 globs, directories or lists; the limit is 1,000,000"),
    ],
)
def test_a_location_without_shards_is_an_error_that_names_the_source(folder, pattern, kind, message):
    touch(folder, "empty/readme.md")
    touch(folder, "loose/1.JPG")
    touch(folder, "loose/1.json")
    with pytest.raises(kind, match=message) as caught:
        texts_of(pattern, folder)
    assert caught.value.place["source"] == "pages"


def test_an_unreadable_directory_is_an_error_also_below_a_double_star(folder, monkeypatch):
    real = os.scandir

    def scandir(path):
        if str(path).rstrip("/").endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(ShardError, match=r"no permission to read it.*location .*/sub/deep/"):
        texts_of("**/*.tar", folder)


def test_directory_links_do_not_cause_cycles(folder):
    (folder / "sub" / "loop").symlink_to(folder)
    assert texts_of("**/d.tar", folder) == ["sub/deep/d.tar"]
    assert texts_of("sub/loop/a*", folder) == ["sub/loop/a.tar"]


def test_lines_of_a_list_are_expanded_and_relative_to_it(folder):
    content = "\ufeff# shards\r\n\r\n  sub/c.tar  \r\n/abs/x.tar\r\ngs://b/y.tar\r\nb-{0..1}.tar::../z.tar\r\nsub/\n"
    content += "{~/q,r}.tar\n./#s.tar"
    (folder / "list.txt").write_bytes(content.encode())
    expected = ["sub/c.tar", "/abs/x.tar", "gs://b/y.tar", "b-0.tar", "b-1.tar", "../z.tar", "sub/c.tar"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert texts_of("@list.txt", folder) == [*expected, "~/q.tar", "r.tar", "./#s.tar"]
        found = texts_of(f"@{folder.name}/list.txt", folder.parent)
    name = folder.name
    spelt = [f"{name}/sub/c.tar", "/abs/x.tar", "gs://b/y.tar", f"{name}/b-0.tar", f"{name}/b-1.tar"]
    assert found == [
        *spelt,
        f"{name}/../z.tar",
        f"{name}/sub/c.tar",
        "~/q.tar",
        f"{name}/r.tar",
        f"{name}/./#s.tar",
    ]


def test_a_list_can_be_a_rewritten_or_file_url(folder):
    (folder / "list.txt").write_text("a.tar\nb-*.tar\n")
    expected = [f"{folder}/a.tar", f"{folder}/b-0.tar", f"{folder}/b-1.tar"]
    assert texts_of(f"@file://{folder}/list.txt", "/") == expected
    assert texts_of("@gs://b/list.txt", "/", f"gs://b/={folder}/") == [
        "gs://b/a.tar",
        "gs://b/b-0.tar",
        "gs://b/b-1.tar",
    ]


def test_a_list_in_a_directory_with_special_characters_finds_its_shards(tmp_path):
    touch(tmp_path, "d[1]{a,b}/x.tar", "d1/x.tar")
    (tmp_path / "d[1]{a,b}" / "list.txt").write_text("*.tar\nx-{0..1}\n")
    assert texts_of(r"@d[1]\{a\,b\}/list.txt", tmp_path) == [
        "d[1]{a,b}/x.tar",
        "d[1]{a,b}/x-0",
        "d[1]{a,b}/x-1",
    ]


def test_lists_keep_names_that_are_not_utf8(tmp_path):
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.tar\n")
    assert texts_of("@list.txt", tmp_path) == ["caf\udce9.tar"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a.tar\nx-{3..0}.tar",
            "empty brace range: 3 > 0; .* [source pages, list @l.txt, line 2, url x-{3..0}.tar, column 3]",
        ),
        (
            b"a.tar\n\n@b.txt",
            "`@b.txt` is a list within a list; put its lines here [source pages, list @l.txt, line 3]",
        ),
        (b"no-*.tar", "no file in .* matches .* list @l.txt, line 1, url no-*.tar]"),
        (b"a.tar\nb\0c", "this list is a binary file; .* list @l.txt, line 2, location"),
        ("a.tar".encode("utf-16"), "this list is UTF-16, not UTF-8; .* line 1"),
        (b"a.tar\n" + b"x" * 70_000, "this list has a line of more than 65,536 bytes; .* line 2"),
        (b"# nothing\n\n", "no URL in this list; .* list @l.txt]"),
        (b"", "no URL in this list; .* list @l.txt]"),
    ],
)
def test_a_bad_list_is_an_error_with_its_line(tmp_path, content, message):
    (tmp_path / "l.txt").write_bytes(content)
    pattern = ".*".join(re.escape(piece) for piece in message.split(".*"))
    with pytest.raises((ShardError, UrlError), match=pattern):
        texts_of("@l.txt", tmp_path)


def test_a_huge_list_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MAX_BYTES", 100)
    (tmp_path / "l.txt").write_text("x.tar\n" * 20)
    with pytest.raises(ShardError, match=r"more than 100 bytes; .* line 17"):
        texts_of("@l.txt", tmp_path)


def test_a_shard_listed_twice_causes_a_warning_unless_written_twice(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert texts_of("x.tgz::x.tgz", folder) == ["x.tgz", "x.tgz"]
        assert len(texts_of(["b*", "b*"], folder)) == 4
    with pytest.warns(UserWarning, match="1 of the listed shards are found more than once, .* `b-0.tar`"):
        assert texts_of("b-*.tar::b-0*", folder) == ["b-0.tar", "b-1.tar", "b-0.tar"]


def test_forbidden_urls_are_rejected_before_reading(folder):
    with pytest.raises(UrlError, match="WDS_SECURE"):
        texts_of(["a.tar", "gs://b"], folder, "gs://=pipe:cat ", "1")


def test_a_long_list_is_stored_as_one_part(tmp_path):
    (tmp_path / "l.txt").write_text("".join(f"x-{i}.tar\n" for i in range(5000)))
    shards = shards_of(source_of("@l.txt", tmp_path), Storage.of(Environment.read({})))
    assert len(shards) == 5000
    assert len(shards.parts) == 1
    assert shards[4999].text == "x-4999.tar"


def test_an_html_page_instead_of_a_list_is_an_error(tmp_path):
    (tmp_path / "list.txt").write_text("\n".join(["<!DOCTYPE html>", "<html>log in</html>"]))
    with pytest.raises(ShardError, match="this list is an HTML or XML page") as caught:
        texts_of("@list.txt", tmp_path)
    assert caught.value.place["line"] == 1


def test_a_missing_remote_list_is_reported_with_the_server_message(nginx):
    with pytest.raises(MissingShardError, match="status 404") as caught:
        texts_of(f"@{nginx.url}/no-such-list.txt", "/")
    assert "rewrite:" in str(caught.value)


SPECIAL = [
    "a::b.tar",
    "x{1..3}.tar",
    "p[1].tar",
    "what?.tar",
    "all*.tar",
    "back\\slash.tar",
    "@list.tar",
    "pipe:cat.tar",
]


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("folder", ["", "sub"])
def test_a_path_of_pathlib_is_one_file_whatever_its_name(tmp_path, monkeypatch, name, folder):
    monkeypatch.chdir(tmp_path)
    path = Path(folder, name)
    write_shard(path, [("0", {"txt": b"right"})])
    for i, text in enumerate(["a", "b.tar", "x1.tar", "p1.tar", "list.tar"]):
        write_shard(path.parent / text, [(f"{i}", {"txt": b"wrong"})])
    for shards in (path, [path], tmp_path / path):
        [sample] = wdspec.WebDataset(shards)
        assert sample["txt"] == b"right"
        spec = {"wdspec": 1, "dataset": [{"shards": shards, "extensions": "txt"}], "epoch": "pass"}
        assert [sample["txt"] for sample in wdspec.compile(spec)] == ["right"]


def test_a_path_that_looks_like_a_pattern_and_does_not_exist_says_how_to_write_a_pattern(tmp_path):
    shards = tmp_path / "a-{0..3}.tar"
    with pytest.raises(
        UrlError, match=r"names one file, and there is no such file; pass a text, `str\(path\)`"
    ):
        wdspec.WebDataset(shards)
    with pytest.raises(wdspec.SpecError, match=r"E213 .*names one file.*str\(path\)"):
        wdspec.compile({"wdspec": 1, "dataset": [{"shards": [shards], "extensions": "txt"}]})
