"""Language models from a folder, a GGUF file or a hub id, or the name of a packaged model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ir3de.embedding.packaged_models import locate
from ir3de.errors import EmbeddingError, InputError
from ir3de_lab import files
from ir3de_lab.rivals.interface import needed

WEIGHTS = "model.safetensors"
PURPOSE = "Training and asking experts"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A causal language model and its tokenizer, on the accelerator if there is one."""

    model: Any
    tokenizer: Any

    @cached_property
    def torch(self) -> Any:
        return needed("torch", extra="experts", purpose=PURPOSE)

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @property
    def end(self) -> int:
        """The token that ends a text, and pads."""
        return int(self.tokenizer.eos_token_id)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an answer: the one that ends a text and, in a chat, the one that ends a turn."""
        if not self.tokenizer.chat_template:
            return (self.end,)
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "ANSWER"}]
        after = self.ids([self.tokenizer.apply_chat_template(said, tokenize=False).rpartition("ANSWER")[2]])[0]
        special = set(self.tokenizer.get_added_vocab().values())
        return tuple(dict.fromkeys([self.end, *(token for token in after[:1] if token in special)]))

    def to_ask(self) -> LanguageModel:
        """Ready to answer: on an accelerator in half precision."""
        self.model.eval()
        if self.device.type == "cuda":
            self.model.to(self.torch.bfloat16)
        return self

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text's tokens and nothing around them; all at once, as the tokenizer then uses every core."""
        if not texts:
            return []
        found: list[list[int]] = self.tokenizer([_encodable(t) for t in texts], add_special_tokens=False)["input_ids"]
        return found

    def chat_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        """For each prompt the tokens of a chat up to where the answer begins."""
        return self.ids([self._chat(prompt) for prompt in prompts])

    def _chat(self, prompt: str) -> str:
        if not self.tokenizer.chat_template:
            return f"{prompt}\n\n"
        asked = [{"role": "user", "content": _encodable(prompt)}]
        text: str = self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        return text

    def save(self, folder: Path) -> None:
        """Write the weights in half precision and the tokenizer as a folder that transformers reads."""
        from safetensors.torch import save as to_bytes

        files.make_folder(folder)
        self.tokenizer.save_pretrained(folder)
        self.model.config.save_pretrained(folder)
        tensors, seen = {}, set()
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() not in seen:  # weights that are shared are written once
                tensors[name] = tensor.to(self.torch.bfloat16).cpu().contiguous()
            seen.add(tensor.data_ptr())
        files.write(folder / WEIGHTS, to_bytes(tensors, metadata={"format": "pt"}))


def load(source: str | Path, *, device: str = "") -> LanguageModel:
    """Load a model in single precision."""
    torch = needed("torch", extra="experts", purpose=PURPOSE)
    transformers = needed("transformers", extra="experts", purpose=PURPOSE)
    transformers.utils.logging.disable_progress_bar()
    place = locate(str(source))
    where, options = place, {}
    if place.endswith(".gguf"):
        needed("gguf", extra="experts", purpose="Reading a GGUF file")
        where, options = str(Path(place).parent), {"gguf_file": Path(place).name}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **options)
        model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **options)
    except (OSError, ValueError, KeyError) as error:
        raise EmbeddingError(
            f"{place} is no language model that transformers can read ({error}): name a folder, a GGUF file or a hub id"
        ) from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # it was read as plain numbers, and is written as such
    if tokenizer.eos_token_id is None:
        raise EmbeddingError(f"the tokenizer of {place} has no token that ends a text: set eos_token in its files")
    return LanguageModel(model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), tokenizer)


def averaged(models: list[LanguageModel]) -> LanguageModel:
    """One model whose weights are the mean of the others'; it takes the first one's place."""
    torch, first = models[0].torch, models[0]
    states = [model.model.state_dict() for model in models]
    shapes, *others = ({(name, tuple(tensor.shape)) for name, tensor in state.items()} for state in states)
    if odd := next((sorted(shapes ^ other) for other in others if shapes != other), None):
        raise InputError(
            f"the experts have no mean: their weights '{odd[0][0]}' differ in shape. Name experts of one base model"
        )
    with torch.no_grad():
        for name, tensor in states[0].items():
            if tensor.is_floating_point():
                tensor.copy_(torch.stack([state[name].to(tensor.device) for state in states]).mean(dim=0))
    return first


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()  # half a surrogate pair stops the tokenizer
