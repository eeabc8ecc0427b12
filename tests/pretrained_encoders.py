"""Tiny pretrained encoders with random weights, in the format that transformers reads."""

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors


def save_tiny_bert(folder: Path, kind: str = "Bert", **settings: Any) -> Path:
    """Write a BERT of two layers that reads letters, and return its folder.

    Args:
        kind: prefix of the classes of transformers, such as `Roberta` for another model.
    """
    import transformers

    letters = [*string.ascii_lowercase, *".,'"]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_truncation(4)  # as in the files of some encoders; it is not used
    tokenizer.enable_padding()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    with torch.random.fork_rng():
        torch.manual_seed(5)
        config = getattr(transformers, f"{kind}Config")(vocab_size=len(vocabulary), **sizes, **settings)
        model = getattr(transformers, f"{kind}Model")(config)
        for weight in model.parameters():  # the weights of a trained model are not close to 0
            torch.nn.init.normal_(weight, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
