"""A setting of the experiments: its domains, data, experts, training, tasks and protocols, as a versioned TOML file.

The shipped ones are read by name (`clm`, `clm-large`, `reasoning`, `routerdc7`), any other by its path. A field that is
not known is refused: a misspelt one must not silently mean the default.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

from ir3de import files
from ir3de.errors import InputError, VersionError

VERSION = 1
SHIPPED = ("clm", "clm-large", "reasoning", "routerdc7")
METRICS = ("perplexity", "score")
TASKS = ("gsm8k", "humaneval", "ifeval", "m_arc")


@dataclass(frozen=True)
class HubData:
    """A data set of the hub that a domain's texts come from: its first rows to test on, the next ones to train on."""

    path: str
    name: str | None = None
    split: str = "train"
    field: str = "text"
    train: int = 5_000
    test: int = 600


@dataclass(frozen=True)
class Data:
    """Where the texts come from: a folder of suites, or the hub."""

    suite: str
    layout: Literal["suite", "scored"] = "suite"
    scores: str = "acc"  # field of a scored row that holds the models' scores
    hub: Mapping[str, HubData] = field(default_factory=dict)  # by domain; it takes the folder's place


@dataclass(frozen=True)
class Base:
    """The model every expert begins as."""

    model: str


@dataclass(frozen=True)
class Training:
    """How an expert is made of the base model."""

    method: Literal["full", "lora"] = "full"
    steps: int = 120
    most_rounds: float = 0.0  # through the examples, where not 0: fewer steps for a domain with few
    batch: int = 32
    length: int = 1024  # tokens of an example
    rate: float = 3e-4
    warmup: float = 0.05  # share of the steps
    clip: float = 1.0  # of the gradient's norm
    weight_decay: float = 0.0
    lora_rank: int = 16
    lora_alpha: float = 32.0
    checkpoint: int = 100  # steps between two saved states
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """How experts are asked."""

    length: int = 1024  # tokens of a document or a prompt
    temperature: float = 0.0  # 0 is greedy
    seed: int = 0
    batch_tokens: int = 65_536  # in one forward pass, padding included
    generation_tokens: int = 262_144  # of prompts and answers that are generated side by side
    most_new_tokens: Mapping[str, int] = field(default_factory=lambda: {"gsm8k": 256, "humaneval": 320, "ifeval": 512})


@dataclass(frozen=True)
class Protocol:
    """What routers are fitted on, and what counts as text; the defaults are the clean choice."""

    fit_on_test: tuple[str, ...] = ()  # domains fitted on their test prompts
    prompts: int = 0  # of each domain, where not all: fewer are gone through again
    cap: int = 1024  # tokens of a prompt
    batch: int = 8  # prompts padded together, where padding counts
    count_padding: bool = False
    padding: str = "<|im_end|>"  # the token that pads
    drop_last: bool = False  # of the fit, a batch that is not full
    precision: Literal["float64", "float32"] = "float64"  # of the Gram matrix
    embedding: str = "base"  # or the domain whose expert's own embedding is used


@dataclass(frozen=True)
class Encoders:
    """The encoders that the baselines stand on: a known name, a folder or a hub id each."""

    bert: str = "google-bert/bert-base-uncased"
    small: str = "microsoft/deberta-v3-small"
    large: str = "microsoft/deberta-v3-large"


@dataclass(frozen=True)
class Setting:
    """One experiment, as its file says it."""

    version: int
    name: str
    title: str
    metric: Literal["perplexity", "score"]
    domains: tuple[str, ...]
    data: Data
    base: Base | None = None
    experts: Mapping[str, str] = field(default_factory=dict)  # ready-made, by domain
    tasks: Mapping[str, str] = field(default_factory=dict)  # by domain, where the metric is a score
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    encoders: Encoders = field(default_factory=Encoders)
    protocol: Mapping[str, Protocol] = field(default_factory=lambda: {"clean": Protocol()})
    unseen: tuple[str, ...] = ()  # domains that are tested and never fitted on

    @property
    def known(self) -> tuple[str, ...]:
        """The domains that routers are fitted on."""
        return tuple(domain for domain in self.domains if domain not in self.unseen)

    @property
    def scored(self) -> bool:
        """Whether the rows carry every model's score, so that nothing is left to run."""
        return self.data.layout == "scored"


