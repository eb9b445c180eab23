"""The copies that fill the batches of a pass are neither trained nor evaluated by models of transformers."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from frameworkjobs import skip_without
from PIL import Image
from shardmaking import write_shard

import wdspec
from wdspec.integrations.loaders import forward_inputs, real_rows

skip_without("transformers")

COUNT, CLASSES = 11, 3
"""Four batches of 4 have 16 places. Image n has the class n // 4."""


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)


@pytest.fixture
def open_loader(tmp_path, pixels):
    """Writes images, and returns a function that makes a loader of one pass over them."""
    images = [
        (f"i/{n}", {"png": encode_png(image), "cls": str(n // 4).encode()}) for n, image in enumerate(pixels)
    ]
    write_shard(tmp_path / "images.tar", images)

    def open_loader(rest="", epoch="pass", **options):
        rename = "rename: {pixel_values: png, labels: cls}, decode: torchrgb"
        rules = f"batch: 4\nepoch: {epoch}\nelastic: {{ranks: 2, workers: 1}}\n"
        text = f"dataset: [{{shards: images.tar, {rename}{rest}}}]\n{rules}"
        (tmp_path / "spec.yaml").write_text(text)
        return wdspec.loader(tmp_path / "spec.yaml", num_workers=0, **options)

    return open_loader


def encode_png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def make_model():
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return ViTForImageClassification(
        ViTConfig(image_size=8, patch_size=4, num_labels=CLASSES, **small, **none)
    )


def make_trainer(folder, model=None, **arguments):
    from transformers import TrainingArguments

    from wdspec.integrations.transformers import SpecTrainer

    datasets = {name: arguments.pop(name) for name in ("train_dataset", "eval_dataset") if name in arguments}
    quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True}
    arguments.setdefault("save_strategy", "no")
    sgd = {"learning_rate": 0.1, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0}
    more = {"compute_metrics": metrics} if "eval_dataset" in datasets else {}
    arguments = TrainingArguments(str(folder), **quiet, **sgd, **arguments)
    return SpecTrainer(model or make_model(), arguments, **datasets, **more)


def metrics(results):
    return {
        "accuracy": float((results.predictions.argmax(-1) == results.label_ids).mean()),
        "samples": len(results.label_ids),
    }


def plain_results(model, pixels, numbers):
    """Logits and mean loss of plain torch."""
    values = torch.from_numpy(pixels[numbers]).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        logits = model.eval()(values).logits
    return logits, float(torch.nn.functional.cross_entropy(logits, torch.tensor(numbers) // 4))


def test_metrics_and_predictions_are_those_of_each_image_once(open_loader, pixels, tmp_path):
    numbers = list(range(COUNT))
    with open_loader() as loader, open_loader() as test:
        trainer = make_trainer(tmp_path, eval_dataset=loader)
        found, predicted = trainer.evaluate(), trainer.predict(test)
    logits, loss = plain_results(make_model(), pixels, numbers)
    labels = torch.tensor(numbers) // 4
    assert found["eval_samples"] == COUNT
    assert found["eval_accuracy"] == pytest.approx(float((logits.argmax(-1) == labels).float().mean()))
    assert found["eval_loss"] == pytest.approx(loss, rel=1e-4)
    assert predicted.predictions.shape == (COUNT, CLASSES)
    assert sorted(predicted.label_ids.tolist()) == sorted(labels.tolist())


def test_batches_of_padding_alone_are_not_evaluated(open_loader, pixels, tmp_path):
    with open_loader(", where: labels == 1") as loader:
        found = make_trainer(tmp_path, eval_dataset=loader, include_for_metrics=["inputs"]).evaluate()
    numbers = [4, 5, 6, 7]
    assert found["eval_samples"] == len(numbers)
    assert found["eval_loss"] == pytest.approx(plain_results(make_model(), pixels, numbers)[1], rel=1e-4)


def test_copies_are_not_trained(open_loader, pixels, tmp_path):
    with open_loader(", where: labels == 1") as loader:
        batches = [real_rows(batch) for batch in loader]
    assert [bool(batch["__mask__"].any()) for batch in batches].count(False) > 0
    with open_loader(", where: labels == 1") as loader:
        trainer = make_trainer(tmp_path, train_dataset=loader, num_train_epochs=1, logging_steps=1)
        trainer.train()
    expected = make_model()
    optimizer = torch.optim.SGD(expected.parameters(), 0.1)
    for batch in batches:
        numbers = [int(key.split("/")[1]) for key in batch["__key__"] if batch["__mask__"].all()]
        values = torch.from_numpy(pixels[numbers]).permute(0, 3, 1, 2) / 255
        if numbers:
            torch.nn.functional.cross_entropy(expected(values).logits, torch.tensor(numbers) // 4).backward()
            optimizer.step()
            optimizer.zero_grad()
    for name, value in trainer.model.state_dict().items():
        assert torch.allclose(value, expected.state_dict()[name], atol=1e-6), name


def test_every_part_of_a_batch_that_has_its_rows_loses_the_copies():
    nested = torch.nested.nested_tensor([torch.arange(n) for n in (1, 2, 3)], layout=torch.jagged)
    padded = wdspec.Padded(torch.ones(3, 2), torch.ones(3, 2, dtype=torch.bool), torch.tensor([2, 2, 2]))
    batch = {
        "__mask__": torch.tensor([True, False, True]),
        "__key__": ["a", "a", "c"],
        "n": nested,
        "size": 3,
    }
    batch |= {"audio": (padded, torch.tensor([1, 2, 3])), "mean": torch.zeros(2), "array": np.arange(3)}
    found = real_rows(batch)
    assert (found["__key__"], found["size"], len(found["mean"])) == (["a", "c"], 3, 2)
    assert [len(each) for each in found["n"].unbind()] == [1, 3]
    waves, rates = found["audio"]
    assert isinstance(waves, wdspec.Padded)
    assert (waves.values.shape, rates.tolist(), found["array"].tolist()) == ((2, 2), [1, 3], [0, 2])
    rows = {"__mask__": [[True, False], [True, True]], "ids": torch.zeros(2, 8)}
    assert real_rows(rows) is rows


def test_a_loop_with_forward_inputs_leaves_out_the_copies(open_loader, pixels):
    model, total = make_model().eval(), 0.0
    with open_loader(", where: labels == 1") as loader, torch.no_grad():
        for batch in loader:
            inputs = forward_inputs(model, batch)
            loss = model(**inputs).loss
            total += float(torch.nan_to_num(loss)) * int((inputs["labels"] >= 0).sum())
    assert total / 4 == pytest.approx(plain_results(make_model(), pixels, [4, 5, 6, 7])[1], rel=1e-4)


def test_a_row_of_padding_without_labels_to_ignore_is_trained_with_a_warning():
    batch = {"pixel_values": torch.zeros(4, 3, 8, 8), "__mask__": torch.zeros(4, dtype=torch.bool)}
    with pytest.warns(UserWarning, match="only padding.*a copy of a sample is trained"):
        assert forward_inputs(make_model().train(), batch)["pixel_values"].shape[0] == 1


def test_labels_that_are_text_are_an_error_that_names_the_step(open_loader, tmp_path):
    with open_loader(", map: {labels: 'builtins:hex'}") as loader:
        trainer = make_trainer(tmp_path, train_dataset=loader, max_steps=1)
        with pytest.raises(
            wdspec.UsageError, match=r"`labels` is text, such as '0x.*label: text, file: names.txt"
        ):
            trainer.train()
    with pytest.raises(
        wdspec.UsageError, match=r"make: \{input_ids: \{tokenize: text, file: tokenizer.json\}\}"
    ):
        forward_inputs(make_identity(), {"input_ids": ["a", "b"]})


def make_identity():
    model = torch.nn.Module()
    model.forward = lambda input_ids: input_ids
    return model


def test_the_epoch_of_a_run_that_resumes_counts_what_was_trained_before(open_loader, tmp_path):
    def train(checkpoint=None):
        with open_loader(epoch="{pass: pad, reshuffle: true}") as loader:
            saving = {
                "save_strategy": "no" if checkpoint else "steps",
                "save_steps": 1,
                "num_train_epochs": 2,
                "logging_steps": 1,
            }
            trainer = make_trainer(tmp_path / "out", train_dataset=loader, **saving)
            trainer.train(resume_from_checkpoint=checkpoint)
        return [log["epoch"] for log in trainer.state.log_history]

    whole = train()
    assert whole[-1] == 2
    steps = len(whole) - 1
    assert train(str(tmp_path / "out" / "checkpoint-1")) == whole
    assert train(str(tmp_path / "out" / f"checkpoint-{steps - 1}")) == whole


@pytest.mark.long
def test_two_ranks_gather_each_image_once_though_their_batches_differ_in_size(open_loader, pixels, tmp_path):
    with open_loader(", where: labels != 0"):
        pass
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import json, sys, wdspec\n"
        "from pathlib import Path\n"
        "from test_padding_of_a_pass import make_trainer\n"
        "trainer = make_trainer(sys.argv[1], eval_dataset=[], include_for_metrics=['inputs'])\n"
        "loader = wdspec.loader(sys.argv[2], num_workers=0)\n"
        "found = trainer.evaluate(loader)\n"
        "Path(sys.argv[1], f'{trainer.args.process_index}.json').write_text(json.dumps(found))\n"
        "loader.close()\n"
    )
    run = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        script,
        tmp_path,
        tmp_path / "spec.yaml",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run([sys.executable, *run], check=True, timeout=200, env=environment)
    numbers = [4, 5, 6, 7, 8, 9, 10]
    logits, loss = plain_results(make_model(), pixels, numbers)
    right = float((logits.argmax(-1) == torch.tensor(numbers) // 4).float().mean())
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["eval_samples"] == len(numbers)
        assert found["eval_accuracy"] == pytest.approx(right)
        assert found["eval_loss"] == pytest.approx(loss, rel=1e-4)
