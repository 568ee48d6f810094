"""Speed and memory, each as a ratio to what cannot be avoided: the tokenizer call, the BLAS product.

Every figure is taken in one run with the thing it is compared to, the two taking turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import IR3DEError
from ir3de.kernel import VARIABLE, engine
from ir3de.scorers import Blend, PromptRidge, TokenRidge
from ir3de.statistics import Statistics, collect
from ir3de_lab.benchmarks.measurement import Figure, median_ratio, side_by_side
from ir3de_lab.benchmarks.published import batchwise_fit

Corpus = Sequence[str]


def fast_engine(embedding: Embedding) -> Callable[[Sequence[str]], object]:
    """The fast tokenizer's bulk call, bare: what every figure below is compared to."""
    engine = embedding.tokenizer.fast_engine
    if engine is None:
        raise IR3DEError(
            "the fast tokenizer engine is not in use, so there is nothing to compare with: run ir3de doctor"
        )
    return lambda texts: engine.encode_batch_flat(texts, False)


def routing(
    domains: dict[str, Corpus], tokens: int = 67, *, others: Mapping[str, Corpus] = MappingProxyType({})
) -> list[Figure]:
    """One prompt, end to end, against the two tokenizers; and many prompts against the bulk call.

    The prompts are those of about so many tokens. Of the `others`, which are usually shorter, up to 1,000 are routed.
    """
    router = Router.fit(domains, scorer=Blend())
    default = Router.fit(router.statistics)
    tokenizer = router.tokenizer
    fast_engine(router.embedding)
    texts = [text for corpus in domains.values() for text in corpus]
    lengths = tokenizer.encode_batch(texts)[1]
    near = np.argsort(np.abs(lengths.astype(np.int64) - tokens), kind="stable")[:1_000]
    prompts = [texts[int(i)] for i in near]
    figures, raw = _route_figures(default, router, prompts, bars=(1.8, 1.5))
    figures += _engine_figures({"default": default, "closed form": router}, prompts)
    reference, routed = side_by_side(
        lambda: [tokenizer.reference.encode(prompt, add_special_tokens=False) for prompt in prompts],
        lambda: [router.route(prompt) for prompt in prompts],
    )
    raw["tokenizers_us"] = min(reference) / len(prompts) * 1e6
    raw["rounds_s"] |= {"tokenizers": reference, "route_beside_tokenizers": routed}
    figures.append(
        Figure("tokenizers' own encode / route one prompt", median_ratio(reference, routed), "×", 1.0, True, raw)
    )
    for name, corpus in others.items():
        some = corpus[:: max(1, len(corpus) // 1_000)][:1_000]
        figures += _route_figures(default, router, some, of=f"{name} prompts")[0]
    return [*figures, _batch_figure("default", default, texts), _batch_figure("closed form", router, texts)]


def _batch_figure(name: str, router: Router, texts: Corpus) -> Figure:
    """Many prompts in one call against the bulk tokenizer call."""
    bulk, batch = side_by_side(lambda: fast_engine(router.embedding)(texts), lambda: router.route_batch(texts))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    raw = {
        "prompts": len(texts),
        "megabytes": megabytes,
        "bulk_mb_per_s": megabytes / median(bulk),
        "route_batch_mb_per_s": megabytes / median(batch),
        "route_batch_us_per_prompt": median(batch) / len(texts) * 1e6,
    }
    label = f"route_batch, share of the bulk call's throughput, {name}"
    return Figure(label, median_ratio(bulk, batch), "", 0.5, True, raw)


def _route_figures(
    default: Router,
    closed: Router,
    prompts: Corpus,
    *,
    of: str = "",
    bars: tuple[float | None, float | None] = (None, None),
) -> tuple[list[Figure], dict[str, Any]]:
    """Both routers against the bare tokenizer call on the same prompts, in turn; and the raw numbers."""
    encode = closed.tokenizer.fast_engine.encode
    # without the slow reference engine, which would leave a cold cache to whichever came after it
    bare, by_default, by_closed = side_by_side(
        lambda: [encode(prompt, False) for prompt in prompts],
        lambda: [default.route(prompt) for prompt in prompts],
        lambda: [closed.route(prompt) for prompt in prompts],
        rounds=21,
    )
    lengths = closed.tokenizer.encode_batch(prompts)[1]
    raw: dict[str, Any] = {
        "prompts": len(prompts),
        "mean_tokens": float(lengths.mean()),
        # the fastest round of each, so that they can be compared with one another
        "bare_fast_us": min(bare) / len(prompts) * 1e6,
        "default_route_us": min(by_default) / len(prompts) * 1e6,
        "route_us": min(by_closed) / len(prompts) * 1e6,
        "rounds_s": {"bare": bare, "default_route": by_default, "route": by_closed},
    }
    label = f"route one prompt / bare fast tokenizer call{f', {of}' if of else ''}"
    return [
        Figure(f"{label}, default", median_ratio(by_default, bare), "×", bars[0], False, raw),
        Figure(f"{label}, closed form", median_ratio(by_closed, bare), "×", bars[1], False, raw),
    ], raw


def _engine_figures(routers: Mapping[str, Router], prompts: Corpus) -> list[Figure]:
    """Each router against the bare tokenizer call, by the native kernel and by numpy, each in a process of its own."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "prompts.json")
        texts.write_text(json.dumps(list(prompts)), encoding="utf-8")
        for name, router in routers.items():
            saved = router.save(Path(folder, name), serving=True)
            script = f"from ir3de_lab.benchmarks import speed; speed.print_ratio({str(saved)!r}, {str(texts)!r})"
            for wanted in ("native", "numpy"):
                done = subprocess.run(
                    [sys.executable, "-P", "-c", script],
                    env={**os.environ, VARIABLE: wanted},
                    check=True,
                    capture_output=True,
                )
                raw = json.loads(done.stdout)
                if raw["engine"] == wanted:  # where there is no kernel, numpy is measured once
                    label = f"route one prompt / bare fast tokenizer call, {name}, {wanted}"
                    figures.append(Figure(label, raw["ratio"], "×", None, False, raw))
    return figures


def print_ratio(folder: str, texts: str) -> None:
    """Route prompts with the engine of this process, and print the ratio to the bare tokenizer call, as JSON."""
    router, prompts = Router.load(folder), json.loads(Path(texts).read_text(encoding="utf-8"))
    encode = router.tokenizer.fast_engine.encode
    bare, route = side_by_side(
        lambda: [encode(prompt, False) for prompt in prompts],
        lambda: [router.route(prompt) for prompt in prompts],
        rounds=21,
    )
    each = {"bare_fast_us": min(bare) / len(prompts) * 1e6, "route_us": min(route) / len(prompts) * 1e6}
    sys.stdout.write(json.dumps({"engine": engine.name, "ratio": median_ratio(route, bare), **each}))


def collecting(texts: Corpus, *, megabytes: float = 110.0) -> list[Figure]:
    """Counting a corpus against the bulk tokenizer call on the same texts, all cores for both."""
    embedding = Embedding.default()
    bulk = fast_engine(embedding)
    corpus = list(_at_least(texts, megabytes * 1e6))
    size = sum(len(text.encode()) for text in corpus) / 1e6
    blocks = [corpus[i : i + 2_000] for i in range(0, len(corpus), 2_000)]
    tokenise, histogram, everything, sampled = side_by_side(
        lambda: [bulk(block) for block in blocks],
        lambda: collect(corpus, prompt_sums=False),
        lambda: collect(corpus),
        lambda: collect(corpus, subsample=16),
        rounds=3,
    )
    raw = {
        "megabytes": size,
        "bulk_mb_per_s": size / median(tokenise),
        "histogram_mb_per_s": size / median(histogram),
        "all_mb_per_s": size / median(everything),
        "all_sampled_mb_per_s": size / median(sampled),
        "share_without_sampling": median_ratio(tokenise, everything),
    }
    return [
        Figure(
            "collect, histogram only, share of the bulk call", median_ratio(tokenise, histogram), "", 0.5, True, raw
        ),
        Figure(
            "collect, all statistics (1 window in 16 in the sums)", median_ratio(tokenise, sampled), "", 0.3, True, raw
        ),
    ]


def fitting(texts: Corpus) -> list[Figure]:
    """Fit five experts from statistics, and add a sixth, against the one BLAS product a fit needs."""
    embedding = Embedding.default()
    domains = [collect(texts[i::6], subsample=16) for i in range(6)]  # time does not depend on what the domains are
    five, (name, sixth) = {f"expert {i}": domain for i, domain in enumerate(domains[:5])}, ("sixth", domains[5])
    seen = np.flatnonzero(sum(domain.histogram for domain in five.values()))
    X = np.c_[embedding.matrix[seen], np.ones(len(seen), np.float32)].astype(np.float64)
    return [
        *_fit_figures(TokenRidge(), five, name, sixth, lambda: X.T @ X, bar=2.0),
        # no bar for the default scorer, which needs no product over the vocabulary but S = ẼW
        *_fit_figures(PromptRidge(), five, name, sixth, lambda: embedding.matrix @ np.ones((embedding.width, 5), "f4")),
    ]


def _fit_figures(
    scorer: TokenRidge | PromptRidge,
    five: dict[str, Statistics],
    name: str,
    sixth: Statistics,
    product: Callable[[], object],
    bar: float | None = None,
) -> list[Figure]:
    router = Router.fit(five, scorer=scorer)
    one: list[float] = []
    fit: list[float] = []
    add: list[float] = []
    for _ in range(5):
        for seconds, action in (
            (one, product),
            (fit, lambda: Router.fit(five, scorer=scorer)),
            (add, lambda: router.add(name, sixth)),
        ):
            begin = time.perf_counter()
            action()
            seconds.append(time.perf_counter() - begin)
        router.remove(name)
    seen = int(np.count_nonzero(sum(domain.histogram for domain in five.values())))
    raw = {"tokens_seen": seen, "product_s": median(one), "fit_s": median(fit), "add_s": median(add)}
    label = type(scorer).__name__
    return [
        Figure(f"fit five experts ({label}) / the one BLAS product", median_ratio(fit, one), "×", bar, False, raw),
        Figure(f"add one expert ({label}) / the one BLAS product", median_ratio(add, one), "×", bar, False, raw),
    ]


def against_published(texts: Corpus, *, tokens: int = 20_000_000) -> list[Figure]:
    """Our fit from token ids, counting included, against the published fit, batch by batch, on the same tokens."""
    embedding = Embedding.default()
    ids = np.concatenate([embedding.tokenizer.encode_batch(block)[0] for block in _blocks(texts)]).astype(np.int64)
    ids = np.resize(ids, tokens)
    parts = np.array_split(ids, 5)
    begin = time.perf_counter()
    library = batchwise_fit(parts, embedding.matrix)
    published = time.perf_counter() - begin

    def ours() -> None:
        histograms = [np.bincount(part, minlength=embedding.vocabulary_size) for part in parts]
        TokenRidge.authors().scores([Statistics(embedding.fingerprint, 1, n) for n in histograms], embedding.matrix)

    (seconds,) = side_by_side(ours, rounds=3)
    raw = {"tokens": tokens, "published_s": published, "published_in": library, "ours_s": median(seconds)}
    return [Figure(f"published batch-wise fit ({library}) / ours", published / median(seconds), "×", 50.0, True, raw)]


def memory(texts: Corpus, *, gigabytes: float = 2.0) -> list[Figure]:
    """Peak memory of `ir3de collect` on a file of the given size, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        with path.open("w", encoding="utf-8") as file:
            for text in _at_least(texts, gigabytes * 1e9):
                file.write(text.replace("\n", " ") + "\n")
        script = (
            "import sys, ir3de; from ir3de.corpora import read_texts; "
            "from ir3de_lab.benchmarks.measurement import peak_memory; "
            "ir3de.collect(read_texts([sys.argv[1]]), subsample=16); print(peak_memory())"
        )
        begin = time.perf_counter()
        peak = float(
            subprocess.run([sys.executable, "-P", "-c", script, str(path)], check=True, capture_output=True).stdout
        )
        seconds = time.perf_counter() - begin
        raw = {"gigabytes": path.stat().st_size / 1e9, "seconds": seconds}
    return [Figure("peak memory of collect on the corpus", peak, "MB", 600.0, False, raw)]


def starting(domains: dict[str, Corpus]) -> list[Figure]:
    """What a new process pays: the import, and the import with a serving copy and one routed prompt."""
    with tempfile.TemporaryDirectory() as folder:
        Router.fit(domains).save(folder, serving=True)
        bytes_on_disk = sum(file.stat().st_size for file in Path(folder).iterdir())
        timed = "import time; t = time.perf_counter(); {}; print((time.perf_counter() - t) * 1e3)"
        load = f"import ir3de; ir3de.Router.load({folder!r}).route('What is 12 times 7?')"
        imports = [_milliseconds(timed.format("import ir3de")) for _ in range(7)]
        numpy_imports = [_milliseconds(timed.format("import numpy")) for _ in range(7)]
        loads = [_milliseconds(timed.format(load)) for _ in range(7)]
    raw = {"imports_ms": imports, "import_numpy_ms": numpy_imports, "loads_ms": loads, "serving_bytes": bytes_on_disk}
    return [
        Figure("import ir3de", median(imports), "ms", 150.0, False, raw),
        Figure("new process: import, load a serving copy, route", median(loads), "ms", 300.0, False, raw),
        Figure("serving copy on disk", bytes_on_disk / 1e6, "MB", 4.0, False, raw),
    ]


def _milliseconds(script: str) -> float:
    return float(subprocess.run([sys.executable, "-P", "-c", script], check=True, capture_output=True).stdout)


def _blocks(texts: Corpus) -> Iterator[Corpus]:
    for begin in range(0, len(texts), 2_000):
        yield texts[begin : begin + 2_000]


def _at_least(texts: Corpus, size: float) -> Iterator[str]:
    """The texts, again and again, until they amount to so many bytes."""
    total = 0
    for text in cycle(texts):
        yield text
        total += len(text.encode())
        if total >= size:
            return
