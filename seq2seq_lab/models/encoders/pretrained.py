"""Pretrained encoders of Hugging Face transformers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, NonNegative, Share
from seq2seq_lab.data.tokenizers.base import SPECIALS
from seq2seq_lab.data.tokenizers.pretrained import SHIFT, PretrainedTokenizer, check_folder
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.recurrent import RecurrentState


class PretrainedEncoder(TokenEncoder):
    """The last hidden states of a pretrained encoder (Devlin 2019, arXiv:1810.04805), projected.

    The outputs are W x_j + b of the hidden states x_j of the subwords; the final state is the output of the first position,
    [CLS]. The encoder has its own tokenizer and embeddings.

    Args:
        input_size: size of the source embeddings, which this encoder does not use.
        path: a folder with `config.json`, `model.safetensors` and `tokenizer.json`. No code in it is executed.
        lr: the learning rate of the pretrained weights. None freezes them: they have no gradients and no dropout, and
            checkpoints do not contain them.
        size: M, of the encoder outputs.
        encoder_output_dropout: probability on the outputs that the decoder attends to.

    Raises:
        UserError: transformers is not installed, or the folder cannot be used.
    """

    source = "subwords"
    special_ids: Tensor

    def __init__(
        self,
        *,
        input_size: int,
        path: str | None,
        lr: NonNegative | None,
        size: Count,
        encoder_output_dropout: Share,
    ) -> None:
        super().__init__()
        self.path = path
        self.lr = lr
        self.model = load_model(path).requires_grad_(lr is not None)
        if lr is None:
            self.register_state_dict_post_hook(_without_model)  # type: ignore[no-untyped-call]
        tokenizer = PretrainedTokenizer.read(path, framed=False)
        rows, types = self.model.get_input_embeddings().num_embeddings, tokenizer.size - SHIFT
        if types > rows:
            raise UserError(
                f"encoder.path={path}: tokenizer.json has {types:,} types and the model embeddings of {rows:,}. Give the "
                "tokenizer that the model was trained with, or resize the embeddings of the model and train it."
            )
        self.register_buffer("special_ids", torch.tensor(tokenizer.special_ids), persistent=False)
        self.embedding_size = self.model.get_input_embeddings().embedding_dim
        self.projection = nn.Linear(self.model.config.hidden_size, size)
        self.dropout = Dropout(encoder_output_dropout, locked=False)
        self.sizes = EncoderSizes(size, final_size=size, num_layers=1)

    @classmethod
    def tokenizer(cls, settings: Mapping[str, Any], framed: bool) -> PretrainedTokenizer:
        return PretrainedTokenizer.read(settings["path"], framed)

    def train(self, mode: bool = True) -> "PretrainedEncoder":
        """Set the training mode. A frozen model stays in evaluation mode."""
        super().train(mode)
        if self.lr is None:
            self.model.eval()
        return self

    def check_length(self, length: int, name: str) -> None:
        most = self._longest_text
        if most is not None and length > most:
            raise UserError(
                f"{name} has {length} tokens with <sos> and <eos>, and the encoder of encoder.path={self.path} reads {most} "
                f"at most. Remove or split longer texts. Where the task has this setting, task.max_length={most - 2} leaves "
                f"them out of training."
            )

    @property
    def _longest_text(self) -> int | None:
        """The largest number of tokens that the model reads; None for any number."""
        positions = getattr(self.model.config, "max_position_embeddings", -1)
        if positions <= 0:
            return None
        # RoBERTa and its variants count positions from padding_idx + 1.
        table = getattr(getattr(self.model, "embeddings", None), "position_embeddings", None)
        padding_index = getattr(table, "padding_idx", None)
        return int(positions if padding_index is None else positions - padding_index - 1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [] if self.lr is None else [{"params": [*self.model.parameters()], "lr": self.lr}]

    def pretrained_parameters(self) -> Iterable[nn.Parameter]:
        parameters: Iterable[nn.Parameter] = self.model.parameters()
        return parameters

    def embed(self, ids_BS: Tensor) -> Tensor:
        special_BS = self.special_ids[ids_BS.clamp(max=len(SPECIALS) - 1)]
        own_BS = torch.where(ids_BS < SHIFT, special_BS, ids_BS - SHIFT)
        embedded_BSE: Tensor = self.model.get_input_embeddings()(own_BS)
        return embedded_BSE

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        self.check_length(max(lengths), "A text")
        mask_BS = padding_mask(lengths, embedded_BSE.shape[1], embedded_BSE.device)
        attention_mask = None if mask_BS is None else mask_BS.long()
        hidden = self.model(inputs_embeds=embedded_BSE, attention_mask=attention_mask).last_hidden_state
        outputs_BSM = self.projection(hidden)
        if mask_BS is not None:
            outputs_BSM = torch.where(mask_BS[..., None], outputs_BSM, 0)
        final = RecurrentState(outputs_BSM[None, :, 0], None)
        return EncoderOutputs(self.dropout(outputs_BSM), lengths, final)


def load_model(path: str | None) -> Any:
    """Return the model of a folder without its pooling layer; on the meta device, without weights.

    Raises:
        UserError: see `PretrainedEncoder`.
    """
    try:
        import transformers
    except ImportError as error:
        raise UserError(
            "encoder=pretrained needs transformers: pip install 'seq2seq_lab[pretrained]'."
        ) from error
    folder = check_folder(path, "config.json")
    options = {"trust_remote_code": False, "local_files_only": True}
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()  # missing weights are an error below
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        if config.is_encoder_decoder:
            raise ValueError("it has a decoder, and only BERT-style encoders can be used")
        if torch.get_default_device().type == "meta":
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
        else:
            model, loading_info = transformers.AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
                **options,
            )
            missing = sorted(name for name in loading_info["missing_keys"] if not name.startswith("pooler."))
            if missing:
                raise ValueError(f"its weights lack {', '.join(missing[:3])}")
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            f"encoder.path={path} cannot be loaded: {str(error).rstrip('.')}. Give the folder of a BERT-style encoder, "
            f"with config.json and model.safetensors and without its own code."
        ) from error
    if hasattr(model, "pooler"):
        model.pooler = None  # no output depends on it
    return model


def _without_model(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Leave the weights of the model out of the state of the encoder."""
    for name in [name for name in state if name.startswith(f"{prefix}model.")]:
        del state[name]
