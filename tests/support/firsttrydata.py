"""Data as people have it, small: tokenizers that are trained on the spot, and rows of files."""

END = "<|endoftext|>"


def train_tokenizer(texts, path, special=()):
    """Trains a byte-level BPE tokenizer, writes it, and returns it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[END, *special], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return tokenizer


def read_rows(path):
    """The rows of a JSON Lines file."""
    import json

    return [json.loads(line) for line in path.read_text().splitlines()]
