"""IR3DE beside other people's routers: the same prompts, each router in an environment of its own, in one run.

An environment is a virtual environment with the router's own packages and no others, so that its packages and
megabytes can be counted. The files in `ir3de_lab.alternatives` run there.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ir3de.errors import InputError
from ir3de_lab import alternatives
from ir3de_lab.benchmarks.defaults import Material, Texts, draw_few, read_material
from ir3de_lab.benchmarks.protocol import prompt_hash
from ir3de_lab.catalogue.entries import benchmarks
from ir3de_lab.catalogue.sources import digest_source, strip_code
from ir3de_lab.catalogue.staleness import MEASURES

MOST_ENCODED = 10_000  # training prompts of a set: with more, routers that run an encoder are not asked
MOST_TRAINING = 1_000  # prompts of an expert
MOST_TEST = 1_000  # prompts of a set
MOST_STRANGE = 500  # prompts of other sets
MOST_TIMED = 200
SIX, FEW = 6, 8  # prompts of an expert, in the other regimes
DRAWS = 3
MOST_UNLABELLED = 2_000  # prompts without labels, of those that were not drawn
ENCODER_MB = 91  # of all-MiniLM-L6-v2, beside the packages
TIME_LIMIT_S = 3_600
ASKED = "asked"  # the field of a file of answers with the digest of what they depend on
TIMES = ("fit_s", "fit_cpu_s", "add_s", "add_cpu_s", "route_us", "route_cpu_us")

_NOT_COUNTED = frozenset({"pip", "setuptools", "wheel"})
_SCRIPTS = Path(alternatives.__file__).parent


@dataclass(frozen=True)
class Alternative:
    """A router of others: what to install, which file uses it, and what can be said of it without measuring."""

    name: str
    script: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    encoder: bool = False  # runs a sentence encoder at a prompt
    extra: str = ""  # of IR3DE itself
    explains: str = "no"
    abstains: str = "no"
    adds: str = "fitted again"

    @property
    def is_own(self) -> bool:
        return not self.requirements

    @property
    def key(self) -> str:
        """The name of its file of answers."""
        return "-".join([Path(self.script).stem, *(one.strip("-") for one in self.arguments)])


ALTERNATIVES = (
    Alternative("ir3de", "use_ir3de.py", (), explains="by word", abstains="yes", adds="exactly"),
    Alternative(
        "ir3de, taught by MiniLM", "use_ir3de.py", (), ("--teacher",), explains="by word", abstains="yes",
        adds="exactly", extra="encoder",
    ),
    Alternative(
        "ir3de, second opinion of MiniLM", "use_ir3de.py", (), ("--encoder",), encoder=True, extra="encoder",
        explains="by word", abstains="yes", adds="exactly",
    ),
    Alternative(
        "scikit-learn, TF-IDF + logistic regression", "use_tfidf.py", ("scikit-learn",), explains="by weights of words"
    ),
    Alternative("fastText", "use_fasttext.py", ("fasttext-numpy2-wheel",)),
    Alternative(
        "MiniLM, nearest prompts", "use_encoder.py", ("sentence-transformers", "torch"), encoder=True,
        explains="by neighbours", adds="appends",
    ),
    Alternative(
        "MiniLM + logistic regression", "use_encoder.py", ("sentence-transformers", "torch"), ("--linear",),
        encoder=True,
    ),
    Alternative(
        "semantic-router, MiniLM", "use_semantic_router.py", ("semantic-router[local]", "torch"), encoder=True,
        explains="by neighbours", abstains="yes", adds="appends",
    ),
    Alternative("SetFit, MiniLM", "use_setfit.py", ("setfit", "torch"), encoder=True),
    Alternative(
        "LiteLLM auto-router, MiniLM", "use_litellm.py", ("litellm[semantic-router]", "sentence-transformers", "torch"),
        encoder=True, abstains="yes",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Environment:
    """A virtual environment of one alternative: what it weighs."""

    python: Path
    packages: int
    megabytes: float
    versions: dict[str, str]


@dataclass(frozen=True)
class Regime:
    """One fit that every alternative makes: its training prompts, and what is routed."""

    data: str
    prompts: int | None  # of an expert; None for all
    draw: int
    texts: list[str]
    labels: list[str]
    test: list[str]
    truth: list[str]
    strange: list[str]
    unlabelled: list[str] = field(default_factory=list)

    def to_request(self) -> dict[str, Any]:
        asked = {name: getattr(self, name) for name in ("texts", "labels", "test", "strange", "unlabelled")}
        return {**asked, "new": None, "timed": False}

    def to_timed_request(self) -> dict[str, Any]:
        """Fewer prompts to route, one at a time, and an expert to add."""
        few = {"test": self.test[:MOST_TIMED], "strange": self.strange[:1]}
        return {**self.to_request(), **few, "new": self.labels[-1], "timed": True}


def prepare_environment(
    folder: Path, alternative: Alternative, replaced: Mapping[str, str], itself: Path
) -> Environment:
    """Make the alternative's virtual environment, unless it is there, and weigh it.

    `replaced` are requirements to install instead of others, such as {"torch": "torch==2.13.0"}; `itself` is the folder
    of IR3DE's own source.
    """
    extra = alternative.extra
    own = f"{itself}[{extra}]" if extra else str(itself)
    wanted = [replaced.get(one, one) for one in alternative.requirements] or [own]
    home = folder / (Path(alternative.script).stem + (f"-{extra}" if extra else ""))
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(home)])
        _run([str(python), "-m", "pip", "install", "-q", "--upgrade", "pip"])
        _run([str(python), "-m", "pip", "install", "-q", "--no-compile", *wanted])
    return weigh(python)


def weigh(python: Path) -> Environment:
    """Count an environment's packages, and the megabytes of their files, without pip and what came with it."""
    listing = (
        "import json,sys;from importlib.metadata import distributions as d;"
        "print(json.dumps([[x.name,x.version,sum((x.locate_file(f).stat().st_size for f in x.files or () "
        "if f.suffix!='.pyc' and x.locate_file(f).is_file()))] for x in d()]))"
    )
    found = json.loads(_run([str(python), "-c", listing]))
    counted = {name: (version, size) for name, version, size in found if name.lower() not in _NOT_COUNTED}
    megabytes = sum(size for _, size in counted.values()) / 1e6
    return Environment(python, len(counted), round(megabytes, 1), {name: one[0] for name, one in counted.items()})


