"""Many processes that do one thing at the same moment."""

import multiprocessing
import os
import traceback

PROCESSES = 32


def at_once(act, count=PROCESSES):
    """The results of `act(n)`, or the texts of its errors, in forked processes that start together."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    processes = []
    for number in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_one, args=(act, number, barrier, theirs))
        process.start()
        theirs.close()
        processes.append((process, ours))
    results = []
    for process, ours in processes:
        try:
            results.append(ours.recv() if ours.poll(200) else "it hangs")
        except EOFError:
            results.append("it died")
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()
    return results


def _one(act, number, barrier, pipe):
    try:
        barrier.wait(200)
        pipe.send(act(number))
    except BaseException:
        pipe.send(traceback.format_exc())
    finally:
        pipe.close()
        os._exit(0)
