"""Memory of batches: blocks are used again when nothing refers to them, and rows become batches without a copy."""

import gc
import threading

import numpy as np
import pytest
import torch

from wdspec.fields.memory import LARGE, MOST_BLOCKS, MOST_FREE, Pool, Rows, current
from wdspec.read.batch import stack

VIEWS = {
    "itself": lambda array: array,
    "a view": lambda array: array[5:],
    "a view of a view": lambda array: array.reshape(2, -1)[1][::2],
    "other type": lambda array: array.view(np.int16),
    "a tensor": torch.from_numpy,
    "a view of a tensor": lambda array: torch.from_numpy(array).view(2, -1)[1],
    "an array of a tensor": lambda array: torch.from_numpy(array)[7:].numpy(),
    "a storage": lambda array: torch.from_numpy(array).untyped_storage(),
    "a memoryview": lambda array: memoryview(array)[3:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_block_is_reused_only_after_its_last_view_is_gone(view):
    pool = Pool()
    array = pool.empty((LARGE,), np.uint8)
    place = array.ctypes.data
    kept = VIEWS[view](array)
    del array
    assert pool.empty((LARGE,), np.uint8).ctypes.data != place
    del kept
    gc.collect(0)  # all of it is young
    assert pool.empty((LARGE,), np.uint8).ctypes.data == place


def test_small_arrays_and_many_kept_arrays_get_new_memory():
    pool = Pool()
    assert pool.empty((3, 4), np.float32).shape == (3, 4)
    assert pool.blocks == []
    kept = [pool.empty((LARGE // 4,), np.float32) for _ in range(MOST_BLOCKS + 3)]
    assert len(pool.blocks) == MOST_BLOCKS
    assert len({array.ctypes.data for array in kept}) == len(kept)
    kept.clear()
    for _ in range(2 * MOST_BLOCKS):
        pool.empty((LARGE,), np.uint8)
    assert len(pool.blocks) <= MOST_FREE + 1, "free blocks go back to the system"


def test_blocks_of_another_size_are_evicted():
    pool = Pool()
    kept = [pool.empty((LARGE,), np.uint8) for _ in range(MOST_BLOCKS)]
    del kept[0]
    assert pool.empty((10 * LARGE,), np.uint8).nbytes == 10 * LARGE
    assert len(pool.blocks) == MOST_BLOCKS


def fill(rows, count, wrap=lambda array: array, field="jpg"):
    values = []
    for number in range(count):
        array, value = rows.next(field, (4, 3), "uint8", wrap)
        array[:] = number
        values.append(value)
    return values


@pytest.mark.parametrize("wrap", [lambda array: array, torch.from_numpy])
def test_rows_are_stacked_once_without_a_copy(wrap):
    rows = Rows(5)
    with rows:
        values = fill(rows, 5, wrap)
    batch, again = stack(values), stack(values)
    assert batch.shape == (5, 4, 3)
    assert batch.data_ptr() == torch.as_tensor(values[0]).data_ptr()
    assert again.data_ptr() != batch.data_ptr()
    assert torch.equal(batch, again)
    assert batch.untyped_storage().nbytes() == batch.nbytes


def test_partial_and_reordered_batches_have_the_right_values():
    rows = Rows(6)
    with rows:
        values = fill(rows, 14)
    for chosen in ([1, 2, 3], [3, 2], [5, 6, 7], [0, 2], [4], [12, 13], list(range(6, 12))):
        assert stack([values[at] for at in chosen])[:, 0, 0].tolist() == chosen


def test_rows_are_used_only_within_one_thread_and_step_for_stacked_fields():
    rows = Rows(2, frozenset({"mask"}))
    assert Rows().next("jpg", (4,), "uint8", lambda array: array) is None
    with rows:
        assert current.rows is rows
        assert rows.next("mask", (4,), "uint8", lambda array: array) is None
        seen = []
        thread = threading.Thread(target=lambda: seen.append(current.rows))
        thread.start()
        thread.join()
        assert seen == [None]
        values = fill(rows, 2)
    assert current.rows is None
    with rows:
        fill(rows, 2)
    assert stack(values)[:, 0, 0].tolist() == [0, 1], "those of an earlier step are copied"
