"""Models of transformers train from a spec: batches survive every trainer, and losses are those of plain torch."""

import io
import json
import wave

import numpy as np
import pytest
import torch
from frameworkjobs import skip_without
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.integrations.loaders import forward_inputs

skip_without("transformers")

DOCUMENTS = [[3 + (7 * n + k) % 90 for k in range(2 + 5 * n % 11)] for n in range(24)]
WAYS = {
    "stack": "",
    "list": "collate: {ids: list}",
    "pad": "collate: {ids: pad}",
    "pad with a mask": "collate: {ids: {pad: {mask: attention_mask, lengths: n}}}",
    "nested": "collate: {ids: nested}",
    "loose": "ragged: list",
    "audio": "collate: {sound: {pad: {axis: -1}}}",
    "pack": "window: 8, pack: {fields: ids, length: 32, position_ids: position_ids, cu_seqlens: c, max_seqlen: m}",
}


@pytest.fixture
def documents(tmp_path):
    """Writes token ids as JSON Lines, and returns a function that makes a loader of them."""
    rows = [{"ids": ids, "labels": [-100, *ids[1:]], "x": [0.5, n]} for n, ids in enumerate(DOCUMENTS)]
    (tmp_path / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(text, name="spec.yaml"):
        (tmp_path / name).write_text(text)
        return wdspec.loader(tmp_path / name, num_workers=0)

    return make


def moved_by_the_trainer(batch, folder):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(str(folder), use_cpu=True, report_to="none")
    return Trainer(torch.nn.Linear(1, 1), arguments)._prepare_inputs(batch)


def moved_by_accelerate(batch, folder):
    from accelerate.utils import send_to_device

    return send_to_device(batch, "cpu")


def moved_by_lightning(batch, folder):
    from lightning.fabric.utilities import move_data_to_device

    return move_data_to_device(batch, "cpu")


def pinned(batch, folder):
    """As `pin_memory` of torch copies every part of a batch, with copies of tensors in place of pinned memory."""
    from unittest import mock

    from torch.utils.data._utils.pin_memory import pin_memory

    with mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone()):
        return pin_memory(batch)


MOVERS = [moved_by_the_trainer, moved_by_accelerate, moved_by_lightning, pinned]


