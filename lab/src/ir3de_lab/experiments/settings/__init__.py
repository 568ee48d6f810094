"""A setting of the experiments: its domains, data, experts, training, tasks and protocols, as a versioned TOML file.

The shipped ones are read by name (`clm`, `clm-large`, `reasoning`, `reasoning-large`, `routerdc7`, …), any other by its
path. A shipped name may end in a seed, `reasoning-large-seed-1`: the same setting, its experts trained and asked with
that seed, once and, unless the setting says `seeds_draw`, without draws. A field that is not known is refused: a
misspelt one must not silently mean the default.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ir3de.errors import InputError, VersionError
from ir3de.selectors import DEFAULT_CAP
from ir3de_lab import files
from ir3de_lab.experiments.settings.reading import made

VERSION = 1
SHIPPED = (
    "clm",
    "clm-large",
    "reasoning",
    "reasoning-large",
    "reasoning-1b",
    "reasoning-1b-longer",
    "routerdc7",
    "routellm",
    "routerbench",
)
METRICS = ("perplexity", "score")
TASKS = ("gsm8k", "humaneval", "ifeval", "label", "m_arc")
CHOSEN = ("m_arc",)  # tasks where an answer is chosen among options, and none is generated
RESERVED = ("average", "base", "answers", "held_out")  # columns and folders beside the experts' own
_FROM_ZERO = ("prompts", "fit_width", "test_width", "scored")  # of a protocol; 0 means all, or none
_SEEDED = re.compile(r"(.+)-seed-(\d+)")


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
class Labelled:
    """Labelled texts as a domain of prompts: their folder, how each is asked about, and what its labels are called."""

    folder: str
    prompt: str  # with {text}
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Data:
    """Where the texts come from: a folder of suites, or the hub."""

    suite: str
    layout: Literal["suite", "scored"] = "suite"
    scores: str = "acc"  # field of a scored row that holds the models' scores
    incomplete: Literal["refuse", "leave_out"] = "refuse"  # a scored row that lacks the score of a model
    costs: str = ""  # field of a scored row that holds what the models' answers cost, where they are known
    sizes: Mapping[str, float] = field(default_factory=dict)  # of models, in parameters / 10⁹: their cost otherwise
    hub: Mapping[str, HubData] = field(default_factory=dict)  # by domain; it takes the folder's place
    labelled: Mapping[str, Labelled] = field(default_factory=dict)  # by domain; it takes the suite's folder's place
    most_items: Mapping[str, int] = field(default_factory=dict)  # by domain, where not all: those with the least hash


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
    clip: float = 1.0  # of the gradient's norm, where not 0
    weight_decay: float = 0.0
    lora_rank: int = 16
    lora_alpha: float = 32.0
    checkpoint: int = 100  # steps between two saved states
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """How experts are asked."""

    length: int = 1024  # tokens of a document or a prompt
    average: bool = True  # ask one model with the mean of the experts' weights too: they must be of one shape
    temperature: float = 0.0  # 0 is greedy
    seed: int = 0
    option: Literal["whole", "per_byte"] = "whole"  # the likeliest is taken: whole, or mean over its bytes
    option_end: bool = True  # count the likelihood that an option ends where it does
    draws: int = 0  # answers to each prompt beside the one above, at a temperature of their own
    draw_temperature: float = 0.7
    seeds_draw: bool = False  # the same setting with another seed draws as well
    batch_tokens: int = 65_536  # in one forward pass, padding included
    generation_tokens: int = 262_144  # of prompts and answers that are generated side by side
    most_new_tokens: Mapping[str, int] = field(default_factory=lambda: {"gsm8k": 256, "humaneval": 320, "ifeval": 512})


@dataclass(frozen=True)
class Protocol:
    """What routers are fitted on, what counts as text, and what is scored; the defaults are the clean choice."""

    fit_on_test: tuple[str, ...] = ()  # domains fitted on their test prompts
    prompts: int = 0  # of each domain, where not all
    repeat: bool = False  # where a domain has fewer than that, they are gone through again
    cap: int = DEFAULT_CAP  # tokens of a prompt that are read
    fit_width: int = 0  # tokens that prompts of the fit are padded to, where not 0; the last of them is not read
    fit_batch: int = 1  # prompts of the fit that are counted together
    drop_last: bool = False  # of the fit, a batch that is not full
    test_width: int = 0  # tokens that test prompts are padded to, where not 0; the last of them is not read
    test_batch: Mapping[str, int] = field(default_factory=dict)  # domains padded to the longest of so many test prompts
    options: Mapping[str, str] = field(default_factory=dict)  # domains whose options are routed one by one, and how
    padding: str = "<|im_end|>"  # the token that pads; where padded, it is counted and votes like text
    precision: Literal["float64", "float32"] = "float64"  # of the Gram matrix
    embedding: str = "base"  # or the domain whose expert's own is meant; the base model's stands in, with a note
    scored: int = 0  # items of a domain that are routed, and of those sent to an expert that are scored, where not all
    average_without: tuple[str, ...] = ()  # domains that its average leaves out


@dataclass(frozen=True)
class Encoders:
    """The encoders that the baselines stand on: a known name, a folder or a hub id each."""

    bert: str = "google-bert/bert-base-uncased"
    small: str = "microsoft/deberta-v3-small"
    large: str = "microsoft/deberta-v3-large"
    tokens: int = 512  # of a text that they read: fewer where one has fewer positions


@dataclass(frozen=True)
class Pair:
    """Two models of which the strong one is called for a share of the prompts."""

    strong: str
    weak: str


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
    choose: tuple[str, ...] = ()  # domains whose expert is the base model where that does better on held-out prompts
    pair: Pair | None = None  # where what counts is the share of strong calls

    @property
    def known(self) -> tuple[str, ...]:
        """The domains that routers are fitted on."""
        return tuple(domain for domain in self.domains if domain not in self.unseen)

    @property
    def scored(self) -> bool:
        """Whether the rows carry every model's score, so that nothing is left to run."""
        return self.data.layout == "scored"

    @property
    def priced(self) -> bool:
        """Whether quality is weighed against money alone: by a share of strong calls, or by what answers cost."""
        return self.pair is not None or bool(self.data.costs)


