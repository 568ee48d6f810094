"""A sentence encoder such as MiniLM: its tokens, its vectors, and a copy of its weights to train."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de.errors import EmbeddingError
from ir3de_lab.rivals.interface import at_least, needed, spelt
from ir3de_lab.rivals.vector_store import Maker, Vectors, VectorStore

Pooling = Literal["mean", "cls"]
Precision = Literal["float32", "bfloat16"]

POOLINGS: tuple[Pooling, ...] = ("mean", "cls")
_SHORTEST = np.float32(1e-12)  # a vector's length: nothing is divided by less
_TOKENS = {"cuda": 65_536, "cpu": 8_192}  # encoded at once, padding included
_OWN_CONTEXT_BYTES = 2**31  # what this process takes of an accelerator besides its tensors, at most
_MARK = "A text that every encoder reads once: 2 + 2 = 4, and the court is in session."
_STORED_TOKENS = 32_768  # encoded between two writes to a store


class Encoder:
    """A transformer in a local folder or under a hub id, on the accelerator if there is one.

    Of a text it reads `longest` tokens, or as many as it has positions for if those are fewer. With `remember`, a text
    that was encoded once is not encoded again: many routers can then be measured on the same texts. A `store` keeps
    what is remembered in a folder, too. `timed` suspends both.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        longest: int = 256,
        batch: int = 256,
        remember: bool = False,
        device: str = "",
        store: Path | None = None,
        precision: Precision = "float32",
    ) -> None:
        at_least("longest", longest, 1)
        at_least("batch", batch, 1)
        self.source, self.longest, self.batch, self.precision = str(source), longest, batch, precision
        self._memory: dict[str, Vectors] | None = {} if remember or store else None
        self._given_device = device
        self._store = None if store is None else VectorStore(store)

    @property
    def name(self) -> str:
        """The last part of where it came from."""
        return Path(self.source).name

    @cached_property
    def torch(self) -> Any:
        return needed("torch", extra="encoders", purpose="Running a sentence encoder")

    @cached_property
    def device(self) -> str:
        return self._given_device or ("cuda" if self.torch.cuda.is_available() else "cpu")

    def shares_accelerator(self) -> bool:
        """Whether other programs have memory on the accelerator: times are then too long."""
        if self.device != "cuda":
            return False
        free, total = self.torch.cuda.mem_get_info()
        return bool(total - free - self.torch.cuda.memory_reserved() > _OWN_CONTEXT_BYTES)

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Random numbers that begin at a seed; the caller's go on afterwards as if there had been none."""
        devices = [self.torch.cuda.current_device()] if self.device == "cuda" else []
        with self.torch.random.fork_rng(devices):
            self.torch.manual_seed(seed)
            yield

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        transformers = needed("transformers", extra="encoders", purpose="Running a sentence encoder")
        transformers.utils.logging.disable_progress_bar()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.source)
            with self.seeded(0):  # a layer that the source lacks is drawn
                model = transformers.AutoModel.from_pretrained(self.source, dtype=self.torch.float32)
        except (OSError, ValueError) as error:
            raise EmbeddingError(
                f"{self.source} is no encoder that transformers can read ({error}): name a folder or a hub id"
            ) from error
        return tokenizer, model.to(self.device).eval()

    @cached_property
    def reads(self) -> int:
        """How many tokens of a text are read, the special ones included."""
        model = self._loaded[1]
        positions = int(getattr(model.config, "max_position_embeddings", 0) or self.longest)
        table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        if padding is not None:  # MPNet and RoBERTa count positions from the one after it
            positions -= int(padding) + 1
        return min(self.longest, positions)

    @cached_property
    def trained_on(self) -> int | None:
        """The most tokens of the texts that its vectors were trained on, where its folder says so."""
        try:
            return int(json.loads((Path(self.source) / "sentence_bert_config.json").read_bytes())["max_seq_length"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def width(self) -> int:
        return int(self._loaded[1].config.hidden_size)

    @property
    def weights(self) -> list[Any]:
        """The model's own."""
        return list(self._loaded[1].parameters())

    @cached_property
    def tokenizer_bytes(self) -> int:
        """What the tokenizer takes: its definition, or its words where it has no more to show."""
        tokenizer = self._loaded[0]
        engine = getattr(tokenizer, "backend_tokenizer", None)
        return spelt([engine.to_str()] if engine is not None else tokenizer.get_vocab())

    @property
    def usual_pooling(self) -> Pooling:
        """The first token's vector where texts begin with one that stands for the whole, as in BERT; else the mean."""
        return "cls" if self.tokens([""])[0][0] == self._loaded[0].cls_token_id else "mean"

    def copy_to_train(self) -> Any:
        """The model as it was read, free to be changed."""
        return deepcopy(self._loaded[1])

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text's ids with the special ones, cut to the longest allowed."""
        whole = [text.encode(errors="replace").decode() for text in texts]  # half a surrogate pair stops the engine
        ids: list[list[int]] = self._loaded[0](whole, truncation=True, max_length=self.reads)["input_ids"]
        return [of_text or [self._padding] for of_text in ids]  # an empty text, where no special token frames it

    @property
    def _padding(self) -> int:
        return int(self._loaded[0].pad_token_id or 0)

    def vectors(self, model: Any, tokens: Sequence[Sequence[int]], *poolings: Pooling) -> list[Any]:
        """For each pooling, a vector a text from the last layer: the mean over its tokens, or the first one's."""
        torch, pad = self.torch, self._padding
        lengths = torch.tensor([len(ids) for ids in tokens])
        width = int(lengths.max())
        padded = torch.tensor([[*ids, *[pad] * (width - len(ids))] for ids in tokens]).to(self.device)
        mask = (torch.arange(width) < lengths[:, None]).long().to(self.device)
        with self._arithmetic():
            hidden = model(input_ids=padded, attention_mask=mask).last_hidden_state.float()
        mean = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return [mean if pooling == "mean" else hidden[:, 0] for pooling in poolings]

    def _arithmetic(self) -> AbstractContextManager[Any]:
        """Products in bfloat16 where that was asked for; weights and what is learnt stay in float32."""
        if self.precision == "float32":
            return nullcontext()
        arithmetic: AbstractContextManager[Any] = self.torch.autocast(self.device, self.torch.bfloat16)
        return arithmetic

    def by_length(self, tokens: Sequence[Sequence[int]]) -> Iterator[npt.NDArray[np.intp]]:
        """The places of the texts, a batch at a time, long with long: little padding."""
        order, begin = np.argsort([-len(ids) for ids in tokens], kind="stable"), 0
        while begin < len(order):
            size = max(1, min(self.batch, _TOKENS.get(self.device, _TOKENS["cpu"]) // len(tokens[order[begin]])))
            yield order[begin : begin + size]
            begin += size

    def encode(self, texts: Sequence[str], pooling: Pooling = "mean", *, unit: bool = True) -> Vectors:
        """The texts' vectors (n, h), of length one, or as they come from the last layer."""
        vectors = self._pooled(texts, pooling)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SHORTEST) if unit else vectors

    def _pooled(self, texts: Sequence[str], pooling: Pooling) -> Vectors:
        if self._memory is None:
            return self._encode(texts, (pooling,))[:, 0]
        self._remember(list(dict.fromkeys(text for text in texts if text not in self._memory)), self._memory)
        place = POOLINGS.index(pooling)
        return np.stack([self._memory[text][place] for text in texts])

    def _remember(self, texts: list[str], memory: dict[str, Vectors]) -> None:
        """Encode the texts into the memory; with a store, take those from there that it has, and put the others in."""
        if not texts:
            return
        if self._store is None:
            memory.update(zip(texts, self._encode(texts, POOLINGS), strict=True))
            return
        memory.update(self._store.find(texts, self._maker))
        new = sorted((text for text in texts if text not in memory), key=len)
        for some in self._portions(new):
            vectors = self._encode(some, POOLINGS)
            self._store.add(some, vectors, self._maker)
            memory.update(zip(some, vectors, strict=True))

    def _portions(self, texts: list[str]) -> Iterator[list[str]]:
        """The texts, a few at a time: what is encoded between two writes."""
        some: list[str] = []
        total = 0
        for text, ids in zip(texts, self.tokens(texts) if texts else [], strict=True):
            some.append(text)
            total += len(ids)
            if total >= _STORED_TOKENS:
                yield some
                some, total = [], 0
        if some:
            yield some

    @cached_property
    def _maker(self) -> Maker:
        return Maker(self._encode([_MARK], POOLINGS)[0], self.reads)

    def _encode(self, texts: Sequence[str], poolings: tuple[Pooling, ...]) -> Vectors:
        tokens, model = self.tokens(texts), self._loaded[1]
        made = np.empty((len(texts), len(poolings), self.width), np.float32)
        with self.torch.inference_mode():
            for places in self.by_length(tokens):
                vectors = self.vectors(model, [tokens[i] for i in places], *poolings)
                made[places] = self.torch.stack(vectors, dim=1).cpu().numpy()
        return made

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Loaded and without the memory, so that a time is that of the whole way from texts, and of nothing else."""
        _ = self._loaded
        memory, self._memory = self._memory, None
        try:
            yield
        finally:
            self._memory = memory
