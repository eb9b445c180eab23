"""`ShardWriter`: shards of n samples or bytes, none of them empty."""

import io
import os
import re
import subprocess
import sys

import pytest

import wdspec
from wdspec import UsageError
from wdspec.formats.tar.reader import TarSamples


def write(pattern, samples, size=0, **options):
    with wdspec.ShardWriter(str(pattern), verbose=0, **options) as writer:
        for n in range(samples):
            writer.write({"__key__": f"{n:04d}", "bin": bytes(size), "cls": n})
    return writer


def counts(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(folder / name, "rb") as file:
            found[name] = sum(1 for _ in TarSamples(file))
    return found


def test_ten_samples_in_fours_fill_shards_of_4_4_and_2(tmp_path):
    write(tmp_path / "a-%03d.tar", 10, maxcount=4)
    assert counts(tmp_path) == {"a-000.tar": 4, "a-001.tar": 4, "a-002.tar": 2}


def test_fifty_samples_in_fives_fill_ten_shards(tmp_path):
    writer = write(tmp_path / "a-%06d.tar", 50, maxcount=5)
    assert len(counts(tmp_path)) == 10
    assert [(shard.samples, shard.name) for shard in writer.shards][-1] == (5, f"{tmp_path}/a-000009.tar")


def test_without_samples_no_file_is_written(tmp_path):
    write(tmp_path / "a-%d.tar", 0)
    assert os.listdir(tmp_path) == []


def test_no_shard_is_larger_than_maxsize_unless_one_sample_is(tmp_path):
    writer = write(tmp_path / "a-%d.tar", 40, size=3000, maxsize=50_000)
    sizes = [os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)]
    assert max(sizes) <= 50_000
    assert sizes == [shard.size for shard in writer.shards] or sorted(sizes) == sorted(
        s.size for s in writer.shards
    )
    assert len(sizes) < 8
    write(tmp_path / "b-%d.tar", 3, size=3000, maxsize=100)
    assert {name: n for name, n in counts(tmp_path).items() if name[0] == "b"} == {
        f"b-{n}.tar": 1 for n in range(3)
    }


def test_post_gets_each_shard_when_it_is_complete(tmp_path):
    seen = []

    def post(name):
        with open(name, "rb") as file:
            seen.append((os.path.basename(name), sum(1 for _ in TarSamples(file))))

    write(tmp_path / "a-%d.tar", 5, maxcount=2, post=post)
    assert seen == [("a-0.tar", 2), ("a-1.tar", 2), ("a-2.tar", 1)]


def test_numbers_start_at_the_given_number_and_the_suffix_compresses(tmp_path):
    write(tmp_path / "a-%d.tar.gz", 3, maxcount=2, start_shard=7)
    assert sorted(os.listdir(tmp_path)) == ["a-7.tar.gz", "a-8.tar.gz"]
    assert (tmp_path / "a-7.tar.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_an_opener_provides_the_files(tmp_path):
    files = {}

    class File(io.BytesIO):
        def close(self):
            self.whole = self.getvalue()
            super().close()

    def opener(name):
        files[name] = File()
        return files[name]

    write("a-%d.tar", 3, maxcount=2, opener=opener)
    assert [len(list(TarSamples(io.BytesIO(file.whole)))) for file in files.values()] == [2, 1]


def test_an_exception_removes_the_current_shard_and_keeps_earlier_ones(tmp_path):
    def fail():
        with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=2, verbose=0) as writer:
            for n in range(3):
                writer.write({"__key__": str(n), "cls": n})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert counts(tmp_path) == {"a-0.tar": 2}


def test_a_first_sample_that_cannot_be_written_leaves_no_empty_shard(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=1, verbose=0) as writer:
        for n in (0, 3.5, 2, 3.5):
            try:
                writer.write({"__key__": str(n).replace(".", "_"), "cls": n})
            except wdspec.FieldError:
                assert n == 3.5
    assert counts(tmp_path) == {"a-0.tar": 1, "a-1.tar": 1}


@pytest.mark.parametrize("pattern", ["a.tar", "a-%d-%d.tar", "100%-%d.tar", "a-%s-%q.tar"])
def test_a_pattern_has_one_number(pattern):
    with pytest.raises(wdspec.UsageError, match="write one `%d` or `%06d`"):
        wdspec.ShardWriter(pattern)