def make_regimes(material: Material, others: Sequence[Material]) -> Iterator[Regime]:
    """All prompts once, then a few of each expert several times; the test prompts stay the same."""
    tests = material.splits["test"]
    if material.by_expert:  # else the largest domain is nearly all of it
        share = MOST_TEST // len(tests)
        test = [pair for name, texts in tests.items() for pair in _pick(_pairs({name: texts}), share)]
    else:
        test = _pick(_pairs(tests), MOST_TEST)
    strange = [text for text, _ in _pick([pair for one in others for pair in _pairs(one.splits["test"])], MOST_STRANGE)]
    train = {
        name: [text for text, _ in _pick([(text, name) for text in texts], MOST_TRAINING)]
        for name, texts in material.train.items()
    }

    def regime(prompts: int | None, draw: int, drawn: Texts) -> Regime:
        pairs, known = _pairs(drawn), {text for some in drawn.values() for text in some}
        rest = _pick([pair for pair in _pairs(train) if pair[0] not in known], MOST_UNLABELLED)
        return Regime(
            material.name,
            prompts,
            draw,
            [text for text, _ in pairs],
            [label for _, label in pairs],
            [text for text, _ in test],
            [label for _, label in test],
            strange,
            [text for text, _ in rest],
        )

    yield regime(None, 0, train)
    for prompts in (FEW, SIX):
        for draw in range(DRAWS):
            yield regime(prompts, draw, draw_few(train, prompts, draw))


def read_regimes(data: Path, only: Sequence[str]) -> list[Regime]:
    """What is asked of every alternative: the sets of these names."""
    found = {material.name: material for material in read_material(data) if material.name in only}
    for name in only:
        if name not in found:
            raise InputError(f"{data} has no set {name!r}: name others with --only")
    sets = [found[name] for name in only]
    return [regime for one in sets for regime in make_regimes(one, [other for other in sets if other is not one])]


