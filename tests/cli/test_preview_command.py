"""`wdspec preview`: one page that shows what a spec delivers, and loads and runs nothing."""

import base64
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from html.parser import HTMLParser

import numpy as np
import pytest
import soundfile
from commandline import within
from PIL import Image

import wdspec
from wdspec.cli.preview_media import BoxFormat, MediaBudget, list_values

SPEC = """\
name: two
dataset:
  - {name: pictures, shards: "pictures-{00..01}.tar", weight: 3, extensions: jpg cls boxes.npy, decode: {jpg: rgb8},
     rename: {image: jpg, boxes: boxes.npy}, scale: 2, map: "flips:flip"}
  - {name: texts, shards: texts-00.tar, weight: 1, extensions: txt json}
batch: 4
mix: {unit: batch}
epoch: 64
"""
HOSTILE = "</pre><script>alert(1)</script>"


def jpeg(width, height):
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), (200, 30, 30), np.uint8)).save(file, "jpeg")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for module in ("flips", "failing"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    boxes = np.array([[0.25, 0.25, 0.75, 0.75]], np.float32)
    with wdspec.ShardWriter(f"{tmp_path}/pictures-%02d.tar", maxcount=10, verbose=0) as writer:
        for n in range(20):
            writer.write({"__key__": f"p{n}", "jpg": jpeg(40, 30), "cls": n % 3, "boxes.npy": boxes})
    with wdspec.ShardWriter(f"{tmp_path}/texts-%02d.tar", maxcount=20, verbose=0) as writer:
        for n in range(12):
            writer.write({"__key__": f"t{n}", "txt": HOSTILE + "x" * n, "json": {"lang": "en"}})
    (tmp_path / "flips.py").write_text(
        "def flip(sample):\n    return {**sample, 'image': sample['image'][:, ::-1]}\n"
    )
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


class Seen(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def page(folder, *arguments, **options):
    out, _ = within("preview", *arguments, folder=folder, **options)
    return Seen((folder / "preview.html").read_text()), out


def test_the_page_shows_shares_batches_and_samples_before_and_after_transforms(folder):
    seen, out = page(folder, "spec.yaml", "-n", "2", "--samples", "12")
    assert re.match(r"preview\.html: [\d.]+ kB, no problems; open /.*/preview\.html in a browser\n", out)
    text = " ".join(seen.text.split())
    assert "an epoch is 64 samples" in text
    assert "75.00%" in text
    assert "a column is a global batch of 4." in text
    for heading in ("Mixture", "The first batch, as the training loop gets it", "pictures", "texts"):
        assert heading in text
    alts = [image["alt"] for image in seen.all("img")]
    assert len([alt for alt in alts if alt.startswith("jpg of p")]) == 2
    assert len([alt for alt in alts if alt.startswith("image of p")]) == 2
    assert "uint8 array, 60 x 80 x 3" in text, "as scaled"
    charts = [each["aria-label"] for each in seen.all("div") if each.get("role") == "img"]
    assert charts[1] == "size of a sample; longer side of an image; classes of cls, of 12 samples"
    assert charts[2] == "size of a sample; length of txt, of 12 samples"


def test_the_page_loads_and_runs_nothing_from_samples(folder):
    seen, _ = page(folder, "spec.yaml", "-n", "2", "--samples", "4")
    assert HOSTILE in seen.text
    assert not seen.all("script")
    assert any("default-src 'none'" in each.get("content", "") for each in seen.all("meta"))
    for tag, attributes in seen.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    ids = {each["id"] for _, each in seen.tags if "id" in each}
    assert {each["href"][1:] for each in seen.all("a")} <= ids
    assert all(image.get("alt") for image in seen.all("img"))


def test_an_unreadable_source_is_reported_and_the_others_are_shown(folder):
    shard = (folder / "texts-00.tar").read_bytes()
    (folder / "texts-00.tar").write_bytes(shard[:6000])
    (folder / "failing.py").write_text("def flip(sample):\n    raise ValueError('no wings')\n")
    (folder / "spec.yaml").write_text(SPEC.replace("flips:flip", "failing:flip"))
    seen, out = page(folder, "spec.yaml", "-n", "1")
    assert " problems; open " in out
    assert "ValueError: no wings" in seen.text
    assert "texts-00.tar" in seen.text
    assert "what follows in this shard cannot be read" in seen.text
    assert "jpg of p" in str(seen.all("img")), "the files are shown all the same"
    assert "Dropped, or not among the samples read." in seen.text


def test_steps_of_the_mix_and_skips_are_shown(folder):
    shard = bytearray((folder / "pictures-00.tar").read_bytes())
    shard[shard.index(b"\xff\xd8") : shard.index(b"\xff\xd8") + 2] = b"no"
    (folder / "pictures-00.tar").write_bytes(shard)
    keys = 'errors: skip\nmap: "flips:flip"\n'
    (folder / "spec.yaml").write_text(keys + SPEC.replace(', map: "flips:flip"', ', select: "flips:few"'))
    (folder / "flips.py").write_text(
        "def flip(sample):\n    return sample\ndef few(sample):\n    return sample['__key__'] != 'p3'\n"
    )
    seen, _ = page(folder, "spec.yaml", "-n", "1", "--samples", "18")
    assert "Skipped or dropped: D202 1, select 1." in seen.text
    assert "scale 2, select flips:few, map flips:flip" in seen.text
    assert re.search(r"Made by wdspec [\d.]+\w*, 20\d\d-\d\d-\d\d \d\d:\d\d UTC", seen.text)


def test_a_step_of_the_run_can_be_shown(folder):
    seen, _ = page(folder, "spec.yaml", "-n", "0", "--samples", "1", "--step", "20")
    text = " ".join(seen.text.split())
    assert "Batch 20, as the training loop gets it" in text
    assert "16 batches from number 20 on, a square for each sample" in text
    batches = within("batch", "spec.yaml", "--step", "20", "--format", "json", folder=folder)[0]
    assert json.loads(batches)["samples"][0]["key"] in text
    spec = re.sub(r"weight: \d, |mix: .*|extensions: [^,]*, decode.*|, extensions: txt json", "", SPEC)
    (folder / "spec.yaml").write_text(re.sub("epoch: 64", "epoch: pass", spec))
    seen, _ = page(folder, "spec.yaml", "-n", "0", "--samples", "1", "--step", "7")
    assert "1 batch from number 7 on" in " ".join(seen.text.split())
    _, said = within("preview", "spec.yaml", "--step", "8", folder=folder, code=1)
    assert "spec.yaml: a pass has 8 batches; choose a --step below 8" in said


def test_a_schedule_is_drawn_and_its_steps_are_listed(folder):
    steps = "[{at: 0, shares: {pictures: 1}}, {at: 40, shares: {texts: 3, pictures: 1}, ramp: linear}]"
    spec = (
        SPEC.replace("weight: 3, ", "")
        .replace("weight: 1, ", "")
        .replace("unit: batch", f"schedule: {steps}")
    )
    (folder / "spec.yaml").write_text(spec.replace("batch: 4\n", ""))
    seen, _ = page(folder, "spec.yaml", "-n", "0", "--samples", "1")
    words = "from sample 0: pictures 100.00%; by sample 40: pictures 25.00%, texts 75.00%"
    assert f"in the colors of the table: {words}." in seen.text
    assert [each for each in seen.all("div") if each.get("aria-label", "").endswith(words)]


def ends(folder):
    """The numbers on the x axis of the mixture of each spec."""
    charts = (folder / "preview.html").read_text().split('aria-label="Bar chart')[1:]
    return [re.findall(r">([\d.]+)</text>", chart.partition('id="matplotlib.axis_2"')[0]) for chart in charts]


def test_two_specs_are_shown_side_by_side(folder):
    (folder / "other.yaml").write_text(SPEC.replace("weight: 1", "weight: 9"))
    seen, _ = page(folder, "spec.yaml", "other.yaml", "-n", "0", "--samples", "4")
    assert len(seen.all("article")) == 2
    assert "75.00%" in seen.text
    assert "90.00%" not in seen.text
    old, new = ends(folder)
    assert old == new
    assert max(map(float, old)) == 80
    _, said = within("preview", "spec.yaml", "spec.yaml", "spec.yaml", folder=folder, code=2)
    assert "a page shows one spec, or two side by side, not 3" in said


def test_secure_mode_runs_no_function_of_the_spec(folder):
    _, said = within("preview", "spec.yaml", folder=folder, code=1, WDS_SECURE="1")
    assert "WDS_SECURE" in said
    assert not (folder / "preview.html").exists()


def test_no_secret_of_a_url_is_on_the_page(folder, monkeypatch):
    urls = [("__url__", ["http://me:s3cret@host/a.tar"])]
    monkeypatch.setattr("wdspec.cli.preview.first_batch", lambda spec, step: urls)
    page(folder, "spec.yaml", "-n", "0", "--samples", "2")
    text = (folder / "preview.html").read_text()
    assert "host/a.tar" in text
    assert "s3cret" not in text


def test_raw_files_are_not_checked_against_expect(folder):
    (folder / "spec.yaml").write_text(SPEC.replace("weight: 3,", "weight: 3, expect: {fields: {cls: int}},"))
    _, out = page(folder, "spec.yaml", "-n", "1", "--samples", "2")
    assert "no problems" in out


def test_media_beyond_the_size_limit_are_left_out():
    picture = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    sound = (np.zeros((1, 8000), np.float32), 8000)
    sample = {
        "__key__": "k",
        "image": picture,
        "film": np.stack([picture] * 9),
        "sound": sound,
        "mask": picture[..., 0],
    }
    image, film, wav, mask = list_values(sample, MediaBudget(10**6))
    assert [len(value.media) for value in (image, film, wav, mask)] == [1, 4, 1, 1]
    assert [medium.kind for value in (image, wav) for medium in value.media] == ["image", "audio"]
    assert film.media[3].alt == "film of k, 9 of 9"
    left_out = list_values(sample, MediaBudget(1000))
    assert not any(value.media for value in left_out)
    assert all(value.is_left_out for value in left_out)


def sound_file(kind):
    file = io.BytesIO()
    soundfile.write(file, np.zeros(800), 8000, format=kind)
    return file.getvalue()


def test_files_in_columns_are_shown_by_what_they_contain():
    film = b"\0\0\0\x20ftypisom" + bytes(20)
    sample = {
        "image": jpeg(40, 30),
        "audio": sound_file("FLAC"),
        "speech": sound_file("WAV"),
        "bytes": film,
        "mp4": film,
        "other": b"no medium",
        "txt": b"fLaC is a format",
    }
    shown = list_values(sample, MediaBudget(10**6))
    kinds = {value.name: [medium.kind for medium in value.media] for value in shown}
    video = ["video"]
    assert kinds == {
        "image": ["image"],
        "audio": ["audio"],
        "speech": ["audio"],
        "bytes": video,
        "mp4": video,
    } | {
        "other": [],
        "txt": [],
    }
    assert shown[3].media[0].data.startswith("data:video/mp4;base64,")


@pytest.mark.parametrize(
    ("form", "box"),
    [
        (BoxFormat("xyxy", relative=False), [40, 20, 120, 80]),
        (BoxFormat("xywh", relative=False), [40, 20, 80, 60]),
        (BoxFormat("cxcywh", relative=False), [80, 50, 80, 60]),
        (BoxFormat("xywh", relative=True), [0.1, 0.1, 0.2, 0.3]),
        (BoxFormat(), [0.1, 0.1, 0.3, 0.4]),
    ],
)
@pytest.mark.parametrize("is_first", [False, True], ids=["channels last", "channels first"])
def test_boxes_of_any_format_are_drawn_where_they_are(form, box, is_first):
    pixels = np.zeros((3, 200, 400) if is_first else (200, 400, 3), np.uint8)
    boxes = np.array([box], np.float32)
    image, _ = list_values({"image": pixels, "boxes": boxes}, MediaBudget(10**6), {"boxes": form})
    data = base64.b64decode(image.media[0].data.partition(",")[2])
    red = np.asarray(Image.open(io.BytesIO(data)))[..., 0].astype(int) > 100
    rows, columns = np.flatnonzero(red.any(1)), np.flatnonzero(red.any(0))
    found = np.array([columns[0], rows[0], columns[-1], rows[-1]]) * 400 / red.shape[1]
    assert np.abs(found - [40, 20, 120, 80]).max() < 6


def test_boxes_in_pixels_are_not_drawn_if_their_format_is_unknown():
    sample = {"image": np.zeros((200, 400, 3), np.uint8), "boxes": np.array([[40, 20, 120, 80]])}
    image, _ = list_values(sample, MediaBudget(10**6))
    data = base64.b64decode(image.media[0].data.partition(",")[2])
    assert not np.asarray(Image.open(io.BytesIO(data))).any()


def test_sounds_and_token_ids_are_described_by_what_matters():
    sample = {"sound": (np.zeros((2, 12000), np.float32), 8000), "ids": np.array([5, 17, 2])}
    sound, ids = list_values(sample, MediaBudget(10**6))
    assert sound.meaning[:2] == ("float32 array", "2 x 12000 at 8,000 Hz, 1.5 s")
    assert ids.text == "5 17 2"


@pytest.mark.parametrize("more", ["", "to_tuple: ids\n"])
def test_packed_rows_are_shown_with_the_boundaries_of_their_documents(folder, more):
    sizes = {f"texts/{n}": 2 + n % 3 for n in range(12)}
    lines = [json.dumps({"ids": [7] * size}) for size in sizes.values()]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    pack = "{fields: ids, length: 9, pad_to_multiple_of: 2}"
    spec = f"dataset: [{{name: texts, shards: texts.jsonl}}]\n{more}epoch: {{batches: 4}}\n"
    (folder / "spec.yaml").write_text(
        f"{spec}batch: {{cost: ids.length, max_cost: 8, window: 12, pack: {pack}}}\n"
    )
    seen, out = page(folder, "spec.yaml", "-n", "0")
    assert "no problems" in out
    rows = [each for each in seen.all("div") if each.get("class") == "packed"]
    assert len(rows) == 4
    for row in rows:
        pieces = [piece.rsplit(" ", 1) for piece in row["aria-label"].split(", ")]
        assert sum(int(size) for _, size in pieces) == 9
        documents = {key: int(size) for key, size in pieces if key != "padding"}
        assert documents
        assert documents.items() <= sizes.items()


def test_a_window_is_a_row_of_the_picture(folder):
    (folder / "spec.yaml").write_text(
        "dataset: [{shards: 'pictures-*.tar', extensions: cls}]\n"
        "batch: {cost: '1', max_cost: 4, window: 100}\nepoch: {batches: 30}\n"
    )
    seen, _ = page(folder, "spec.yaml", "-n", "0")
    (strip,) = [each for each in seen.all("img") if each.get("class") == "strip"]
    picture = Image.open(io.BytesIO(base64.b64decode(strip["src"].partition(",")[2])))
    assert picture.width == 100 * (picture.width // 100) > picture.height
    assert "a row is a window" in seen.text


@pytest.mark.parametrize(
    ("value", "has_picture"),
    [
        (np.zeros((3, 20, 30), np.float32), True),
        (np.full((20, 30), np.nan), True),
        (np.zeros((20, 30), bool), True),
        (np.zeros((5, 4)), False),
        (np.zeros((20, 30, 7)), False),
        (np.zeros((0, 20, 30, 3)), False),
        (b"no picture", False),
        (Image.new("CMYK", (300, 2)), True),
        ([], False),
    ],
    ids=["chw", "nan", "bool", "boxes", "seven channels", "no frames", "bytes", "cmyk", "list"],
)
def test_fields_without_a_picture_are_described_in_text(value, has_picture):
    (shown,) = list_values({"jpg": value}, MediaBudget(10**6))
    assert bool(shown.media) == has_picture
    assert shown.meaning.type


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_a_browser_renders_it(folder):
    page(folder, "spec.yaml", "-n", "2", "--samples", "4")
    shot = folder / "shot.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1400", f"--screenshot={shot}"]
    subprocess.run(
        ["chromium", *flags, (folder / "preview.html").as_uri()], check=True, capture_output=True, timeout=120
    )
    drawn = np.asarray(Image.open(shot).convert("RGB"))
    assert len(np.unique(drawn.reshape(-1, 3), axis=0)) > 100


def test_a_preview_shows_names_that_are_not_utf_8(folder):
    with tarfile.open(folder / "b.tar", "w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("caf\xe9.txt"))
    (folder / "b.yaml").write_text("wdspec: 1\ndataset:\n  - {name: b, shards: b.tar}\n")
    within("preview", "b.yaml", "-o", "b.html", folder=folder)
    assert "caf\\udce9" in (folder / "b.html").read_text(encoding="utf-8")
