"""transformers: a Trainer that reads loaders without rebatching, and saves their state in every checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import recursively_apply
from transformers import Trainer, TrainerCallback, TrainingArguments

from wdspec.base.errors import UsageError, warn_user
from wdspec.integrations.loaders import FromStart, RealRows, forward_inputs
from wdspec.run.loader import Loader
from wdspec.run.ranks import gather_state
from wdspec.spec.language.values import MASK

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

    As with any dataset, the model gets only the fields that its `forward` takes, unless `remove_unused_columns=False`.
    The copies that fill the batches of a pass, whose `__mask__` is false, are neither trained nor evaluated.

    Checkpoints contain the state of the data of all ranks. `train` resumes from it, with any number of ranks that the
    spec allows. Each evaluation reads the same batches.
    """

    _mask: torch.Tensor | None = None
    """The `__mask__` of the batch that is evaluated."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eval_dataset: Any = _from_start(self.eval_dataset)
        if isinstance(self.train_dataset, Loader):
            _check_accumulation(self.train_dataset, self.args.gradient_accumulation_steps)
            self.args.ignore_data_skip = True  # the loader resumes by itself
            self.add_callback(_SaveData(self.train_dataset))

    def get_train_dataloader(self) -> Any:
        """Return the batches of the loader; the Trainer would batch and distribute them again."""
        loader = self.train_dataset
        return RealRows(loader) if isinstance(loader, Loader) else super().get_train_dataloader()

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the batches of the loader for evaluation."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        dataset = self.eval_dataset[dataset] if isinstance(dataset, str) else dataset
        return (
            RealRows(dataset) if isinstance(dataset, FromStart) else super().get_eval_dataloader(eval_dataset)
        )

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the batches of the loader for prediction."""
        is_loader = isinstance(test_dataset, Loader)
        return RealRows(test_dataset) if is_loader else super().get_test_dataloader(test_dataset)

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a batch. Its loss counts once for each sample, as batches without padding differ in size."""
        self._mask = inputs.get(MASK) if isinstance(inputs, dict) else None
        if self._mask is None:
            return super().prediction_step(model, inputs, *args, **kwargs)
        across, self.args.average_tokens_across_devices = self.args.average_tokens_across_devices, False
        try:  # the mean of this rank alone, since ranks count by their samples
            loss, logits, labels = super().prediction_step(model, inputs, *args, **kwargs)
        finally:
            self.args.average_tokens_across_devices = across
        return None if loss is None else loss.expand(len(self._mask)), logits, labels

    @property
    def gather_function(self) -> Any:
        """The function that gathers results of all ranks, also if these have different numbers of samples."""
        return self._gather if self._mask is None else self._gather_rows

    @gather_function.setter
    def gather_function(self, function: Any) -> None:
        self._gather, self._mask = function, None

    def _gather_rows(self, results: Any) -> Any:
        """Concatenate the rows of all ranks, without those of batches that are only padding."""
        assert self._mask is not None, "set by `prediction_step`"
        keep = torch.ones(_count_rows(results), dtype=torch.bool, device=self.args.device)
        keep &= bool(self._mask.any())
        if self.accelerator.num_processes > 1:
            rows = self.accelerator.gather(torch.tensor([len(keep)], device=self.args.device))
            keep = torch.nn.functional.pad(keep, (0, int(rows.max()) - len(keep)))
            results = self.accelerator.pad_across_processes(results)
            results, keep = self.accelerator.gather((results, keep))
        return recursively_apply(lambda tensor: tensor[keep.to(tensor.device)], results)

    def _prepare_inputs(self, inputs: Any) -> Any:
        """Keep what the model takes of the batch of a loader; of other datasets, the Trainer keeps it by itself."""
        if self.args.remove_unused_columns and isinstance(inputs, dict) and "__key__" in inputs:
            inputs = forward_inputs(self.model, inputs, also=("label", "label_ids", *self.label_names))
        return super()._prepare_inputs(inputs)

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
    """Adds the state of the data over all ranks to each checkpoint, and corrects the epoch of a run that resumes.

    The Trainer counts the epoch from the batches that it gets, which are the rest of an epoch after a resume.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._before = 0.0
        """The part of the first epoch that was trained before the resume."""

    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Note what part of its epoch the checkpoint has."""
        if self.loader.plan.timeline.epoch_steps is not None:
            batches, each = len(self.loader), args.gradient_accumulation_steps
            self._before = state.global_step % max(-(-batches // each), 1) * each / batches

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Add this part."""
        state.epoch += self._before

    def on_epoch_end(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Add nothing to the following epochs."""
        self._before = 0.0

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Gather the state, and write it after everything else."""
        data = gather_state(self.loader)  # on all ranks
        if args.should_save:
            folder = Path(args.output_dir or "", f"checkpoint-{state.global_step}")
            part = folder / f"{STATE}.part"
            part.write_text(json.dumps(data))
            os.replace(part, folder / STATE)


def _count_rows(results: Any) -> int:
    """Return the number of rows of the first tensor in results of a model."""
    while not isinstance(results, torch.Tensor):
        results = next(iter(results.values() if isinstance(results, dict) else results))
    return len(results)


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