def test_two_writers_on_one_pattern_are_an_error(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", verbose=0) as first:
        first.write({"__key__": "a", "cls": 1})
        second = wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", verbose=0)
        with pytest.raises(wdspec.UsageError, match="another writer is writing this file now"):
            second.write({"__key__": "a", "cls": 1})
    second.abort()


def test_a_writer_fails_on_close_if_its_shard_was_replaced(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=1, verbose=0) as first:
        first.write({"__key__": "a", "cls": 1})
        first.write({"__key__": "b", "cls": 1})
        with wdspec.TarWriter(f"{tmp_path}/a-0.tar") as second:
            second.write({"__key__": "c", "cls": 1})
        with pytest.raises(wdspec.UsageError, match=r"another writer has replaced this file.*a-0\.tar"):
            first.close()


def test_a_writer_does_not_replace_a_file_finished_by_another(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar", maxcount=1, verbose=0) as first:
        first.write({"__key__": "a", "cls": 1})
        with wdspec.TarWriter(f"{tmp_path}/a-1.tar") as second:
            second.write({"__key__": "c", "cls": 1})
        with pytest.raises(wdspec.UsageError, match="another writer has written this file meanwhile"):
            first.write({"__key__": "b", "cls": 1})
    assert counts(tmp_path) == {"a-0.tar": 1, "a-1.tar": 1}


def test_processes_with_their_own_patterns_write_at_once(tmp_path):
    code = (
        "import sys, wdspec\n"
        f"with wdspec.ShardWriter({str(tmp_path)!r} + '/' + sys.argv[1] + '-%d.tar', maxcount=10, verbose=0) as w:\n"
        "    for n in range(35): w.write({'__key__': f'{sys.argv[1]}{n}', 'cls': n})"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, f"w{n}"]) for n in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    found = counts(tmp_path)
    assert len(found) == 12
    assert sum(found.values()) == 105


def test_each_shard_is_reported_on_standard_error_and_nothing_on_standard_output(tmp_path, capsys):
    with wdspec.ShardWriter(f"{tmp_path}/a-%d.tar") as writer:
        writer.write({"__key__": "a", "cls": 1})
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err == f"wrote {tmp_path}/a-0.tar: 1 samples, 0.0 MB\n"


def test_processes_on_one_pattern_never_mix_their_samples(tmp_path):
    code = (
        "import sys, wdspec\n"
        f"with wdspec.ShardWriter({str(tmp_path)!r} + '/a-%d.tar', maxcount=10, verbose=0) as w:\n"
        "    print('ready', flush=True); sys.stdin.readline()\n"
        "    for n in range(300): w.write({'__key__': f'{sys.argv[1]}-{n}', 'bin': bytes(20_000)})"
    )
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"w{n}"], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for n in range(3)
    ]
    for process in running:
        process.stdout.readline()
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=280)[1] for process in running]
    codes = [process.returncode for process in running]
    # Processes that ran one after the other may have replaced finished shards; those that met got an error.
    assert all("another writer" in text for text, code in zip(said, codes, strict=True) if code)
    for name in os.listdir(tmp_path):
        with open(tmp_path / name, "rb") as file:
            writers = {sample["__key__"].split("-")[0] for sample in TarSamples(file)}
        assert len(writers) == 1


def test_a_shard_that_no_writer_can_write_leaves_nothing_open(tmp_path):
    opened = []

    def opener(name):
        opened.append((tmp_path / name).open("wb"))
        return opened[-1]

    for options in ({"format": "nosuch"}, {"compress": "rar"}, {"nosuch": 1}):
        writer = wdspec.ShardWriter("a-%d.tar", opener=opener, verbose=0, **options)
        with pytest.raises(wdspec.WdspecError):
            writer.write({"__key__": "a", "txt": "b"})
        assert opened.pop().closed


def test_a_shard_that_no_writer_can_write_leaves_no_file(tmp_path):
    from wdspec.stores.outputs import LocalOutput
    from wdspec.write.shard_writer import open_writer

    for options in ({"format": "nosuch"}, {"compress": "rar"}, {"nosuch": 1}):
        with pytest.raises(wdspec.WdspecError):
            open_writer(LocalOutput(str(tmp_path / "a.tar")), name="a.tar", **options)
        assert not os.listdir(tmp_path)


def write_all(folder, count, **options):
    with wdspec.ShardWriter(f"{folder}/a-%06d.tar", maxcount=1, verbose=0, **options) as writer:
        for n in range(count):
            writer.write({"__key__": f"{n}", "cls": n})


@pytest.mark.parametrize("before", [3, 4, 5, 6, 7, 8, 9, 10, 17])
def test_shards_of_a_longer_earlier_run_do_not_stay_among_the_new_ones(tmp_path, before):
    write_all(tmp_path, before)
    left = before - 2
    what = re.escape(f"left {left} shard{'s' * (left > 1)} after it, up to {tmp_path}/a-{before - 1:06d}.tar")
    with pytest.raises(
        UsageError, match=rf"wrote {tmp_path}/a-000001.tar as its last .*{what}; .*overwrite=True"
    ):
        write_all(tmp_path, 2)
    assert len(list(tmp_path.iterdir())) == before, "nothing is deleted without a word"
    write_all(tmp_path, 2, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-000000.tar", "a-000001.tar"]


def test_overwrite_false_refuses_the_first_name_that_is_taken(tmp_path):
    write_all(tmp_path, 3)
    with pytest.raises(UsageError, match=r"a-000000\.tar"):
        write_all(tmp_path, 2, overwrite=False)


def test_shards_that_others_write_meanwhile_are_not_of_an_earlier_run(tmp_path):
    with wdspec.ShardWriter(f"{tmp_path}/a-%06d.tar", maxcount=1, verbose=0, overwrite=True) as writer:
        writer.write({"__key__": "0", "cls": 0})
        with wdspec.ShardWriter(f"{tmp_path}/a-%06d.tar", maxcount=1, verbose=0, start_shard=1) as other:
            other.write({"__key__": "1", "cls": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-000000.tar", "a-000001.tar"]
