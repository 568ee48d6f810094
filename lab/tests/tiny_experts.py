"""A language model of a few thousand weights and folders of suites, so that experts are trained in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOMAINS = {
    "cooking": ["boil the egg in salted water", "bake the bread with flour and butter", "fry an onion in butter"],
    "law": [
        "the court held the contract void",
        "a tenant may sue the landlord",
        "the appeal was dismissed by the court",
    ],
}
CLM = """
version = 1
name = "tiny"
title = "TINY"
metric = "perplexity"
domains = ["cooking", "law"]
[data]
suite = "tiny"
[base]
model = "{base}"
[training]
method = "{method}"
steps = {steps}
batch = 4
length = 16
rate = 1e-2
checkpoint = 3
[evaluation]
length = 32
batch_tokens = 64
[protocol.clean]
[protocol.authors]
prompts = 10
repeat = true
fit_width = 13
fit_batch = 4
drop_last = true
"""
TASKS = {"math": "gsm8k", "multilingual": "m_arc", "coding": "humaneval", "instruction": "ifeval"}
REASONING = """
version = 1
name = "reasoned"
title = "REASONED"
metric = "score"
domains = ["math", "multilingual", "coding", "instruction"]
[data]
suite = "reasoned"
{models}
[tasks]
math = "gsm8k"
multilingual = "m_arc"
coding = "humaneval"
instruction = "ifeval"
[training]
steps = {steps}
batch = 2
length = 96
rate = 1e-2
[evaluation]
length = 96
batch_tokens = 512
generation_tokens = 512
most_new_tokens = {{ gsm8k = 6, humaneval = 16, ifeval = 8 }}
"""
QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "math": [
        {"text": "Six eggs and four eggs?", "answer": "10", "solution": "6 + 4 = 10\n#### 10"},
        {"text": "Half of fourteen?", "answer": "7", "solution": "14 / 2 = 7\n#### 7"},
    ],
    "multilingual": [
        {"text": "Was ist rot?", "lang": "de", "options": {"A": "Gras", "B": "Blut"}, "answer": "B"},
        {"text": "Was ist nass?", "lang": "de", "options": {"A": "Regen", "B": "Sand"}, "answer": "A"},
        {"text": "Que es frio?", "lang": "es", "options": {"A": "sol", "B": "hielo", "C": "pan"}, "answer": "B"},
    ],
    "coding": [
        {
            "text": "def one():\n",
            "entry_point": "one",
            "tests": "def check(candidate):\n    assert candidate() == 1\n",
            "answer": "    return 1\n",
        },
        {
            "text": "def twice(n):\n",
            "entry_point": "twice",
            "tests": "def check(candidate):\n    assert candidate(4) == 8\n",
            "answer": "    return 2 * n\n",
        },
    ],
    "instruction": [
        {
            "text": "Name a fruit without a comma and in two words or more.",
            "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
            "kwargs": [{}, {"relation": "at least", "num_words": 2}],
        },
        {"text": "Say it in quotes.", "instruction_id_list": ["startend:quotation"], "kwargs": [{}]},
    ],
}


def base_model(folder: Path) -> Path:
    """A Llama with two thin layers that knows nothing, and a tokenizer of whole words and characters."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text for texts in DOMAINS.values() for text in texts], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        eos_token_id=0,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def suites(folder: Path, rows: dict[str, list[dict[str, Any]]] | None = None, name: str = "tiny") -> Path:
    """A folder of one suite: ten times the texts to train on, each text once to test on."""
    given = rows or {domain: [{"text": text} for text in texts] for domain, texts in DOMAINS.items()}
    for domain, found in given.items():
        place = folder / name / domain
        place.mkdir(parents=True)
        for split, times in (("train", 10), ("test", 1)):
            lines = [
                json.dumps({**row, "text": row["text"] + (f" {i}" if times > 1 else "")})
                for i in range(times)
                for row in found
            ]
            (place / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def setting_file(folder: Path, base: Path, *, method: str = "full", steps: int = 8) -> Path:
    """The setting of those two domains."""
    path = folder / "tiny.toml"
    path.write_text(CLM.format(base=base, method=method, steps=steps), encoding="utf-8")
    return path


def questions(folder: Path) -> Path:
    """A folder of the suite of four tasks; rows to train on have answers, and other words."""
    for domain, rows in QUESTIONS.items():
        place = folder / "reasoned" / domain
        place.mkdir(parents=True)
        learnt = [{"answer": "An apple", **row, "text": f"Please: {row['text']}"} for row in rows]
        for split, given in (("train", learnt), ("test", rows)):
            (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given), encoding="utf-8")
    return folder


def reasoning_file(
    folder: Path, base: Path | None = None, *, experts: dict[str, Path] | None = None, steps: int = 3
) -> Path:
    """The setting of the four tasks, its experts to be trained or there already."""
    models = f"[base]\nmodel = {json.dumps(str(base))}\n" if base else ""
    if experts:
        models += "[experts]\n" + "".join(f"{name} = {json.dumps(str(path))}\n" for name, path in experts.items())
    path = folder / "reasoned.toml"
    path.write_text(REASONING.format(models=models, steps=steps), encoding="utf-8")
    return path


def silenced(base: Path, folder: Path) -> Path:
    """The model with all tokens alike to it: the likeliest is the first one, which ends a text."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    torch.nn.init.zeros_(model.lm_head.weight)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def read_answers(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of answers: how they were made, and a row an item."""
    import lzma

    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]
