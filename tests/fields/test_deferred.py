"""`device`: images that workers leave encoded, and the training process decodes as a batch."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from shardmaking import write_shard
from torch.utils.data import DataLoader

import wdspec
from wdspec.base.errors import FieldError, SpecError, UsageError
from wdspec.fields import memory
from wdspec.fields.codecs.image_decoder import ImageDecoder
from wdspec.fields.codecs.on_device import read_batch
from wdspec.planning.keys import uniform

CROP = "random_resized_crop=32+hflip=0.5"
VARIANTS = {
    "bytes": f"rgb8+{CROP}",
    "bytes, channels first": f"torchrgb8+{CROP}",
    "floats": f"torch+{CROP}+normalize=imagenet",
    "floats, channels last": "rgb+resize=24x40+normalize=clip",
    "grey": "l8+resize=40+center_crop=32+interpolation=bicubic",
    "grey floats": "torchl+center_crop=60",
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def photo(seed, size=(90, 70), kind="jpeg"):
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize(size, Image.Resampling.BICUBIC).save(
        file, kind, **({"quality": 95} if kind == "jpeg" else {})
    )
    return file.getvalue()


def kind_of(number):
    return "png" if number % 5 == 0 else "jpeg"


def make_spec(folder, decode, **changes):
    files = [(f"{i}", {"image": photo(i, kind=kind_of(i)), "cls": b"%d" % i}) for i in range(24)]
    write_shard(folder / "a.tar", files)
    source = {"shards": f"{folder}/a.tar", "decode": {"image": decode}}
    return {
        "dataset": [source],
        "batch": 8,
        "epoch": 24,
        "elastic": {"ranks": 1, "workers": 2},
        **changes,
    }


def read(spec, workers=0, kind="processes"):
    with wdspec.loader({**spec, "loader": {"kind": kind}}, num_workers=workers) as loader:
        return list(loader)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_training_process_and_workers_decode_the_same_batches(tmp_path, variant):
    expected = read(make_spec(tmp_path, VARIANTS[variant]))
    spec = make_spec(tmp_path, f"{VARIANTS[variant]}+device=cpu")
    ways = [(0, "processes"), (2, "processes"), (2, "threads")]
    for found in [read(spec, *way) for way in ways[: 3 if variant == "floats" else 2]]:
        assert len(found) == len(expected) == 3
        for one, other in zip(found, expected, strict=True):
            assert one["__key__"] == other["__key__"]
            assert one["image"].dtype == other["image"].dtype
            assert torch.equal(one["image"], other["image"])


def test_images_of_one_field_can_have_different_extensions(tmp_path):
    """Only its extension says that a file is a TGA; labels are not interpolated."""
    kinds = ("jpg", "tga", "seg.png")
    formats = {"jpg": "jpeg", "tga": "tga", "seg.png": "png"}
    for kind in kinds:
        files = [(f"{kind[0]}{i}", {kind: photo(i, kind=formats[kind])}) for i in range(8)]
        write_shard(tmp_path / f"{kind}.tar", files)
    source = {"rename": {"image": "jpg;tga;seg.png"}, "extensions": "jpg;tga;seg.png", "shuffle": 0}
    spec = {"batch": 12, "epoch": 24, "elastic": {"ranks": 1, "workers": 2}}

    def images(workers, option=""):
        sources = [
            {
                "shards": f"{tmp_path}/{kind}.tar",
                "weight": 1,
                "decode": f"rgb8+resize=24x40{option}",
                **source,
            }
            for kind in kinds
        ]
        return [(batch["__key__"], batch["image"]) for batch in read({"dataset": sources, **spec}, workers)]

    expected = images(0)
    assert {key[0] for key in expected[0][0]} == {"j", "t", "s"}
    for workers in (0, 2):
        for (keys, found), (same, pixels) in zip(images(workers, "+device=cpu"), expected, strict=True):
            assert keys == same
            assert torch.equal(found, pixels)


def test_tuples_and_micro_batches_are_decoded(tmp_path):
    changes = {"to_tuple": ["image", "cls"], "elastic": {"ranks": 2, "workers": 2}}
    changes["batch"] = {"size": 4, "accumulate": True}
    expected, found = (
        read(make_spec(tmp_path, f"rgb8+{CROP}{more}", **changes), 2) for more in ("", "+device=cpu")
    )
    assert len(found) == len(expected) == 6
    for (one, label), (other, same) in zip(found, expected, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(label, same)


def test_a_state_resumes_in_a_run_without_workers(tmp_path):
    spec = make_spec(tmp_path, f"rgb8+{CROP}+device=cpu")
    with wdspec.loader(spec, num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [batch["image"] for batch in batches]
    with wdspec.loader(spec, num_workers=0) as loader:
        loader.load_state_dict(state)
        again = [batch["image"] for batch in loader]
    assert len(rest) == len(again) == 2
    assert all(map(torch.equal, rest, again))


def test_single_samples_and_foreign_workers_decode_immediately(tmp_path):
    spec = make_spec(tmp_path, f"rgb8+{CROP}+device=cuda")
    batch = next(iter(DataLoader(wdspec.compile(spec), batch_size=None, num_workers=1)))
    assert batch["image"].shape == (8, 32, 32, 3)
    assert ImageDecoder("rgb8+resize=32x32+device=cuda")(photo(1)).shape == (32, 32, 3)


def test_workers_skip_missing_headers_and_other_damage_is_an_error(tmp_path):
    spec = make_spec(tmp_path, "rgb8+center_crop=32+device=cpu", epoch=5, batch=5)
    spec["dataset"][0]["errors"] = "skip"
    files = [(f"{i}", {"image": photo(i)}) for i in range(5)]
    write_shard(tmp_path / "a.tar", [("bad", {"image": b"no image"}), *files])
    [batch] = read(spec, 1)
    assert sorted(batch["__key__"]) == ["0", "1", "2", "3", "4"]
    files[3][1]["image"] = files[3][1]["image"][:700]
    write_shard(tmp_path / "a.tar", files)
    place = rf"source a, url {tmp_path}/a.tar, key 3, field image"
    for workers, more in [(1, {}), (0, {}), (1, {"to_tuple": ["image"]}), (0, {"to_tuple": ["image"]})]:
        with pytest.raises(FieldError, match=rf"cannot decode image \d of a batch.*truncated.*{place}"):
            read({**spec, **more}, workers)


def test_decoding_releases_the_batch_memory_for_the_next_batch(tmp_path):
    decode = "rgb8+center_crop=32"
    spec = make_spec(tmp_path, f"{decode}+device=cpu", epoch=5, batch=5)
    files = [(f"{i}", {"image.jpg": photo(i), "next.jpg": photo(i)}) for i in range(5)]
    write_shard(tmp_path / "a.tar", files)
    spec["dataset"][0]["decode"] = {"image": f"{decode}+device=cpu", "next": decode}
    spec["dataset"][0]["rename"] = {"image": "image.jpg", "next": "next.jpg"}
    [batch] = read(spec)
    assert torch.equal(batch["image"], batch["next"])
    rows = memory.current.last
    assert rows is not None
    assert any(batch["next"].data_ptr() == whole.ctypes.data for whole, _ in rows._batches.values())


def psnr(one, other):
    error = ((one.double() - other.double()) ** 2).mean().item()
    return 10 * np.log10(255**2 / max(error, 1e-9))


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=needs_gpu)]
)  # on the CPU, what a GPU does apart from its kernels
@pytest.mark.parametrize("variant", VARIANTS)
def test_nvimgcodec_batches_look_like_cpu_batches(variant, device):
    decoder = ImageDecoder(VARIANTS[variant] + "+device=cuda", field="image")
    plain = ImageDecoder(VARIANTS[variant], field="image")
    files = [photo(i, (90 + i, 70), kind_of(i)) for i in range(8)]
    draws = [lambda i, key=key: uniform(key, i) for key in range(8)]
    steps = [decoder._defer(data, None, draw).steps for data, draw in zip(files, draws, strict=True)]

    def read_here(at):
        values = decoder._pixels(files[at], lambda size: steps[at].fits)
        return values[:, ::-1] if steps[at].is_flipped else values

    pixels = read_batch(files, steps, decoder._mode, torch.device(device), read_here)
    found = decoder.finish_batch(pixels).cpu()
    expected = torch.stack(
        [torch.as_tensor(plain(data, None, draw)) for data, draw in zip(files, draws, strict=True)]
    )
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    white = 1 if found.dtype == torch.uint8 else 255 * (0.25 if "normalize" in VARIANTS[variant] else 1)
    assert min(psnr(one * white, other * white) for one, other in zip(found, expected, strict=True)) > 38


@needs_gpu
def test_batches_are_on_the_gpu(tmp_path):
    found = read(make_spec(tmp_path, f"rgb8+{CROP}+device=cuda"), 2)
    expected = read(make_spec(tmp_path, f"rgb8+{CROP}"), 2)
    for one, other in zip(found, expected, strict=True):
        assert one["image"].device.type == "cuda"
        assert psnr(one["image"].cpu(), other["image"]) > 38


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_loader_without_a_gpu_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"`device=cuda` in `decode` needs a GPU.*`device=cpu`"):
        read(make_spec(tmp_path, f"rgb8+{CROP}+device=cuda"), 2)


@pytest.mark.parametrize(
    ("decoder", "said"),
    [
        ("rgb8+resize=32x32+device=tpu", "one of cuda, cpu"),
        ("rgb8+device=cuda", "images of one size"),
        ("rgb8+resize=32+device=cuda", "images of one size"),
        ("pil+resize=32x32+device=cuda", "arrays or tensors of 8 bits"),
        ("rgba8+resize=32x32+device=cuda", "without alpha"),
        ("rgb8+resize=32x32+upright+device=cuda", "`device` does not have `upright`"),
        ("rgb8+resize=32x32+hue=0.1+device=cuda", "`device` does not have `hue`"),
        ("rgb8+resize=32x32+interpolation=box+device=cuda", "by bilinear or bicubic"),
    ],
)
def test_mistakes_are_reported_on_load(decoder, said):
    with pytest.raises(SpecError, match="E209") as caught:
        wdspec.load({"dataset": [{"shards": "a.tar", "decode": decoder}], "batch": 4})
    assert said in str(caught.value)
