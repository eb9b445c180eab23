"""transformers: a Trainer that reads loaders without rebatching, and saves their state in every checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback, TrainingArguments

from wdspec.base.errors import UsageError, warn_user
from wdspec.integrations.loaders import FromStart
from wdspec.run.loader import Loader
from wdspec.run.ranks import gather_state

STATE = "wdspec.json"
"""The file with the state of the data. It is written last, so only complete checkpoints contain it."""

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class SpecTrainerMixin(_Base):
    """Lets a Trainer read loaders. List it first: ``class MyTrainer(SpecTrainerMixin, Seq2SeqTrainer)``.

    Pass loaders as datasets: ``MyTrainer(model, args, train_dataset=wdspec.loader("train.yaml"))``. The loaders form
    the batches, in their own workers, so arguments such as `per_device_train_batch_size` have no effect. Create the
    TrainingArguments before the loader, because they initialize torch.distributed.

    Checkpoints contain the state of the data of all ranks. `train` resumes from it, with any number of ranks that the
    spec allows. Each evaluation reads the same batches.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eval_dataset: Any = _from_start(self.eval_dataset)
        if isinstance(self.train_dataset, Loader):
            _check_accumulation(self.train_dataset, self.args.gradient_accumulation_steps)
            self.args.ignore_data_skip = True  # the loader resumes by itself
            self.add_callback(_SaveData(self.train_dataset))

    def get_train_dataloader(self) -> Any:
        """Return the loader unchanged; the Trainer would batch and distribute its batches again."""
        loader = self.train_dataset
        return loader if isinstance(loader, Loader) else super().get_train_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader for evaluation, unchanged."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        dataset = self.eval_dataset[dataset] if isinstance(dataset, str) else dataset
        return dataset if isinstance(dataset, FromStart) else super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the loader for prediction, unchanged."""
        return test_dataset if isinstance(test_dataset, Loader) else super().get_test_dataloader(test_dataset)

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Evaluate with a loader, or with any dataset that the Trainer accepts."""
        return super().evaluate(_from_start(eval_dataset), *args, **kwargs)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train, optionally from a checkpoint. True means the newest complete one in `output_dir`.

        Raises:
            UsageError: there is no complete checkpoint, or its state does not match the loader.
        """
        if resume_from_checkpoint and isinstance(loader := self.train_dataset, Loader):
            folder = self.args.output_dir or ""
            if resume_from_checkpoint is True:
                resume_from_checkpoint = newest_checkpoint(folder)
            file = Path(resume_from_checkpoint or folder, STATE)
            if not file.exists():
                raise UsageError(
                    f"there is no complete checkpoint to resume from (`{file}` does not exist); use "
                    "`newest_checkpoint(folder)`, which returns None if there is none"
                )
            loader.load_state_dict(json.loads(file.read_text()))  # takes this rank's part
        return super().train(resume_from_checkpoint, *args, **kwargs)


class SpecTrainer(SpecTrainerMixin, Trainer):
    """A Trainer that reads loaders; see `SpecTrainerMixin`.

    Example:
        >>> from wdspec.integrations.transformers import SpecTrainer, newest_checkpoint
        >>> # trainer = SpecTrainer(model, arguments, train_dataset=wdspec.loader("train.yaml", num_workers=4))
        >>> # trainer.train(resume_from_checkpoint=newest_checkpoint(arguments.output_dir))
    """


def newest_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """Return the path of the newest complete checkpoint in a folder, or None if there is none."""
    complete = [path.parent for path in Path(folder).glob(f"checkpoint-*/{STATE}")]
    newest = max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return None if newest is None else str(newest)


class _SaveData(TrainerCallback):
    """Adds the state of the data over all ranks to each checkpoint."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Gather the state, and write it after everything else."""
        data = gather_state(self.loader)  # on all ranks
        if args.should_save:
            folder = Path(args.output_dir or "", f"checkpoint-{state.global_step}")
            part = folder / f"{STATE}.part"
            part.write_text(json.dumps(data))
            os.replace(part, folder / STATE)


def _from_start(dataset: Any) -> Any:
    """Wrap a loader, or each of a dict of loaders, in `FromStart`; return other datasets unchanged."""
    if isinstance(dataset, dict):
        return {name: _from_start(each) for name, each in dataset.items()}
    return FromStart(dataset) if isinstance(dataset, Loader) else dataset


def _check_accumulation(loader: Loader, accumulation: int) -> None:
    """Warn if the Trainer could lose an update: after a resume, it counts batches from the restart."""
    batches = 0 if loader.plan.timeline.epoch_steps is None else len(loader)
    if batches % accumulation:
        warn_user(
            f"an epoch has {batches} batches, which is not a multiple of gradient_accumulation_steps={accumulation}: "
            "if training resumes in the middle of an epoch, the Trainer may leave out its last update; choose "
            f"a divisor of {batches} or an `epoch:` such as {batches - batches % accumulation or accumulation} batches"
        )
