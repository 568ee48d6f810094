"""What is tried in each clean environment: the commands of the first hour, and what the extra is for."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from textwrap import dedent

from release_builds import ReleaseError
from release_environments import Environment

DEVELOPMENT = ("test", "dev", "release")  # what the tests and this script run in, not what users install
HEAVY = ("distil", "torch", "ray")  # gigabytes: tried only when asked for
PROMPTS = {
    "law": ["Is this contract void?", "Can my landlord evict me?", "Who inherits without a will?"],
    "maths": ["Solve x + 3 = 10.", "What is the derivative of x squared?", "Prove that √2 is irrational."],
    "cooking": ["How long do I boil an egg?", "Can I freeze fresh basil?", "Why did my bread not rise?"],
}


def try_base(environment: Environment, version: str) -> None:
    """The version, the demo, a router from one labelled file, a decision; and a hint that names the wheel."""
    if environment.run("ir3de", "--version").split() != ["ir3de", version]:
        raise ReleaseError(f"`ir3de --version` does not say {version}")
    environment.run("ir3de", "demo", "-q")
    write_table(environment)
    environment.run("ir3de", "fit", "router", "train.csv", "--label", "team")
    routed = json.loads(environment.run("ir3de", "route", "router", "Can my landlord evict me?", "--json"))
    if routed["ir3de"]["expert"] != "law":
        raise ReleaseError(f"the router of the smoke test is wrong: {routed}")
    environment.run("ir3de", "doctor")


def try_hint(environment: Environment) -> None:
    """Without the gateway, `ir3de serve` names the distribution to install, and no index."""
    printed = environment.run("ir3de", "serve", "--dry-run", code=2)
    if "install ir3de-gateway, from where you got ir3de" not in printed:
        raise ReleaseError(f"`ir3de serve` does not name the distribution that has it: {printed}")


def write_table(environment: Environment) -> None:
    """One labelled file, as people have it."""
    with (environment.work / "train.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("prompt", "team"))
        rows.writerows((prompt, team) for team, prompts in PROMPTS.items() for prompt in prompts)


def _try_python(code: str) -> Callable[[Environment], None]:
    def attempt(environment: Environment) -> None:
        environment.run("python", "-c", f"PROMPTS = {PROMPTS!r}\n{dedent(code)}")

    return attempt


def _try_command(command: str) -> Callable[[Environment], None]:
    def attempt(environment: Environment) -> None:
        environment.run(*command.split())

    return attempt


FEATURES: dict[str, Callable[[Environment], None]] = {
    "fast": _try_python("""
        from ir3de import Embedding
        assert Embedding.default().tokenizer.engine.startswith("tokie")
        """),
    "gguf": _try_python("""
        import gguf, numpy
        from ir3de import Embedding
        from ir3de.errors import EmbeddingError
        writer = gguf.GGUFWriter("tiny.gguf", "llama")
        writer.add_tensor("token_embd.weight", numpy.ones((4, 32), numpy.float32))
        writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
        try:
            Embedding.load("tiny.gguf")
        except EmbeddingError as error:  # it has been read: there is no tokenizer in it
            assert "tokenizer" in str(error), error
        """),
    "parquet": _try_python("""
        import pyarrow, pyarrow.parquet
        from ir3de.corpora import read_texts
        pyarrow.parquet.write_table(pyarrow.table({"text": PROMPTS["law"]}), "law.parquet")
        assert list(read_texts("law.parquet")) == PROMPTS["law"]
        """),
    "zstd": _try_python("""
        import pathlib, zstandard
        from ir3de.corpora import read_texts
        pathlib.Path("law.txt.zst").write_bytes(zstandard.compress("\\n".join(PROMPTS["law"]).encode()))
        assert list(read_texts("law.txt.zst")) == PROMPTS["law"]
        """),
    "yaml": _try_python("""
        import json, pathlib
        from ir3de.corpora import import_routes
        pathlib.Path("routes.yaml").write_text("routes:\\n- name: law\\n  utterances: " + json.dumps(PROMPTS["law"]))
        assert import_routes("routes.yaml").texts == {"law": PROMPTS["law"]}
        """),
    "plots": _try_command("ir3de eval router train.csv --label team --plot drawn.png"),
    "sklearn": _try_python("from ir3de.evaluation.scikit_learn import RouterClassifier"),
    "docs": _try_python("import material, mkdocs"),
    "all": _try_python("import gguf, matplotlib, pyarrow, yaml, zstandard"),
    "encoder": _try_python("""
        import onnx, onnxruntime
        from ir3de.encoders import Encoder
        from ir3de.errors import ArtifactError
        try:
            Encoder.load("minilm-l6")
        except ArtifactError as error:
            assert "ir3de encoder install minilm-l6" in str(error), error
        """),
    "distil": _try_python("import model2vec.distill"),
    "torch": _try_python("""
        from ir3de import Router
        assert Router.fit(PROMPTS, device="cpu").route("Can my landlord evict me?").expert == "law"
        """),
    "ray": _try_python("""
        import ray
        from ir3de.engines import RayEngine
        """),
}


SERVE = (
    "ir3de serve --router router --dry-run --expert law=http://127.0.0.1:9/v1 --expert maths=http://127.0.0.1:9/v1"
    " --expert cooking=http://127.0.0.1:9/v1"
)
GATEWAY_FEATURES: dict[str, Callable[[Environment], None]] = {
    "": _try_command(SERVE),
    "local": _try_python("""
        import xllamacpp
        from ir3de_gateway import local_model
        """),
    "envoy": _try_command("ir3de ext-proc --help"),
    "redis": _try_python("""
        from ir3de_gateway.store.shared.connection import StoreConnection
        StoreConnection("redis://127.0.0.1:1/0", "ir3de", 1.0)
        """),
    "litellm": _try_python("""
        import ir3de_gateway.litellm
        """),
    "otel": _try_python("""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        """),
}


def try_laboratory(environment: Environment) -> None:
    """The command that the laboratory adds."""
    if "accuracy" not in environment.run("ir3de", "bench", "--help"):
        raise ReleaseError("`ir3de bench` has no benchmarks")
