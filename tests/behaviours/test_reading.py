"""Behaviours 1 to 18: from URLs to samples."""

import os
import pickle
import tarfile

import pytest

import wdspec as wds
from wdspec import ShardError, UrlError


def keys(samples):
    return [sample["__key__"] for sample in samples]


def fields(sample):
    return {name: value for name, value in sample.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    ("name", "key", "suffix"),
    [
        ("a.jpg", "a", "jpg"),
        ("a.b.jpg", "a", "b.jpg"),
        ("d.x/a.jpg", "d.x/a", "jpg"),
        ("some/path/22.0/1.1.png", "some/path/22.0/1", "1.png"),
        ("./a.jpg", "./a", "jpg"),
        ("a..jpg", "a", ".jpg"),
        ("a.", "a", ""),
        ("noext", None, None),
        ("d.x/noext", None, None),
        (".hidden", None, None),
        (".hidden.jpg", None, None),
        ("d/.h.jpg", None, None),
    ],
)
def test_01_names_split_at_the_first_dot_of_the_base(tar, name, key, suffix):
    samples = list(wds.WebDataset(tar((name, b"x")), empty_check=False))
    assert samples == (
        [] if key is None else [{"__key__": key, "__url__": samples[0]["__url__"], suffix: b"x"}]
    )


def test_02_adjacent_files_with_one_key_are_a_sample(tar):
    url = tar(("a.JPG", b"1"), ("a.cls", b"2"), ("b.jpg", b"3"), ("b.cls", b"4"))
    samples = list(wds.WebDataset(url))
    assert [list(sample) for sample in samples] == [["__key__", "__url__", "jpg", "cls"]] * 2
    assert samples[0]["__url__"] == url


def test_03_urls_are_joined_by_colons_and_keys_never_merge_across_shards(x_tgz, tar):
    assert len(list(wds.WebDataset(f"{x_tgz}::{x_tgz}"))) == 94
    one, other = tar(("a.jpg", b"1")), tar(("a.cls", b"2"))
    assert [fields(sample) for sample in wds.WebDataset([one, other])] == [{"jpg": b"1"}, {"cls": b"2"}]


def test_04_environment_variables_are_substituted(x_tgz, monkeypatch):
    monkeypatch.setenv("WDS_TESTDATA", os.path.dirname(x_tgz))
    assert len(list(wds.WebDataset("${TESTDATA}/x.tgz"))) == 47
    with pytest.raises(UrlError, match="WDS_NOWHERE, which is not set"):
        wds.WebDataset("${NOWHERE}/x.tgz")


def test_05_braces_expand_within_each_joined_url():
    assert len(wds.SimpleShardList("test-{000000..000099}.tar")) == 100
    assert [entry["url"] for entry in wds.SimpleShardList("a-{0..1}.tar::b.tar")] == [
        "a-0.tar",
        "a-1.tar",
        "b.tar",
    ]


def test_06_braces_expand_in_lists_too():
    assert len(wds.SimpleShardList(["x-{0..3}.tar"])) == 4


def test_07_members_without_a_key_are_skipped_and_hard_links_resolved(tar):
    url = tar(
        ("__index__/x.json", b"1"),
        ("__meta__", b"2"),
        ("d", "", tarfile.DIRTYPE),
        ("x.__m__", b"3"),
        ("x.txt", b"4"),
        ("x.copy", "x.txt", tarfile.LNKTYPE),
    )
    (sample,) = wds.WebDataset(url)
    assert (sample["__key__"], fields({**sample, "m": sample["__m__"]})) == (
        "x",
        {"m": b"3", "txt": b"4", "copy": b"4"},
    )
    with pytest.raises(ShardError, match=r"a symbolic link to 'x\.txt' is in place of a file"):
        list(wds.WebDataset(tar(("x.txt", b"4"), ("x.link", "x.txt", tarfile.SYMTYPE))))


def test_08_macos_finder_files_are_not_samples(tar):
    assert keys(wds.WebDataset(tar(("d/._a.jpg", b"0"), ("d/.DS_Store", b"0"), ("d/a.jpg", b"1")))) == ["d/a"]


def test_09_a_duplicate_is_an_error_that_costs_one_sample(tar):
    url = tar(("a.jpg", b"1"), ("a.JPG", b"2"), ("b.jpg", b"3"))
    with pytest.raises(ShardError, match=r"duplicate.*t0\.tar.*a\.JPG"):
        list(wds.WebDataset(url))
    # The steps of 2021 keep the first file; the reader of whole samples gives no sample that is torn.
    steps = wds.DataPipeline([url], wds.url_opener, wds.tar_file_expander)
    grouped = steps.compose(wds.Processor(wds.group_by_keys, handler=wds.ignore_and_continue).stage)
    assert [fields(sample) for sample in grouped] == [{"jpg": b"1"}, {"jpg": b"3"}]
    assert keys(wds.WebDataset(url, handler=wds.ignore_and_continue)) == ["b"]


def test_10_interleaved_keys_are_an_error(tar):
    url = tar(("0.a", b"1"), ("1.a", b"2"), ("0.b", b"3"), ("1.b", b"4"))
    with pytest.raises(ShardError, match=r"has occurred before, and other keys since.*read as a sample"):
        list(wds.WebDataset(url))
    assert [fields(s) for s in wds.WebDataset(url, handler=wds.ignore_and_continue)] == [
        {"a": b"1"},
        {"a": b"2"},
    ]


