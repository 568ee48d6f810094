"""Small real parts for the tests: two tokenizers, random matrices, the texts of three made-up domains.

Everything here is the real thing in small: a byte-level BPE trained on a few sentences, a WordPiece that has an
unknown token, an embedding of twelve columns. Proving the fast engine on a new tokenizer takes seconds, so a proof is
made once and kept in pytest's cache, for the other workers and the next run (`keep_proof`).
"""

import hashlib
import json
import os
import random
import sys
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer as ReferenceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

import ir3de
from ir3de import Embedding, Router
from ir3de.embedding import Matrix, Tokenizer, fast_tokenizer, normalisation, proof, tokenizer
from ir3de.embedding.proof import Proof
from ir3de.scorers import Blend

WIDTH = 12
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "tokenizers"

Test = TypeVar("Test", bound=Callable[..., object])
_fitted: dict[str, Router] = {}

_EVERYBODYS = "the a of is what how why this that and or with for can you tell me about please explain in"
_OWN = {
    "maths": "prove integer prime sum 12 7 equation x² root √2 solve angle triangle 3x + = theorem",
    "law": "contract court landlord evict tenant clause §5 judge appeal liable statute void will heir",
    "cooking": "boil egg bread flour oven recipe salt simmer café naïve onion roast dough 200° stir",
}
COMMON = _EVERYBODYS.split()
DOMAINS = {domain: words.split() for domain, words in _OWN.items()}


def LAW(test: Test) -> Test:
    """Hypothesis with as many examples as the profile says, and no clock.

    The fixtures used are read-only or made anew inside the test. The profile is read when a test is defined, so that
    `--hypothesis-profile=thorough` holds here, too.
    """
    return law_settings()(test)


def law_settings(*, times: int = 1, **changes: Any) -> settings:
    """So many times the examples of the profile, where one takes no time: by day enough to notice, at night many."""
    unchecked = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    examples = times * settings().max_examples
    return settings(**{"max_examples": examples, "deadline": None, "suppress_health_check": unchecked, **changes})


def sentences(domain: str, number: int, *, seed: int = 0, longest: int = 30) -> list[str]:
    """Texts of a made-up domain: its own words and everybody's, always the same for the same seed."""
    draw = random.Random(f"{domain} {seed}")
    words = [*DOMAINS[domain], *DOMAINS[domain], *COMMON]
    return [" ".join(draw.choices(words, k=draw.randint(1, longest))) for _ in range(number)]


def mixed(number: int, *, seed: int = 0, longest: int = 40) -> list[str]:
    """Prompts with words of all domains."""
    draw = random.Random(seed)
    words = [*COMMON, *(word for own in DOMAINS.values() for word in own), "🙂", "字", "Ж", "\n"]
    return [" ".join(draw.choices(words, k=draw.randint(1, longest))) for _ in range(number)]


@cache
def byte_definition() -> bytes:
    """A byte-level BPE of about 330 tokens: it knows every text."""
    tokenizer = ReferenceTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())
    )
    tokenizer.train_from_iterator([text for domain in DOMAINS for text in sentences(domain, 40)], trainer)
    return tokenizer.to_str().encode()


@cache
def word_definition() -> bytes:
    """A WordPiece of whole words: what it lacks becomes [UNK], and white space becomes nothing."""
    words = ["[UNK]", *COMMON, *(word for own in DOMAINS.values() for word in own if word.isascii() and word.isalpha())]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys(words))}
    tokenizer = ReferenceTokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer.to_str().encode()


def random_matrix(rows: int, *, seed: int = 0, width: int = WIDTH) -> Matrix:
    return Matrix.plain(np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32))


@cache
def embedding() -> Embedding:
    """The byte-level BPE with a random matrix."""
    return keep_proof(Embedding.from_definition(byte_definition(), random_matrix(330), name="tiny"))


@cache
def other_embedding() -> Embedding:
    """The same tokenizer with another matrix: another fingerprint."""
    return with_matrix(random_matrix(330, seed=1), name="other")


