"""The Trainer of transformers with loaders, in one process; tests/examples trains in several and kills them."""

import warnings

import pytest
from frameworkjobs import make_spec, read_keys, skip_without

import wdspec

skip_without("transformers")


@pytest.fixture
def spec(tmp_path):
    return make_spec(tmp_path)


@pytest.fixture
def build(tmp_path):
    """Returns a function that builds a Trainer, which notes the keys that its model gets."""
    import torch
    from transformers import TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.trained, self.evaluated = [], []

        def forward(self, image, label, **others):
            (self.trained if self.training else self.evaluated).append(others["__key__"])
            return {"loss": self.weight.sum() * image.mean(), "logits": label[:, None].float()}

    def build(kind, datasets, **arguments):
        quiet = {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False}
        options = TrainingArguments(str(tmp_path / "out"), **quiet, **arguments)
        return kind(Model(), options, **datasets)

    return build


def test_the_error_for_a_loader_as_trainer_dataset_names_what_to_use(spec, build):
    from transformers import Trainer

    trainer = build(
        Trainer, {"train_dataset": wdspec.loader(spec, split="train", num_workers=0)}, max_steps=2
    )
    with pytest.raises(wdspec.UsageError, match=r"SpecTrainer\(train_dataset=loader\)"):
        trainer.train()


def test_training_resumes_and_evaluation_starts_at_the_same_batch(spec, build, tmp_path):
    from wdspec.integrations.transformers import SpecTrainer, newest_checkpoint

    def start(**arguments):
        loaders = {
            "train_dataset": wdspec.loader(spec, split="train", num_workers=0),
            "eval_dataset": wdspec.loader(spec, split="val", num_workers=0),
        }
        return build(SpecTrainer, loaders, **arguments)

    first = start(max_steps=30, save_steps=15, eval_strategy="steps", eval_steps=10)
    with pytest.raises(wdspec.UsageError, match=r"no complete checkpoint to resume from"):
        first.train(resume_from_checkpoint=True)
    first.train(resume_from_checkpoint=newest_checkpoint(tmp_path / "out"))
    assert first.model.trained == read_keys(spec, "train", 30)
    assert first.model.evaluated == read_keys(spec, "val", 3) * 3
    (tmp_path / "out" / "checkpoint-30" / "wdspec.json").unlink()  # as if killed while saving
    second = start(max_steps=40)
    second.train(resume_from_checkpoint=True)
    assert second.model.trained == read_keys(spec, "train", 40)[15:]
    assert second.state.global_step == 40
    with wdspec.loader(spec, split="val", num_workers=0) as loader:
        assert len(second.predict(loader).predictions) == 3 * 8


def test_an_accumulation_that_does_not_divide_the_epoch_is_a_warning(spec, build):
    from wdspec.integrations.transformers import SpecTrainer

    datasets = {"train_dataset": wdspec.loader(spec, split="train", num_workers=0)}
    with pytest.warns(
        UserWarning, match="25 batches, which is not a multiple of gradient_accumulation_steps=2.*24"
    ):
        build(SpecTrainer, datasets, gradient_accumulation_steps=2)
    with warnings.catch_warnings(record=True) as caught:
        build(SpecTrainer, datasets, gradient_accumulation_steps=5)
    assert not [each for each in caught if "not a multiple" in str(each.message)]
