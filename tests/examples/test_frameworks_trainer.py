"""examples/frameworks/with_trainer.py resumes exactly after kill -9, also with another number of processes."""

import pytest
from frameworkjobs import (
    STEPS_OF_AN_EPOCH,
    Job,
    assert_exact,
    documented,
    make_spec,
    skip_without,
    unbroken_run,
)

EPOCHS = 2

skip_without("transformers")


@pytest.mark.parametrize("processes", [(2, 1), pytest.param((2, 1, 2), marks=pytest.mark.long)], ids=str)
def test_a_killed_job_resumes_with_other_numbers_of_processes(tmp_path, processes):
    spec = make_spec(tmp_path)

    def start(name, processes):
        options = {"--checkpoints": tmp_path / "saved", "--nproc-per-node": processes}
        arguments = (
            "--spec",
            spec,
            "--every",
            5,
            "--epochs",
            EPOCHS,
            "--workers",
            1,
            "--keys",
            tmp_path / name,
        )
        return Job(tmp_path / name, [[*documented("with_trainer.py", options), *arguments]])

    runs = []
    for number, count in enumerate(processes):
        with start(f"run-{number}", count) as run:
            if number == len(processes) - 1:
                run.finish()
            else:
                run.run_to((13, 28)[number])
        runs.append(run)
    expected = unbroken_run(spec, EPOCHS * STEPS_OF_AN_EPOCH)
    # The checkpoint after step 10 may not have been whole yet when step 13 was killed.
    assert_exact(runs, expected, list(processes), most_replayed=10)


SHARED_OUT = """
import sys
import torch
import wdspec
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

how, spec, folder = sys.argv[1:]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, image, label, **_):
        return {"loss": self.weight.sum() * image.mean()}

if how == "prepare":
    accelerator = Accelerator(cpu=True)
    pipeline = wdspec.compile(spec, split="train")
    for batch in accelerator.prepare(DataLoader(pipeline, batch_size=None)):
        pass
else:
    arguments = TrainingArguments(
        folder, use_cpu=True, report_to="none", max_steps=3, disable_tqdm=True,
        accelerator_config={"dispatch_batches": {"dispatch": True, "shard": False, "trainer": None}[how]},
    )
    pipeline = wdspec.compile(spec, split="train")
    Trainer(model=Model(), args=arguments, train_dataset=pipeline).train()
print("no refusal")
"""


@pytest.mark.long  # tests/run/test_loader.py has the refusals in one process
@pytest.mark.parametrize("how", ["trainer", "prepare", "shard"])
def test_datasets_that_accelerate_would_split_again_are_rejected_on_two_ranks(tmp_path, how):
    spec = make_spec(tmp_path)
    if how != "prepare":
        text = spec.read_text().replace("batch: {global_size: 8}\n", "")
        spec.write_text(text.replace("{batches: 25}", "100").replace("{batches: 3}", "30"))
    script = tmp_path / "shared_out.py"
    script.write_text(SHARED_OUT)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    with Job(tmp_path / how, [[*launch, script, how, spec, tmp_path / "out"]]) as job:
        job.wait()
        assert "Accelerate would share out what this rank reads" in job.said()
        assert "no refusal" not in job.said()
        assert job.processes[0].returncode