def load(source: str | Path) -> Setting:
    """Read a setting by its shipped name or its path.

    >>> load("clm").domains
    ('coding', 'math', 'physics', 'history', 'philosophy')
    """
    path = Path(source)
    if (seeded := _SEEDED.fullmatch(str(source))) and seeded[1] in SHIPPED:
        return _with_seed(load(seeded[1]), int(seeded[2]))
    if str(source) in SHIPPED:
        path = Path(__file__).parent / f"{source}.toml"
    elif not path.is_file():
        raise InputError(f"no setting '{source}': expected {', '.join(SHIPPED)}, or the path of a .toml file")
    try:
        content = tomllib.loads(files.read(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error})") from error
    if type(content.get("version")) is not int or content["version"] < 1:
        raise InputError(f"{path}: a setting begins with its version: write version = {VERSION}")
    if content["version"] > VERSION:
        raise VersionError(f"{path} is in version {content['version']} of the format; this ir3de reads up to {VERSION}")
    setting = made(Setting, content, str(path))
    for check in (_check_domains, _check_tasks, _check_protocols, _check_numbers):
        check(setting, str(path))
    return setting


def is_shipped(name: str) -> bool:
    """Whether a setting goes by this name.

    >>> is_shipped("reasoning"), is_shipped("reasoning-seed-2"), is_shipped("small.toml")
    (True, True, False)
    """
    seeded = _SEEDED.fullmatch(name)
    return (seeded[1] if seeded else name) in SHIPPED


def is_other_seed(name: str) -> bool:
    """Whether it is a shipped setting with another seed of its experts.

    >>> is_other_seed("reasoning-large-seed-1"), is_other_seed("reasoning-large")
    (True, False)
    """
    return is_shipped(name) and name not in SHIPPED


def _with_seed(setting: Setting, seed: int) -> Setting:
    return replace(
        setting,
        name=f"{setting.name}-seed-{seed}",
        title=f"{setting.title}, seed {seed}",
        training=replace(setting.training, seed=seed),
        evaluation=replace(
            setting.evaluation, seed=seed, draws=setting.evaluation.draws * setting.evaluation.seeds_draw
        ),
    )


def _check_domains(setting: Setting, file: str) -> None:
    """Domains are two or more, each once, with names that folders can have and an expert that can be had."""
    for name in (setting.name, *setting.domains):
        if name in ("", ".", "..", *RESERVED) or "/" in name or "\\" in name:
            raise InputError(f"{file}: '{name}' cannot be the name of a setting or a domain: give it another")
    if len(set(setting.domains)) < len(setting.domains):
        raise InputError(f"{file}: a domain is named twice in {list(setting.domains)}")
    if len(setting.known) < 2:
        raise InputError(f"{file}: a setting needs two domains or more, found {list(setting.known)}")
    tables: dict[str, Iterable[str]] = {
        "tasks": setting.tasks,
        "experts": setting.experts,
        "data.hub": setting.data.hub,
        "data.labelled": setting.data.labelled,
        "data.most_items": setting.data.most_items,
    }
    for field_name in ("fit_on_test", "test_batch", "options", "average_without"):
        tables |= {f"protocol.{name}.{field_name}": getattr(one, field_name) for name, one in setting.protocol.items()}
    for table, names in {**tables, "unseen": setting.unseen, "choose": setting.choose}.items():
        for name in names:
            if name not in setting.domains:
                raise InputError(f"{file}: {table} names '{name}', which is none of {', '.join(setting.domains)}")
    if setting.data.costs and setting.data.sizes:
        raise InputError(f"{file}: data.costs and data.sizes both say what an answer costs: leave one of them out")
    if setting.scored:
        return
    if setting.priced or setting.data.sizes:
        raise InputError(
            f"{file}: pair, data.costs and data.sizes are for rows that are scored: data.layout = 'scored'"
        )
    if setting.unseen:
        raise InputError(f"{file}: unseen domains have no expert, so their rows must be scored: data.layout = 'scored'")
    without = [domain for domain in setting.domains if domain not in setting.experts]
    if without and setting.base is None:
        raise InputError(
            f"{file}: no expert for the domain '{without[0]}': name it in [experts], or in [base] the model to train"
        )