def test_11_files_are_selected_and_renamed(x_tgz):
    selected = list(wds.WebDataset(x_tgz, select_files=lambda name: name.endswith(".png")))
    assert (len(selected), set(fields(selected[0]))) == (47, {"png"})
    renamed = wds.WebDataset(x_tgz, rename_files=lambda name: name.replace(".cls", ".txt")).decode(only="txt")
    assert [sample["txt"] for sample in renamed] == [f"{i}\n" for i in range(47)]


def test_12_a_truncated_archive_is_an_error_or_ends_quietly(x_tgz, tmp_path):
    cut = tmp_path / "cut.tgz"
    with open(x_tgz, "rb") as whole:
        cut.write_bytes(whole.read(2000))
    with pytest.raises(ShardError, match=r"cut\.tgz"):
        list(wds.WebDataset(str(cut)))
    assert 0 < len(list(wds.WebDataset(str(cut), handler=wds.ignore_and_stop))) < 47


@pytest.mark.parametrize("damage", ["boundary", "inside a header", "overwritten header"])
def test_13_a_damaged_archive_is_an_error_with_url_and_offset(tar, tmp_path, damage):
    url = tar(*((f"{i}.txt", b"x") for i in range(10)))
    with open(url, "rb") as file:
        data = bytearray(file.read())
    if damage == "boundary":
        del data[3 * 1024 :]
    elif damage == "inside a header":
        del data[3 * 1024 + 100 :]
    else:
        data[3 * 1024 : 3 * 1024 + 512] = b"?" * 512
    with open(url, "wb") as file:
        file.write(data)
    with pytest.raises(ShardError, match=r"url .*t0\.tar, byte 3072"):
        list(wds.WebDataset(url))
    for dataset in (wds.WebDataset(url), wds.WebDataset(url, select_files=bool), tarfile_to_samples(url)):
        with pytest.raises(tarfile.ReadError, match=r"byte 3072") as raised:  # as with webdataset
            list(dataset)
        copy = pickle.loads(pickle.dumps(raised.value))
        assert (type(copy), str(copy)) == (type(raised.value), str(raised.value))
        assert isinstance(copy, ShardError)


def tarfile_to_samples(url):
    return wds.DataPipeline([url], wds.tarfile_to_samples())


def test_14_the_rest_of_a_truncated_archive_never_merges_with_the_next(tar):
    first, second = tar(("a.jpg", b"1"), ("b.jpg", b"2")), tar(("b.cls", b"3"), ("c.cls", b"4"))
    with open(first, "rb+") as file:
        file.truncate(1024 + 512)
    samples = wds.WebDataset([first, second], handler=wds.ignore_and_continue)
    assert [(s["__key__"], fields(s)) for s in samples][-2:] == [("b", {"cls": b"3"}), ("c", {"cls": b"4"})]
    assert not any({"jpg", "cls"} <= set(s) for s in samples)


def test_15_a_failing_pipe_is_always_an_error(tar):
    url = tar(*((f"{i}.txt", b"x" * 600) for i in range(10)))
    for _ in range(5):
        with pytest.raises(ShardError, match="failed with exit status 7"):
            list(wds.WebDataset(f"pipe:head -c 2560 {url}; exit 7"))


def test_16_a_missing_file_is_an_error_when_it_is_read(tmp_path):
    dataset = wds.WebDataset(f"{tmp_path}/nowhere.tar")
    with pytest.raises(FileNotFoundError, match=r"has no `nowhere\.tar`"):
        list(dataset)


@pytest.mark.parametrize(
    ("rules", "url", "location"),
    [
        ("gs://=/shared/data/", "gs://b/o.tar", "/shared/data/b/o.tar"),
        ("gs://=/a/;gs://b=/c/", "gs://b/o.tar", "/a/b/o.tar"),
        (r"gs://(\w+)/=/mnt/\1/", "gs://bk/o.tar", "/mnt/bk/o.tar"),
        ("gs://b.c=/x", "gs://bXc/o.tar", "/x/o.tar"),
        ("gs://=/a/;", "gs://b/o.tar", "/a/b/o.tar"),
        (r"http://x/\?a\=b=/y", "http://x/?a=b", "/y"),
    ],
)
def test_17_urls_are_rewritten_by_rules(monkeypatch, rules, url, location):
    monkeypatch.setenv("WDS_REWRITE", rules)
    assert location_of(url) == location


def test_17_a_malformed_rule_is_named(monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", "gs://=/a/;noequals")
    with pytest.raises(UrlError, match="noequals"):
        wds.WebDataset("gs://b/o.tar")


def test_18_rules_reach_local_paths_and_commands_keep_their_scheme(monkeypatch, tar, tmp_path):
    tar(("a.txt", b"1"), name="real.tar")
    monkeypatch.setenv("WDS_REWRITE", f"/data/=file:{tmp_path}/")
    assert keys(wds.WebDataset("/data/real.tar")) == ["a"]
    monkeypatch.setenv("WDS_REWRITE", "gs://=pipe:ssh proxyhost gsutil cat gs://")
    assert location_of("gs://b/o.tar") == "pipe:ssh proxyhost gsutil cat gs://b/o.tar"


def location_of(url):
    """Where a dataset of one URL would read its bytes from."""
    dataset = wds.WebDataset(url)
    return dataset.stages[-1].args[0].storage.resolve(dataset.stages[0].urls[0]).location
