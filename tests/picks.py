"""Functions that specs in tests name."""

NUMBER = 1


def most(sample):
    return sum(sample["__key__"].encode()) % 5 != 0


def few(sample):
    return sum(sample["__key__"].encode()) % 5 == 0


def none(sample):
    return False


def shout(sample):
    return {**sample, "txt": sample["txt"].upper()}


class Adder:
    def __init__(self, n):
        self.n = n

    def __call__(self, sample):
        return {**sample, "cls": sample["cls"] + self.n}


class Dumb:
    pass


def tag_length(sample):
    return {**sample, "n": len(sample["lang"])}


def gives_none(sample):
    return None


def fails(sample):
    return {**sample, "x": 1 / 0}