def _check_tasks(setting: Setting, file: str) -> None:
    """Where the metric is a score, every domain has a task, and every task a bound on what is generated."""
    tokens = setting.evaluation.most_new_tokens
    for place, tasks in (("tasks", setting.tasks.values()), ("evaluation.most_new_tokens", tokens)):
        if wrong := next((task for task in tasks if task not in TASKS), None):
            raise InputError(f"{file}: unknown task '{wrong}' in {place}; known are {', '.join(TASKS)}")
    if setting.scored and setting.metric != "score":
        raise InputError(f"{file}: rows that are scored have the metric 'score', found '{setting.metric}'")
    if setting.metric != "score" or setting.scored:
        return
    for domain in setting.domains:
        if domain not in setting.tasks:
            raise InputError(f"{file}: the domain '{domain}' has no task: write it in [tasks]")
        if (task := setting.tasks[domain]) not in (*CHOSEN, *tokens):
            raise InputError(f"{file}: evaluation.most_new_tokens lacks the task '{task}'")
    for domain, given in setting.data.labelled.items():
        if setting.tasks[domain] != "label" or "{text}" not in given.prompt or len(given.labels) < 2:
            raise InputError(
                f"{file}: data.labelled.{domain} needs the task 'label', {{text}} in its prompt, two labels"
            )
    for domain in setting.choose:
        if setting.tasks[domain] != "ifeval" or domain in setting.experts:
            raise InputError(f"{file}: choose names '{domain}': only a domain of ifeval whose expert is trained can be")


def _check_protocols(setting: Setting, file: str) -> None:
    if "clean" not in setting.protocol:
        raise InputError(f"{file}: the protocol 'clean' is missing: write [protocol.clean]")
    if setting.protocol["clean"] != Protocol():
        raise InputError(f"{file}: the protocol 'clean' is what it is: change fields in one of another name")
    for name, protocol in setting.protocol.items():
        if protocol.embedding not in ("base", *setting.domains):
            raise InputError(f"{file}: protocol.{name}.embedding is '{protocol.embedding}': write 'base' or a domain")
        for domain, form in protocol.options.items():
            if "{text}" not in form or "{option}" not in form:
                raise InputError(
                    f"{file}: protocol.{name}.options.{domain} is {form!r}: it needs {{text}}, where the question "
                    "stands, and {option}"
                )
            if setting.tasks.get(domain) not in CHOSEN:
                raise InputError(
                    f"{file}: protocol.{name}.options names '{domain}', whose task has no options: leave it out"
                )
        if protocol.test_width and protocol.test_batch:
            raise InputError(f"{file}: protocol.{name} has test_width and test_batch: leave one of them out")
        if protocol.scored and setting.metric != "perplexity":
            raise InputError(f"{file}: protocol.{name}.scored is for the metric 'perplexity': leave it out")
        if set(protocol.average_without) >= set(setting.domains):
            raise InputError(f"{file}: protocol.{name}.average_without names every domain: nothing is left to average")


def _check_numbers(setting: Setting, file: str) -> None:
    """What is counted is counted from 1, or from 0 where 0 means none."""
    places: list[tuple[str, object, tuple[str, ...], int]] = [
        ("training", setting.training, ("steps", "batch", "length", "checkpoint", "lora_rank"), 1),
        ("training", setting.training, ("most_rounds", "warmup", "rate", "clip", "weight_decay", "seed"), 0),
        ("evaluation", setting.evaluation, ("length", "batch_tokens", "generation_tokens"), 1),
        ("evaluation", setting.evaluation, ("temperature", "seed", "draws", "draw_temperature"), 0),
        ("encoders", setting.encoders, ("tokens",), 1),
        *((f"protocol.{name}", found, ("cap", "fit_batch"), 1) for name, found in setting.protocol.items()),
        *((f"protocol.{name}", found, _FROM_ZERO, 0) for name, found in setting.protocol.items()),
        *((f"data.hub.{name}", found, ("train", "test"), 1) for name, found in setting.data.hub.items()),
    ]
    numbers = {
        f"{place}.{name}": (getattr(found, name), least) for place, found, names, least in places for name in names
    }
    numbers |= {f"data.most_items.{domain}": (most, 1) for domain, most in setting.data.most_items.items()}
    for task, tokens in setting.evaluation.most_new_tokens.items():
        numbers[f"evaluation.most_new_tokens.{task}"] = (tokens, 1)
    for name, protocol in setting.protocol.items():
        for domain, together in protocol.test_batch.items():
            numbers[f"protocol.{name}.test_batch.{domain}"] = (together, 1)
        for width in ("fit_width", "test_width"):
            if getattr(protocol, width) == 1:  # its only token would not be read
                numbers[f"protocol.{name}.{width}"] = (1, 2)
    for name, (value, least) in numbers.items():
        if value < least:
            raise InputError(f"{file}: {name} is {value}: it must be {least} or more")
