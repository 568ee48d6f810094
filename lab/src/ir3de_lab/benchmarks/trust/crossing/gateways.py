"""A configuration of a case as a real gateway: its router, its keys, its experts."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from ir3de import AllTokens, Average, Embedding, EntropyTopK, Router, scorers
from ir3de.embedding import Matrix
from ir3de.policies import Policy
from ir3de.selectors import Selector
from ir3de_gateway import Config, Gateway, create_app
from ir3de_lab.benchmarks.trust.crossing.covering import Case
from ir3de_lab.benchmarks.trust.crossing.requests import write_key

TEXTS = {
    "maths": (
        "What is twelve times seven?",
        "Solve this equation for x.",
        "Prove that the sum of odd integers is even.",
        "Integrate the polynomial over the interval.",
        "Which integers divide the sum?",
        "Solve the polynomial equation.",
    ),
    "law": (
        "Is this contract void?",
        "Can my landlord evict tenants?",
        "What does the statute say about tenants?",
        "Does that clause of the contract end?",
        "Which statute does the landlord break?",
        "Can tenants void the clause?",
    ),
    "cooking": (
        "How long do I boil an egg?",
        "A recipe for bread, please.",
        "Why does my dough not rise?",
        "Which flour is for the bread dough?",
        "Boil the egg or fry the egg?",
        "A recipe with flour and butter.",
    ),
}
SELECTORS: dict[str, Selector] = {"entropy": EntropyTopK(5), "all tokens": AllTokens(), "average": Average()}
COSTS = {"maths": {"price": 1.0}, "law": {"price": 3.0}, "cooking": {"price": 2.0}}
EVERYTHING = ["chat", "completions", "responses", "messages", "tools", "vision"]
APIS = {"all": EVERYTHING, "chat": ["chat", "tools", "vision"], "messages": ["messages", "tools", "vision"]}
WINDOWS = {"small": 12, "large": 100_000}
BUDGET = 1_000.0  # of a day; a token costs 1
DEFAULT = FALLBACK = "cooking"
NOWHERE = "http://127.0.0.1:9"  # nothing listens there
HOOK = {"call": "ir3de_lab.benchmarks.trust.crossing.hooks:look"}
SILENCE_S = 2.0  # that an expert may take before its first token where one is silent
PATIENCE_S = 30.0  # and elsewhere: an expert that is late on a busy machine is not asked again
STOP_S = 30.0


@cache
def _build_embedding() -> Embedding:
    """Each word of the texts is a token: fits take a moment."""
    splitter = pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True)
    words = {word for texts in TEXTS.values() for text in texts for word, _ in splitter.pre_tokenize_str(text.lower())}
    vocabulary = {word: place for place, word in enumerate(["[UNK]", *sorted(words)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), splitter
    matrix = np.random.default_rng(0).normal(size=(len(vocabulary), 24)).astype(np.float32)
    return Embedding.from_definition(tokenizer.to_str().encode(), Matrix.plain(matrix), name="words")


@cache
def fit_router(scorer: str, selector: str, policy: str) -> Router:
    """The router of a configuration."""
    made = Policy(costs=COSTS, weights={"price": 0.001}) if policy == "price" else Policy()
    if scorer == "expected scores":
        rows = [
            {"text": text, "task": name, "scores": {model: 2.0 * (model == name) for model in TEXTS}}
            for name, texts in TEXTS.items()
            for text in texts
        ]
        return Router.fit_outcomes(rows, embedding=_build_embedding(), policy=made)
    chosen = getattr(scorers, scorer)()
    return Router.fit(TEXTS, scorer=chosen, selector=SELECTORS[selector], embedding=_build_embedding(), policy=made)


def build_config(cases: Sequence[Case], folder: Path, experts: str) -> dict[str, Any]:
    """The configuration that cases have in common, with what it names written to the folder."""
    case = cases[0]
    fit_router(case["scorer"], case["selector"], case["policy"]).save(folder / "router")
    is_silent = any(one["fault"] == "silent" for one in cases)
    found = {name: _build_expert(name, experts, SILENCE_S if is_silent else PATIENCE_S) for name in TEXTS}
    law, server = found["law"], dict[str, Any]()
    law["capabilities"] = APIS[case["api of law"]]
    if case["window"] != "none":
        law["context_window"] = WINDOWS[case["window"]]
    if case["instead"] in ("fallback", "both"):
        law["fallbacks"] = [FALLBACK]
    if case["replicas"] != "one":
        addresses = [law.pop("base_url"), f"{experts}/law-2/v1", f"{NOWHERE}/law/v1"]
        first = {"two": addresses[:2], "one dead": addresses[::2], "all dead": addresses[2:]}[case["replicas"]]
        law |= {"replicas": first} if len(first) > 1 else {"base_url": first[0]}
    if case["key"] != "none":
        names = [write_key(case, number, at_once=many) for number in range(len(cases)) for many in (False, True)]
        keys = [_build_key(case["key"], key) for key in names]
        (folder / "keys.yaml").write_text(json.dumps({"version": 1, "keys": keys}))
        server["keys_file"] = str(folder / "keys.yaml")
    places = ("before", "after") if case["hooks"] == "both" else (case["hooks"],)
    cache_settings = {"ttl": 60, "shared": case["cache"] == "shared"} if case["cache"] != "off" else {}
    return {
        "router": {"path": str(folder / "router")},
        "experts": list(found.values()),
        "server": server,
        "routing": {"default": DEFAULT} if case["instead"] in ("default", "both") else {},
        "hooks": {place: [HOOK] for place in places if place != "none"},
        "cache": cache_settings,
        "logs": {"access": None},
        "state": str(folder / "state"),
    }


def _build_expert(name: str, experts: str, first_token: float) -> dict[str, Any]:
    return {
        "name": name,
        "base_url": f"{experts}/{name}/v1",
        "model": f"{name}-v1",
        "capabilities": EVERYTHING,
        "price": {"input_per_1m": 1e6, "output_per_1m": 1e6},
        "timeouts": {"first_token": first_token},
        "breaker": {"failures": 10_000, "cooldown": 0.01},
        "retries": {"backoff": 0.001},
    }


def _build_key(kind: str, key: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": key[3:], "hash": f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"}
    more: dict[str, dict[str, Any]] = {
        "budget": {"limits": {"budget_per_day": BUDGET}},
        "spent": {"limits": {"budget_per_day": 0}},
        "restricted": {"experts": ["maths", "cooking"]},
    }
    return entry | more.get(kind, {})


@contextmanager
def running_gateway(config: dict[str, Any]) -> Iterator[int]:
    """The gateway in a thread of this process: its port."""
    app = create_app(Gateway.open(Config.model_validate(config)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the gateway did not start")
            time.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(STOP_S)