def load(source: str | Path) -> Setting:
    """Read a setting by its shipped name or its path.

    >>> load("clm").domains
    ('coding', 'math', 'physics', 'history', 'philosophy')
    """
    path = Path(source)
    if str(source) in SHIPPED:
        path = Path(__file__).parent / f"{source}.toml"
    elif not path.is_file():
        raise InputError(f"no setting '{source}': expected {', '.join(SHIPPED)}, or the path of a .toml file")
    try:
        content = tomllib.loads(files.read(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error})") from error
    if not isinstance(content.get("version"), int):
        raise InputError(f"{path}: a setting begins with its version: write version = {VERSION}")
    if content["version"] > VERSION:
        raise VersionError(f"{path} is in version {content['version']} of the format; this ir3de reads up to {VERSION}")
    setting: Setting = _made(Setting, content, str(path))
    _check(setting, path)
    return setting


def _made(kind: Any, content: object, place: str) -> Any:
    """The dataclass of a table, every field of it known and of the right type."""
    if not isinstance(content, Mapping):
        raise InputError(f"{place} must be a table of fields, found {content!r}")
    hints = get_type_hints(kind)
    unknown = [name for name in content if name not in hints]
    if unknown:
        raise InputError(f"{place}: unknown field '{unknown[0]}'; known are {', '.join(sorted(hints))}")
    required = [
        item.name
        for item in dataclasses.fields(kind)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in content]
    if missing:
        raise InputError(f"{place}: the field '{missing[0]}' is missing")
    return kind(**{name: _value(hints[name], value, f"{place}: {name}") for name, value in content.items()})


_TABLES: dict[str, Any] = {"protocol": Protocol, "hub": HubData}


def _value(hint: Any, value: object, place: str) -> object:
    if dataclasses.is_dataclass(hint):
        return _made(hint, value, place)
    name = place.rpartition(": ")[2]
    if name in _TABLES and isinstance(value, Mapping):
        return {key: _made(_TABLES[name], item, f"{place}.{key}") for key, item in value.items()}
    if name == "base":
        return _made(Base, value, place)
    text = str(hint)
    if "tuple" in text:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{place} must be a list of names, found {value!r}")
        return tuple(value)
    expected = _expected(hint, text)
    if expected is not None and (not isinstance(value, expected) or isinstance(value, bool) != (expected == (bool,))):
        raise InputError(f"{place} must be {' or '.join(kind.__name__ for kind in expected)}, found {value!r}")
    return float(value) if hint is float and isinstance(value, (int, float)) else value


def _expected(hint: Any, text: str) -> tuple[type, ...] | None:
    if hint in (int, str, bool):
        return (hint,)
    if hint is float:
        return (int, float)
    if "Literal" in text or "str | None" in text:
        return (str,)
    return (dict,) if "Mapping" in text else None


def _check(setting: Setting, path: Path) -> None:
    """What no type can say."""
    if setting.metric not in METRICS:
        raise InputError(f"{path}: metric is '{setting.metric}'; known are {', '.join(METRICS)}")
    if len(setting.known) < 2:
        raise InputError(f"{path}: a setting needs two domains or more, found {list(setting.known)}")
    if setting.data.layout not in ("suite", "scored"):
        raise InputError(f"{path}: data.layout is '{setting.data.layout}'; known are suite, scored")
    if setting.training.method not in ("full", "lora"):
        raise InputError(f"{path}: training.method is '{setting.training.method}'; known are full, lora")
    if "clean" not in setting.protocol:
        raise InputError(f"{path}: the protocol 'clean' is missing: write [protocol.clean]")
    if setting.metric == "score" and not setting.scored:
        without = [domain for domain in setting.domains if domain not in setting.tasks]
        if without:
            raise InputError(f"{path}: the domain '{without[0]}' has no task: write it in [tasks]")
    tables = {"tasks": setting.tasks, "experts": setting.experts, "data.hub": setting.data.hub}
    tables |= {f"protocol.{name}.fit_on_test": dict.fromkeys(p.fit_on_test) for name, p in setting.protocol.items()}
    tables |= {"unseen": dict.fromkeys(setting.unseen)}
    for table, content in tables.items():
        strange = [domain for domain in content if domain not in setting.domains]
        if strange:
            raise InputError(f"{path}: {table} names '{strange[0]}', which is none of {', '.join(setting.domains)}")
    wrong = [task for task in setting.tasks.values() if task not in TASKS]
    if wrong:
        raise InputError(f"{path}: unknown task '{wrong[0]}'; known are {', '.join(TASKS)}")
    for name in ("steps", "batch", "length", "checkpoint"):
        if getattr(setting.training, name) < 1:
            raise InputError(f"{path}: training.{name} is {getattr(setting.training, name)}: it must be 1 or more")
