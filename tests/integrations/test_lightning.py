"""Lightning's Trainer with `SpecData`, in one process; tests/examples trains on several devices and kills them."""

import warnings

import pytest
from frameworkjobs import make_spec, read_keys, skip_without

import wdspec

skip_without("lightning")


@pytest.fixture
def spec(tmp_path):
    return make_spec(tmp_path)


def trainer_of(**arguments):
    import lightning

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return lightning.Trainer(accelerator="cpu", enable_model_summary=False, **quiet, **arguments)


@pytest.fixture
def model():
    import lightning
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.trained, self.evaluated = [], []

        def training_step(self, batch, index):
            self.trained.append(batch["__key__"])
            return self.weight.sum() * batch["image"].mean()

        def validation_step(self, batch, index):
            self.evaluated.append(batch["__key__"])

        def test_step(self, batch, index):
            self.evaluated.append(batch["__key__"])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    warnings.simplefilter("ignore")  # of Lightning, about workers and logging
    return Model()


def data_of(spec, *splits, **options):
    from wdspec.integrations.lightning import SpecData

    return SpecData(*(f"{spec}#{split}" for split in splits), num_workers=0, **options)


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_has_the_position_and_evaluation_starts_at_the_same_batch(spec, model, tmp_path):
    first = trainer_of(max_steps=30, val_check_interval=10, limit_val_batches=2)
    first.fit(model, datamodule=data_of(spec, "train", "val"))
    first.save_checkpoint(tmp_path / "a.ckpt")
    assert model.evaluated == read_keys(spec, "val", 2) * 3  # of the sanity check, and after steps 10 and 20
    second = trainer_of(max_steps=40)
    second.fit(model, datamodule=data_of(spec, "train"), ckpt_path=tmp_path / "a.ckpt", weights_only=False)
    assert model.trained == read_keys(spec, "train", 40)


@pytest.mark.filterwarnings("ignore")
def test_test_data_is_read_without_training_data(spec, model):
    trainer_of().test(model, datamodule=data_of(spec, test=f"{spec}#val"), verbose=False)
    assert model.evaluated == read_keys(spec, "val", 3)
    with pytest.raises(wdspec.UsageError, match=r"pass a spec: SpecData\(train=…\)"):
        trainer_of(max_steps=1).fit(model, datamodule=data_of(spec))


def test_checkpoints_appear_atomically_on_disks_and_in_stores(tmp_path):
    import fsspec

    from wdspec.integrations.lightning import WholeFiles

    for path in (str(tmp_path / "a.ckpt"), "memory://a.ckpt"):
        WholeFiles().save_checkpoint({"step": 3}, path)
        assert WholeFiles().load_checkpoint(path) == {"step": 3}
    assert [each.name for each in tmp_path.iterdir()] == ["a.ckpt"]
    fsspec.filesystem("memory").rm("/a.ckpt")


def test_an_endless_spec_is_rejected(spec):
    spec.write_text(spec.read_text().replace("epoch: {batches: 25}\n", ""))
    with pytest.raises(TypeError, match="set `epoch:` in the spec"):
        data_of(spec, "train").setup("fit")