@pytest.mark.parametrize("move", MOVERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_kind_of_batch_survives_every_trainer(way, move, documents, tmp_path):
    field = {"audio": "sound", "stack": "x"}.get(way, "ids")
    source = "{shards: ids.jsonl}"
    if way == "audio":
        write_shard(tmp_path / "a.tar", [(str(n), {"wav": make_wav(3 + n)}) for n in range(4)])
        source = "{shards: a.tar, rename: {sound: wav}, decode: audio}"
    size = "" if way == "pack" else "size: 4, "
    batch = next(iter(documents(f"dataset: [{source}]\nfields: {field}\nbatch: {{{size}{WAYS[way]}}}\n")))
    assert same(batch, move(batch, tmp_path / "out"))


def make_wav(length):
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((1, 2, 8000, 0, "NONE", ""))
        wav.writeframes(bytes(2 * length))
    return file.getvalue()


def same(one, other):
    """Whether two batches have the same types and values in all their parts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        parts = zip(one.unbind(), other.unbind(), strict=True) if one.is_nested else [(one, other)]
        return all(torch.equal(*part) for part in parts)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


STEPS, PADDING = 3, 0


def train_with_the_trainer(model, loader, folder):
    from transformers import TrainingArguments

    from wdspec.integrations.transformers import SpecTrainer

    losses = []

    class Noted(SpecTrainer):
        def training_step(self, *args, **kwargs):
            losses.append(super().training_step(*args, **kwargs).item())
            return torch.tensor(losses[-1])

    quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    options = {
        "max_steps": STEPS,
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 0,
    }
    Noted(model, TrainingArguments(str(folder), **quiet, **options), train_dataset=loader).train()
    return losses


def train_with_accelerate(model, loader, folder):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    losses = []
    for batch, _ in zip(loader, range(STEPS), strict=False):
        loss = model(**forward_inputs(model, batch)).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train_with_lightning(model, loader, folder):
    import lightning

    losses = []

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, number):
            loss = self.model(**forward_inputs(self.model, batch)).loss
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(accelerator="cpu", max_steps=STEPS, default_root_dir=folder, **quiet).fit(
        Module(), loader
    )
    return losses


TRAINERS = [train_with_the_trainer, train_with_accelerate, train_with_lightning]


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def make_decoder():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    small = {"vocab_size": 100, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**small, **none, use_cache=False))


def make_classifier():
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(image_size=8, patch_size=4, num_labels=10, **SMALL))


def make_encoder():
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(vocab_size=100, **SMALL))


def plain_losses(model, batches, loss_of):
    """The losses of plain torch: each document by itself, without any padding or row."""
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for keys in batches:
        loss = loss_of(model, [int(key.split("/")[1]) for key in keys])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def loss_alone(model, numbers, shift):
    """The mean over all tokens of the loss of documents, each of which the model sees alone."""
    total, count = 0.0, 0
    for number in numbers:
        ids = torch.tensor([DOCUMENTS[number]])
        labels = torch.tensor([[-100, *DOCUMENTS[number][1:]]])
        logits = model(input_ids=ids).logits
        logits, labels = (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)
        total = total + torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
        )
        count += int((labels != -100).sum())
    return total / count


PADDED = "batch: {size: 4, collate: {input_ids: {pad: {value: 0, mask: attention_mask}}, labels: {pad: {value: -100}}}}"
JOBS = {
    "decoder, padded": (make_decoder, True, PADDED),
    "decoder, packed": (
        make_decoder,
        True,
        "batch: {window: 12, pack: {fields: [input_ids, labels], length: 40, pad: {labels: -100}, "
        "position_ids: position_ids}}",
    ),
    "encoder, padded": (make_encoder, False, PADDED),
}


@pytest.mark.parametrize("train", TRAINERS)
@pytest.mark.parametrize("job", JOBS)
def test_models_of_tokens_have_the_loss_of_each_document_alone(job, train, documents, tmp_path):
    make, shift, batch = JOBS[job]
    text = f"dataset: [{{shards: ids.jsonl, rename: {{input_ids: ids}}}}]\nepoch: {{batches: {STEPS}}}\n{batch}\n"
    batches = [batch["__key__"] for batch in documents(text)]
    expected = plain_losses(make(), batches, lambda model, numbers: loss_alone(model, numbers, shift))
    assert train(make(), documents(text), tmp_path / "out") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("train", TRAINERS)
def test_an_image_classifier_trains_on_the_pixels_of_the_files(train, documents, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    images = [(f"i/{n}", {"png": encode_png(pixels[n]), "cls": str(n % 10).encode()}) for n in range(24)]
    write_shard(tmp_path / "images.tar", images)
    text = (
        "dataset: [{shards: images.tar, rename: {pixel_values: png, labels: cls}, decode: torchrgb}]\n"
        f"batch: 4\nepoch: {{batches: {STEPS}}}\n"
    )

    def loss_of(model, numbers):
        values = torch.from_numpy(pixels[numbers]).permute(0, 3, 1, 2) / 255
        return torch.nn.functional.cross_entropy(model(values).logits, torch.tensor(numbers) % 10)

    batches = [batch["__key__"] for batch in documents(text)]
    expected = plain_losses(make_classifier(), batches, loss_of)
    assert train(make_classifier(), documents(text), tmp_path / "out") == pytest.approx(expected, rel=1e-4)


def encode_png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_what_a_model_takes_is_told_from_what_the_batch_has():
    batch = {"__key__": ["a"], "ids": torch.zeros(1, 2), "labels": torch.zeros(1)}
    assert list(forward_inputs(make_decoder(), batch)) == ["labels"]
    with pytest.raises(
        wdspec.UsageError, match=r"forward` takes `pixel_values`.* the batch has `ids`.*rename: \{"
    ):
        forward_inputs(make_classifier(), {"ids": torch.zeros(1)})


def test_all_fields_reach_a_forward_that_names_none():
    class Wrapped(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return kwargs

    batch = {"__key__": ["a"], "x": 1}
    assert forward_inputs(Wrapped(), batch) == {"x": 1}


def test_the_trainer_keeps_all_fields_if_it_is_told_to(documents, tmp_path):
    from transformers import TrainingArguments

    from wdspec.integrations.transformers import SpecTrainer

    loader = documents(
        "dataset: [{shards: ids.jsonl}]\nfields: [labels, x]\nbatch: {size: 2, ragged: list}\n"
    )
    quiet = {"use_cpu": True, "report_to": "none", "remove_unused_columns": False}
    trainer = SpecTrainer(
        make_decoder(), TrainingArguments(str(tmp_path), max_steps=1, **quiet), train_dataset=loader
    )
    assert trainer._prepare_inputs(next(iter(loader))).keys() > {"__key__", "labels", "x"}


def test_padding_that_would_replace_a_field_is_an_error_that_names_it(documents):
    batch = "{size: 2, ragged: list, collate: {ids: {pad: {mask: labels}}}}"
    loader = documents(f"dataset: [{{shards: ids.jsonl}}]\nbatch: {batch}\n")
    with pytest.raises(wdspec.FieldError, match="a field `labels`, which `pad` would replace"):
        next(iter(loader))


def test_a_model_does_not_get_a_field_whose_mask_it_would_lose(documents):
    text = "dataset: [{shards: ids.jsonl, rename: {input_ids: ids}}]\nfields: input_ids\n"
    batch = next(iter(documents(text + "batch: {size: 2, collate: {input_ids: pad}}\n")))
    with pytest.raises(
        wdspec.UsageError, match=r"its mask would be lost; .*\{input_ids: \{pad: \{mask: attention_mask"
    ):
        forward_inputs(make_decoder(), batch)


def test_a_tuple_can_have_the_fields_that_a_batch_adds(documents):
    for batch, names in {
        "{size: 2, collate: {ids: {pad: {mask: m, lengths: n}}}}": "n m ids",
        "{pack: {fields: ids, length: 40, segment_ids: m, max_seqlen: n}}": "n m ids",
    }.items():
        text = f"dataset: [{{shards: ids.jsonl}}]\nbatch: {batch}\n"
        by_name = next(iter(documents(text + "fields: ids\n")))
        lengths, mask, ids = next(iter(documents(text + f"to_tuple: {names}\n")))
        assert torch.equal(torch.as_tensor(lengths), torch.as_tensor(by_name["n"]))
        assert torch.equal(mask, by_name["m"])
        assert torch.equal(ids, by_name["ids"])
