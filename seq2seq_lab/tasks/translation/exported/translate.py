"""Translate the lines of standard input with the model in this folder: `python translate.py < FILE`."""

import json
import sys
import unicodedata
from pathlib import Path

import regex
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent
config = json.loads((HERE / "config.json").read_text("utf-8"))
tokenizer = json.loads((HERE / "tokenizer.json").read_text("utf-8"))
modules = {name: getattr(torch.nn, kind)(**sizes) for name, (kind, sizes) in config["modules"].items()}
model = torch.nn.ModuleDict(modules).requires_grad_(False)
model.load_state_dict(load_file(HERE / "model.safetensors"))


def translate(text: str) -> str:
    """Return the translation: the most probable token at each step, until <eos> or the length limit."""
    pieces = regex.finditer(tokenizer["pattern"], unicodedata.normalize("NFC", text))  # ￭: no space
    tokens = ("￭" * bool(piece["left"]) + piece[0] + "￭" * bool(piece["right"]) for piece in pieces)
    inputs, outputs = [2, *(tokenizer["source"].get(token, 0) for token in tokens), 3], [2]
    encoded_SM, final_LH = model["encoder"](model["source"](torch.tensor(inputs)))
    state_LH, keys_SK = model["bridge"](final_LH.view(config["layers"], -1)).tanh(), model["key"](encoded_SM)
    limit = int(round(config["max_length_factor"] * len(inputs), 9)) + config["max_length_extra"]
    while outputs[-1] != 3 and len(outputs) <= limit:  # ids: 0 is <unk>, 1 <pad>, 2 <sos>, 3 <eos>
        top_1H, state_LH = model["decoder"](model["target"](torch.tensor(outputs[-1:])), state_LH)
        weights_S1 = model["energy"]((model["query"](top_1H) + keys_SK).tanh()).softmax(dim=0)
        features_1F = model["combine"](torch.cat([weights_S1.T @ encoded_SM, top_1H], dim=1)).tanh()
        outputs.append(int(model["readout"](features_1F).argmax()))
    output = " ".join(tokenizer["target"][token] for token in outputs if token not in (2, 3))
    return regex.sub("￭ ￭?| ￭", "", output).strip("￭") if text.strip() else ""


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for line in sys.stdin.buffer:
        print(translate(line.decode("utf-8-sig")))
