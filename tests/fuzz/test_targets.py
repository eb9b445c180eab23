"""The corpus and mutations of it find nothing; `scripts/fuzz` continues from here."""

import random
from pathlib import Path

import pytest
import targets

CORPUS = Path(__file__).parent / "corpus"
INPUTS = [(name, path) for name in targets.TARGETS for path in sorted((CORPUS / name).iterdir())]


@pytest.mark.parametrize(("name", "path"), INPUTS, ids=[f"{name}-{path.name}" for name, path in INPUTS])
def test_mutations_of_the_corpus_find_nothing(name, path):
    mutate(name, path, seed=1, count=40)


@pytest.mark.long
@pytest.mark.parametrize(("name", "path"), INPUTS, ids=[f"{name}-{path.name}" for name, path in INPUTS])
def test_many_mutations_of_the_corpus_find_nothing(name, path):
    mutate(name, path, seed=2, count=4000)


def mutate(name, path, seed, count):
    target, whole, generator = targets.TARGETS[name], path.read_bytes(), random.Random(f"{seed}{path.name}")
    target(whole)
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(generator.choice((1, 1, 2, 5))):
            at = generator.randrange(len(data) + 1)
            match generator.randrange(5):
                case 0:
                    data[at : at + 1] = generator.randbytes(1)
                case 1:
                    del data[at : at + generator.choice((1, 512, len(data)))]
                case 2:
                    data[at:at] = data[: generator.choice((1, 16, 512))]
                case 3:
                    data[at : at + 8] = bytes(generator.choice((8, 512)))
                case 4 if at < len(data):
                    data[at] ^= 1 << generator.randrange(8)
        target(bytes(data))
