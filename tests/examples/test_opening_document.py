"""The document that opens the description of the language trains, once its buckets are rewritten to local shards."""

import io
import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

import wdspec

SPEC = Path(__file__).parents[2] / "examples" / "specs" / "seed-readme.yaml"
SHARDS = {
    "nvdata-ocropus-tess/ia1": (34, "jpg"),
    "nvdata-ocropus-tess/cdipsub": (23, "jpg"),
    "nvdata-ocropus-tess/gsub": (168, "jpg"),
    "nvdata-ocropus-tess/bin-gsub": (168, "nrm.jpg"),
}


@pytest.fixture
def buckets(tmp_path):
    """Two samples a shard under the paths of the buckets; pictures are 12 x 10, grey by collection."""
    for shade, (prefix, (count, extension)) in enumerate(SHARDS.items()):
        for shard in range(count):
            write_shard(tmp_path / f"{prefix}-{shard:06d}.tar", extension, 40 * shade)
    write_shard(tmp_path / "nvdata-ocropus" / "rendered.tar", "jpg", 200)
    return tmp_path


def write_shard(path, extension, shade):
    path.parent.mkdir(exist_ok=True)
    picture = io.BytesIO()
    Image.new("RGB", (12, 10), (shade, shade, shade)).save(picture, "jpeg")
    with tarfile.open(path, "w") as shard:
        for index in range(2):
            for name, data in ((extension, picture.getvalue()), ("txt", b"text")):
                member = tarfile.TarInfo(f"{path.stem}-{index}.{name}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))


def test_it_delivers_rescaled_images_from_all_collections(buckets, monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", f"gs://={buckets}/")
    sizes, sources = set(), set()
    for _, sample in zip(range(400), wdspec.compile(SPEC), strict=False):
        picture = sample["nrm.jpg" if "bin-gsub" in sample["__url__"] else "jpg"]
        assert ("txt" in sample) == ("bin-gsub" not in sample["__url__"])
        sizes.add(picture.shape)
        sources.add(sample["__source__"])
    assert len(sources) >= 4, "the fifth has 1 of 394 shards"
    assert len(sizes) > 20


def test_it_trains(buckets, tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_REWRITE", f"gs://={buckets}/")
    (tmp_path / "opening_document_sizes.py").write_text(
        "from PIL import Image\n"
        "import numpy as np\n"
        "def to_square(sample):\n"
        "    picture = Image.fromarray(sample['image']).resize((8, 8))\n"
        "    return {**sample, 'image': np.asarray(picture, np.float32) / 255}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {
        "defaults": {"rename": {"image": "jpg;nrm.jpg"}},
        "map": "opening_document_sizes:to_square",
        "fields": ["image"],
        "batch": 16,
        "epoch": 320,
    }
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4), torch.nn.Linear(4, 192))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    with wdspec.loader(SPEC, num_workers=2, overrides=options) as loader:
        for batch in loader:
            loss = ((model(batch["image"]) - batch["image"].flatten(1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert len(losses) == 20
    assert sum(losses[-5:]) < sum(losses[:5]) / 2