@cache
def word_embedding() -> Embedding:
    """The WordPiece with a random matrix."""
    return keep_proof(Embedding.from_definition(word_definition(), random_matrix(80), name="words"))


def keep_proof(given: Embedding) -> Embedding:
    """The same embedding, its tokenizer's proof read from pytest's cache, or made and written there.

    What is kept is named by all that a proof depends on, the code that makes it included. The tests of proofs
    themselves make theirs anew.
    """
    definition = given.tokenizer.definition

    def make() -> bytes:
        made = given.tokenizer.proof
        return json.dumps(made and asdict(made)).encode()

    kept = json.loads(keep("proof", definition + _maker_of_proofs(), make))
    if kept is None:  # no fast engine, or none that may be used: there is nothing to spare
        return given
    return Embedding(Tokenizer(definition, proof=Proof(**kept)), given.stored, name=given.name)


def keep(kind: str, made_of: bytes, make: Callable[[], bytes]) -> bytes:
    """What is in pytest's cache under all that it is made of, or is made and written there, once for all workers."""
    path = CACHE / f"{kind}-{hashlib.sha256(made_of).hexdigest()}"
    if not path.exists():
        made = make()
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(made)
        with suppress(FileExistsError):  # another worker was faster, and all have what that one made
            os.link(unfinished, path)
        unfinished.unlink()
    return path.read_bytes()


@cache
def _maker_of_proofs() -> bytes:
    try:
        engine = version("tokie")
    except PackageNotFoundError:
        engine = "none"
    modules = (normalisation, fast_tokenizer, proof, tokenizer)
    code = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return f"{engine} {unicodedata.unidata_version} ".encode() + code


def with_matrix(matrix: Matrix, *, name: str = "tiny") -> Embedding:
    """The byte-level BPE, already proven, with a matrix of one's own."""
    return Embedding(embedding().tokenizer, matrix, name=name)


def domain_texts(number: int = 12, *, seed: int = 0) -> dict[str, list[str]]:
    return {domain: sentences(domain, number, seed=seed) for domain in DOMAINS}


def router(number: int = 12, *, seed: int = 0, of: Embedding | None = None, **options: Any) -> Router:
    """A small router of the three domains: the closed form, whose table is small, unless options say otherwise.

    Each is fitted once. What tests get is a copy that they may change: the numbers behind it never change.
    """
    key = f"{number} {seed} {(of or embedding()).fingerprint} {options}"
    if key not in _fitted:
        _fitted[key] = fit_router(number, seed=seed, of=of, **options)
        table = _fitted[key].compiled.table
        for part in (table.scores, table.vote, table.familiarity, table.pairs):
            if part is not None:
                part.setflags(write=False)  # what others have, too
    return copy(_fitted[key])


def fit_router(number: int = 12, *, seed: int = 0, of: Embedding | None = None, **options: Any) -> Router:
    """That router fitted anew, for tests of fitting itself."""
    if not options.get("tune"):
        options = {"scorer": Blend(), **options}
    return Router.fit(domain_texts(number, seed=seed), embedding=of or embedding(), **options)


def same_table(one: Router, other: Router) -> bool:
    """Whether two routers are the same to the last bit where it matters for routing: calibration, costs and all."""
    first, second = one.compiled, other.compiled
    return first.rules == second.rules and all(
        np.array_equal(getattr(first.table, part), getattr(second.table, part))
        for part in ("scores", "vote", "entropy", "rank", "familiarity", "pairs")
    )


def same_samples(one: Router, other: Router) -> bool:
    """Whether two routers keep the same prompts, which equal statistics need not."""
    first, second = one.statistics, other.statistics
    return list(first) == list(second) and all(first[name].sample == second[name].sample for name in first)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a router's folder with its bytes, but for the ledger, which says when."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "ledger.jsonl"}


def python_command(script: str, *arguments: object) -> tuple[list[str], dict[str, str]]:
    """The command and environment that run a script with this very ir3de."""
    environment = {**os.environ, "PYTHONPATH": str(Path(ir3de.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
    return [sys.executable, "-c", script, *map(str, arguments)], environment