def describe(
    alternative: Alternative,
    environment: Environment,
    machine: Mapping[str, Any] | None,
    timed: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What can be said of an alternative apart from its answers: by which machine, and `timed` if times were taken."""
    times = {name: round(timed["answers"][0][name], 4) for name in TIMES} if timed else None
    packages = [one.split("[")[0] for one in alternative.requirements] or ["ir3de"]
    return {
        "name": alternative.name,
        "versions": {name: environment.versions.get(name) for name in packages},
        "packages": environment.packages,
        "megabytes": environment.megabytes,
        "model_mb": ENCODER_MB if alternative.encoder or alternative.extra else 0,
        "runs_encoder": alternative.encoder,
        "torch": "torch" in environment.versions,
        "explains": alternative.explains,
        "abstains": alternative.abstains,
        "adds": alternative.adds,
        "answered_on": machine,
        "times": timed and {**(times or {}), "load_s": timed["load_s"], "peak_mb": timed["peak_mb"]},
        "timed_on": timed and timed["machine"],
    }


def write_requests(path: Path, requests: Sequence[Mapping[str, Any]], model: str) -> None:
    """Write what every alternative is asked; `model` is the folder of the sentence encoder."""
    document = {"model": model, "requests": list(requests)}
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")


def ask(alternative: Alternative, environment: Environment, requests: Path, answers: Path) -> dict[str, Any]:
    """Run the alternative's file in its environment, unless its answers to these requests are there already.

    Answers of an earlier version of the file, or of IR3DE, are asked for again.
    """
    if (kept := find_answers(alternative, requests, answers)) is not None:
        return kept
    asked = _digest_asked(alternative, requests)
    script = str(_SCRIPTS / alternative.script)
    _run([str(environment.python), script, str(requests), str(answers), *alternative.arguments])
    found = {**json.loads(answers.read_text(encoding="utf-8")), ASKED: asked}
    answers.write_text(json.dumps(found), encoding="utf-8")
    return found


def part_regimes(regimes: Sequence[Regime]) -> dict[str, list[Regime]]:
    """What is asked and kept together: of each set the fit with all prompts, and those with few."""
    parts: dict[str, list[Regime]] = {}
    for regime in regimes:
        parts.setdefault(f"{regime.data}-{'few' if regime.prompts else 'all'}", []).append(regime)
    return parts


def ask_parts(
    alternative: Alternative, environment: Environment | None, parts: Mapping[str, Sequence[Regime]], folder: Path
) -> tuple[list[dict[str, Any] | None], dict[str, Any] | None]:
    """The answers to every regime, in order, and the machine that answered; without an environment, those kept.

    An answer is None where none is kept, or where a set has too many prompts for a router that runs an encoder.
    """
    answers: list[dict[str, Any] | None] = []
    machine = None
    for name, regimes in parts.items():
        requests, kept = folder / f"{name}.json", folder / f"{alternative.key}-{name}.json"
        found = None
        if not alternative.encoder or max(len(one.texts) for one in regimes) <= MOST_ENCODED:
            find = find_answers if environment is None else partial(ask, environment=environment)
            found = find(alternative, requests=requests, answers=kept)
        answers += found["answers"] if found else [None] * len(regimes)
        machine = found["machine"] if found else machine
    return answers, machine


def find_answers(alternative: Alternative, requests: Path, answers: Path) -> dict[str, Any] | None:
    """The answers that are kept, if they are answers to these requests by the code of today."""
    kept: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8")) if answers.exists() else {}
    return kept if kept.get(ASKED) == _digest_asked(alternative, requests) else None


def _digest_asked(alternative: Alternative, requests: Path) -> str:
    """What answers depend on: the requests, the files that run, and IR3DE where it is IR3DE that answers."""
    parts = [
        requests.read_bytes(),
        *(
            strip_code((_SCRIPTS / one).read_text(encoding="utf-8")).encode()
            for one in ("measuring.py", alternative.script)
        ),
    ]
    if alternative.is_own:
        parts += [
            f"{name} {digest_source(name)}".encode()
            for name in benchmarks()["alternatives"].sources
            if name.startswith("ir3de.")
        ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def merge(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What an earlier run found of the alternatives that the new one did not ask, beside what the new one found.

    Where the new one took times alone, the earlier answers stay. As long as anything of the earlier run stays, so does
    what that run recorded of the code that it measured: a new part makes no old one fresh.
    """
    old = {fact["name"]: fact for fact in before["alternatives"]}
    found = [
        {**fact, "answered_on": fact["answered_on"] or old.get(fact["name"], fact)["answered_on"]}
        for fact in new["alternatives"]
    ]
    asked, answered = {fact["name"] for fact in found}, {row["router"] for row in new["rows"]}
    facts = [fact for fact in before["alternatives"] if fact["name"] not in asked] + found
    rows = [row for row in before["rows"] if row["router"] not in answered] + list(new["rows"])
    order = {alternative.name: place for place, alternative in enumerate(ALTERNATIVES)}
    last = len(order)  # of one that has another name by now
    stays = len(facts) > len(found) or len(rows) > len(new["rows"])
    return {
        **({MEASURES: before.get(MEASURES)} if stays else {}),
        "circumstances": new["circumstances"],
        "alternatives": sorted(facts, key=lambda fact: order.get(fact["name"], last)),
        "rows": sorted(rows, key=lambda row: order.get(row["router"], last)),
    }


def _pairs(texts: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(text, name) for name, some in texts.items() for text in some]


def _pick(pairs: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """The same ones every time: those of the smallest hashes, in the order they were in."""
    chosen = set(islice(sorted(range(len(pairs)), key=lambda place: prompt_hash(pairs[place][0])), most))
    return [pair for place, pair in enumerate(pairs) if place in chosen]


def _run(command: Sequence[str]) -> str:
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONPATH": "", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIME_LIMIT_S, env={**os.environ, **quiet}, check=False
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise InputError(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{last}")
    return done.stdout
