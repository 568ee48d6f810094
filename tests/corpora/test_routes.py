"""Routes of other routers, as their own programs write them, and files that no router can be fitted on."""

import json
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ir3de import Router
from ir3de.corpora import import_routes
from ir3de.corpora.routes.document import MAX_FILE_BYTES, MAX_YAML_CHARS, read_document
from ir3de.errors import ArtifactError, InputError, MissingExtraError
from refused import refusal

OTHERS = Path(__file__).parent / "routes_of_others"  # those of semantic-router were written by its versions
LAW = {"name": "law", "utterances": ["Is this contract void?", "Can they sue me?"]}
CODE = {"name": "coding", "utterances": ["Why does my loop never end?"]}


def write(folder: Path, content: object, name: str = "routes.json") -> Path:
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("version", ["0.0.72", "0.3.3", "1.1.1"])
def test_what_semantic_router_saves_is_read(version: str, suffix: str) -> None:
    found = import_routes(OTHERS / f"semantic-router-{version}.{suffix}")
    assert found.kind == "semantic-router"
    assert {name: len(texts) for name, texts in found.texts.items()} == {"law": 4, "coding": 4, "history": 4}
    assert found.texts["law"][1] == "Is a contract valid without a signature?"
    assert found.descriptions == {
        "law": "contracts, courts, tenancy and wills", "coding": "programming, debugging and version control"
    }  # fmt: skip
    assert found.models == {} and found.default is None
    left_out = " / ".join(found.left_out)
    assert "threshold of law" in left_out and "the metadata of coding" in left_out
    encoder = "cohere embed-multilingual-v3.0" if version == "1.1.1" else "openai text-embedding-3-small"
    assert f"the encoder {encoder}" in left_out
    assert ("the function schemas of law" in left_out) is (version != "1.1.1")
    assert ("the settings alpha, top_k, aggregation, index" in left_out) is (version == "1.1.1")


def test_fit_takes_what_is_found(tmp_path: Path) -> None:
    described = {"name": "cooking", "description": "recipes, baking, kitchen tools"}
    found = import_routes(write(tmp_path, [LAW, CODE, described]))
    router = Router.fit(found.texts, descriptions=found.descriptions)
    assert router.experts == ("law", "coding", "cooking")
    assert router.predict(["Can they sue me?", "Why does my loop never end?"]).tolist() == ["law", "coding"]


def test_a_list_of_routes_needs_nothing_around_it(tmp_path: Path) -> None:
    for content in ([LAW, CODE], {"routes": [LAW, CODE]}):
        found = import_routes(write(tmp_path, content))
        assert (found.kind, list(found.texts), found.left_out) == ("semantic-router", ["law", "coding"], ())


def test_routers_in_a_chain_share_their_routes(tmp_path: Path) -> None:
    more = {**LAW, "utterances": ["Can they sue me?", "Is a will valid?"], "description": "courts"}
    chain = {"router_type": "chain", "routers": [{"router_type": "indexed", "routes": [LAW, CODE]}, {"routes": [more]}]}
    found = import_routes(write(tmp_path, chain))
    assert found.texts["law"] == ["Is this contract void?", "Can they sue me?", "Is a will valid?"]
    assert found.descriptions == {"law": "courts"}


def test_repeated_and_empty_utterances_count_once_and_not_at_all(tmp_path: Path) -> None:
    route = {"name": " law ", "utterances": ["Is it void?", "  ", "Is it void? ", "a \ud83d b"], "unheard": 1}
    found = import_routes(write(tmp_path, [route]))
    assert found.texts == {"law": ["Is it void?", "a \ufffd b"]}
    assert found.left_out == ("the field 'unheard' of law: IR3DE has no such field",)


# LiteLLM -------------------------------------------------------------------------------------------------------------


def test_routes_of_litellm_name_models(tmp_path: Path) -> None:
    alone = import_routes(OTHERS / "litellm-router.json", kind="litellm")
    inside = import_routes(OTHERS / "litellm-config.yaml")
    assert alone.kind == inside.kind == "litellm"
    assert alone.texts == inside.texts and alone.models == inside.models
    assert {name: (model.name, model.base_url) for name, model in alone.models.items()} == {
        name: (name, "http://127.0.0.1:4000/v1") for name in ("gpt-4.1", "claude-sonnet-4", "gpt-4o-mini")
    }
    assert (alone.default, inside.default) == (None, "gpt-4o-mini")
    assert inside.left_out[0].startswith("the embedding model text-embedding-3-large: ")
    assert import_routes(OTHERS / "litellm-router.json").kind == "semantic-router"  # its content shows no more


def test_a_default_model_without_a_route_is_listed(tmp_path: Path) -> None:
    parameters = {"model": "auto_router/a", "auto_router_config": {"routes": [LAW]}, "auto_router_default_model": "big"}
    found = import_routes(write(tmp_path, {"model_list": [{"litellm_params": parameters}]}))
    assert found.default is None and found.left_out == (
        "the default model big: no route has its name, so it is not an expert",
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ([], "no auto-router with routes (auto_router_config)"),
        ([{"model": "auto_router/complexity_router"}], "auto_router/complexity_router routes by other rules"),
        (
            [{"model": "auto_router/a", "auto_router_config_path": "router.json"}],
            "import router.json with --from litellm",
        ),
        ([{"model": "auto_router/a", "auto_router_config": "{"}], "auto_router_config, line 1: this is not JSON"),
        (
            [{"model": f"auto_router/{name}", "auto_router_config": {"routes": []}} for name in "ab"],
            "several auto-routers, auto_router/a, auto_router/b",
        ),
    ],
)
def test_auto_routers_without_routes_are_refused(tmp_path: Path, parameters: list[object], expected: str) -> None:
    content = {"model_list": [{"model_name": "x", "litellm_params": one} for one in parameters]}
    assert expected in refusal(InputError, import_routes, write(tmp_path, content))


# vLLM Semantic Router ------------------------------------------------------------------------------------------------


def test_domains_and_embedding_rules_of_vllm_become_experts() -> None:
    found = import_routes(OTHERS / "vllm-sr-0.4.yaml")
    assert found.kind == "vllm-sr"
    assert {name: len(texts) for name, texts in found.texts.items()} == {
        "billing": 4, "installation": 4, "law": 0, "math": 0
    }  # fmt: skip
    assert found.descriptions["law"] == "Legal questions about contracts, courts and regulations."
    assert {name: (model.name, model.base_url) for name, model in found.models.items()} == {
        "billing": ("Qwen/Qwen3-8B", "http://10.0.0.5:8000/v1"),
        "installation": ("Qwen/Qwen3-8B", "http://10.0.0.5:8000/v1"),
        "law": ("law-adapter", "https://large.internal.example/v1"),
        "math": ("Qwen/Qwen3-32B", "https://large.internal.example/v1"),
    }
    assert [sentence.partition(":")[0] for sentence in found.left_out] == [
        "the conditions on keyword of legal_route, urgent_route",
        "the system prompt of legal_route",
        "the field 'use_reasoning' of legal_route, maths_route",
        "the decision urgent_route",
        "keywords (urgent)",
        "the threshold of billing, installation",
        "the field 'aggregation_method' of billing, installation",
        "the field 'mmlu_categories' of law, math",
        "the model Qwen/Qwen3-8B of math",
        "the settings listeners, modelCards",
        "the default model qwen3-8b",
    ]


def test_what_the_gateway_can_take_is_listed_and_no_key_is_shown(tmp_path: Path) -> None:
    places = [{"endpoint": "a:1", "api_key": "secret"}, {"endpoint": "b:1"}]
    model = {"name": "m", "backend_refs": places, "pricing": {"prompt_per_1m": 1}, "reliability": {"retry_count": 2}}
    decision = {"name": "d", "rules": {"type": "domain", "name": "law"}, "modelRefs": [{"model": "m"}]}
    decision |= {"plugins": [{"type": "response_cache"}], "algorithm": {"type": "static"}}
    routing = {"signals": {"domains": [{"name": "law", "description": "courts"}]}, "decisions": [decision]}
    content = {"providers": {"models": [model]}, "routing": {**routing, "projections": {}}, "global": {}}
    found = import_routes(write(tmp_path, content))
    assert found.models["law"].base_url == "http://a:1/v1" and "secret" not in " ".join(found.left_out)
    assert [sentence.partition(":")[0] for sentence in found.left_out] == [
        "the further endpoints of m",
        "the API key of m",
        "the prices of m",
        "the field 'reliability' of m",
        "the field 'algorithm' of d",
        "the plugin response_cache of d",
        "the settings global, projections",
    ]


def test_categories_of_earlier_versions_are_described_by_their_system_prompts() -> None:
    found = import_routes(OTHERS / "vllm-sr-0.1.yaml")
    assert found.descriptions == {
        "biology": "You are a biology expert. Explain cells, genetics, evolution and ecosystems.",
        "computer science": "Programming, algorithms, data structures and software design",
        "economics": "You are an economist. Explain markets, inflation, trade and monetary policy.",
    }
    assert {name: (model.name, model.base_url) for name, model in found.models.items()} == {
        "biology": ("gpt-oss-120b", "http://[2001:db8::7]:8001/v1"),  # the largest score
        "computer science": ("gpt-oss-120b", "http://[2001:db8::7]:8001/v1"),
        "economics": ("phi4", "http://10.0.0.7:8000/v1"),
    }


def test_signals_may_stand_at_the_top_in_helm_values_and_in_recipes(tmp_path: Path) -> None:
    signals = {"domains": [{"name": "law", "description": "courts"}]}
    rules = {"type": "domain", "name": "law"}
    decisions = [{"name": "a", "priority": 1, "rules": rules, "modelRefs": [{"model": "m"}]}]
    flat = {"signals": signals, "decisions": decisions}
    older = {"categories": signals["domains"], "decisions": decisions}
    for content in (flat, older, {"routing": flat}, {"config": {"routing": flat}}, {"spec": {"config": flat}}):
        found = import_routes(write(tmp_path, content))
        assert (found.kind, found.descriptions, found.models["law"].name) == ("vllm-sr", {"law": "courts"}, "m")
    recipe = {"name": "r", "routing": {"signals": signals, "decisions": [{"name": "a", "rules": rules}]}}
    assigned = {"recipe": "r", "assignments": {"a": {"models": [{"model": "m"}]}}}
    found = import_routes(write(tmp_path, {"recipes": [recipe], "entrypoints": [assigned]}))
    assert (found.descriptions, found.models["law"].name) == ({"law": "courts"}, "m")


def test_a_domain_that_only_a_decision_names_has_the_words_of_the_decision(tmp_path: Path) -> None:
    def decide(name: str, priority: int, *domains: str, operator: str = "OR") -> dict[str, object]:
        conditions = [{"type": "domain", "name": one} for one in domains]
        rules = {"operator": operator, "conditions": conditions}
        return {"name": name, "description": f"{name} words", "priority": priority, "rules": rules}

    decisions = [decide("low", 1, "law"), decide("high", 2, "law"), decide("not", 9, "law", operator="NOT")]
    found = import_routes(write(tmp_path, {"decisions": decisions}))
    assert found.descriptions == {"law": "high words"}
    both = {"decisions": [*decisions, decide("both", 9, "law", "maths")]}
    assert "neither utterances nor a description of maths" in refusal(InputError, import_routes, write(tmp_path, both))


def test_a_domain_and_an_embedding_rule_of_one_name_are_one_expert(tmp_path: Path) -> None:
    rule = {"name": "law", "candidates": ["Can they sue me?"], "negative_candidates": ["Sue is my aunt."]}
    signals = {"domains": [{"name": "law", "description": "courts"}], "embeddings": [rule]}
    found = import_routes(write(tmp_path, {"routing": {"signals": signals}}))
    assert (found.texts, found.descriptions) == ({"law": ["Can they sue me?"]}, {"law": "courts"})
    assert "the negative candidates of law" in found.left_out[0]


# bad files -----------------------------------------------------------------------------------------------------------

TWICE = [LAW, {"name": "coding", "utterances": ["Can they sue me? "]}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "routes.json is empty"),
        (b" \n\t", "routes.json is empty"),
        (b"{", "routes.json, line 1: this is not JSON"),
        (b'{"routes": [\xff]}', "routes.json, line 1: not UTF-8, found the byte 0xff"),
        ("[" * 100_000, "the nesting is too deep"),
        ("null", "found nothing, and no routes"),
        ("3", "found 3, and no routes"),
        ({"a": 1}, "found the keys a, and no routes"),
        ([], "found no routes"),
        ({"routes": []}, "found no routes"),
        ({"routes": None}, "found no routes"),
        ({"routes": {"law": []}}, "routes must be a list, found an object"),
        ({"routes": ["law"]}, 'entry 1 of routes must have fields such as name, found "law"'),
        ([{"name": "law"}], "neither utterances nor a description of law"),
        ([LAW, {"name": "a", "utterances": [" "], "description": " "}], "neither utterances nor a description of a"),
        ([LAW, LAW], "two routes have the name 'law'"),
        (TWICE, "the utterance 'Can they sue me?' is in 'law' and in 'coding'"),
        ([{"name": None}], "route 1: a name must be text, found nothing"),
        ([{"name": 3}], "route 1: a name must be text, found 3"),
        ([{"name": "a\nb", "utterances": ["x"]}], "has control characters"),
        ([{"name": "law", "utterances": "x"}], "utterances must be a list of texts, found \"x\""),
        ([{"name": "law", "utterances": ["x", 3]}], "text 2 of utterances is not text, found 3"),
        ([{"name": "law", "description": ["x"]}], "description must be text, found a list"),
        ({"router_type": "indexed", "index": {"type": "pinecone"}}, "the index 'pinecone' holds them"),
        ({"routing": {"decisions": []}}, "neither domains (categories) nor embedding rules"),
        ({"categories": [{"name": "a"}, {"name": "a"}]}, "two entries of categories have the name 'a'"),
        ({"categories": [{"name": "a"}, {"name": "b"}]}, "neither utterances nor a description of a, b"),
        ({"decisions": [{"name": "a", "rules": {"conditions": "x"}}]}, "rules of decision 'a' must be a list"),
    ],
)  # fmt: skip
def test_files_without_usable_routes_are_refused(tmp_path: Path, content: object, expected: str) -> None:
    assert expected in refusal(InputError, import_routes, write(tmp_path, content))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("routes: [\n", "line 2: this is not YAML"),
        ("routes:\n- name: no\n  utterances: [x]\n", "route 1: a name must be text, found false: write it in quotes"),
        ("a: 2025-13-45\n", "this is not YAML"),
        ("a: \x01\n", "this is not YAML"),
        ("- &a [*a]\n", "found a list, and no routes"),
        ("[" * 5_000, "the nesting is too deep"),
        ("a: &a {x: 1}\nb: {<<: [*a, 3]}\n", "line 2: "),
    ],
)
def test_yaml_without_usable_routes_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    assert expected in refusal(InputError, import_routes, write(tmp_path, content, "routes.yaml"))


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.mkdir", "!!python/name:os.system", "!shell"])
def test_tags_of_python_are_never_run(tmp_path: Path, tag: str) -> None:
    made = tmp_path / "made"
    path = write(tmp_path, f"routes:\n- name: law\n  utterances: {tag} ['{made}']\n", "routes.yaml")
    told = refusal(InputError, import_routes, path)
    assert "routes.yaml, line 3: the tag " in told and "write the value itself" in told
    assert not made.exists()


def test_aliases_that_multiply_take_no_time(tmp_path: Path) -> None:
    levels = [f"r{n}: &r{n} {{operator: OR, conditions: [{', '.join([f'*r{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    leaf = "r0: &r0 {type: domain, name: law}\n"
    decision = "decisions: [{name: a, description: courts, rules: *r29}]\n"
    found = import_routes(write(tmp_path, leaf + "\n".join(levels) + "\n" + decision, "bomb.yaml"))
    assert found.descriptions == {"law": "courts"}
    routers = [f"r{n}: &r{n} {{routers: [{', '.join([f'*r{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    leaf = "r0: &r0 {routes: [{name: law, utterances: [x]}]}\n"
    found = import_routes(
        write(tmp_path, leaf + "\n".join(routers) + "\nrouters: [*r29]\nrouter_type: chain\n", "b.yaml")
    )
    assert found.texts == {"law": ["x"]}
    merges = [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    told = refusal(InputError, import_routes, write(tmp_path, "m0: &m0 {a: 1}\n" + "\n".join(merges), "c.yaml"))
    assert "merges too many keys" in told


def test_a_file_that_is_too_large_is_refused_after_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "routes.json"
    path.touch()
    os.truncate(path, 200_000_000)  # takes no room on the disk
    assert "routes.json is larger than 32 MB" in refusal(InputError, import_routes, path)
    os.truncate(path, MAX_FILE_BYTES)
    assert "this is not JSON" in refusal(InputError, import_routes, path)
    path = write(tmp_path, "#" * (MAX_YAML_CHARS + 1), "routes.yaml")
    assert "5,000,001 characters of YAML" in refusal(InputError, import_routes, path)


def test_paths_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(ArtifactError, import_routes, tmp_path / "none.json")
    assert "is a folder" in refusal(InputError, import_routes, tmp_path)
    assert "cannot read" in refusal(ArtifactError, import_routes, "a\0b")
    assert "found 'other'" in refusal(InputError, partial(import_routes, kind="other"), write(tmp_path, [LAW]))


def test_a_kind_that_is_named_is_not_guessed(tmp_path: Path) -> None:
    assert "expected routes" in refusal(
        InputError, partial(import_routes, kind="semantic-router"), write(tmp_path, "3")
    )
    path = write(tmp_path, [LAW])
    assert "expected a configuration of vLLM" in refusal(InputError, partial(import_routes, kind="vllm-sr"), path)


def test_json_needs_no_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)  # as if it were not installed
    assert import_routes(write(tmp_path, [LAW], "routes")).texts == {"law": LAW["utterances"]}
    told = refusal(MissingExtraError, import_routes, OTHERS / "semantic-router-0.3.3.yaml")
    assert "needs the package 'pyyaml', which is not installed: pip install -e" in told and "[yaml]" in told


def test_json_in_a_file_for_yaml_is_read_and_so_is_yaml_that_begins_like_json(tmp_path: Path) -> None:
    assert list(import_routes(write(tmp_path, [LAW], "a.yaml")).texts) == ["law"]
    flow = "{routes: [{name: law, utterances: [It is void.]}]}"
    assert import_routes(write(tmp_path, flow, "b.yml")).texts == {"law": ["It is void."]}
    bom = b"\xef\xbb\xbf" + json.dumps([LAW]).encode()
    assert list(import_routes(write(tmp_path, bom)).texts) == ["law"]


WRONG = (None, True, -1.5, "law", [], {}, [None], ["law"], [{}])


def list_places(value: object) -> list[tuple[object, object]]:
    """Every object and list in a document, with each of its keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in [(value, key), *list_places(one)]]


@pytest.mark.parametrize(
    "name", ["semantic-router-1.1.1.json", "litellm-config.yaml", "vllm-sr-0.1.yaml", "vllm-sr-0.4.yaml"]
)
def test_a_wrong_value_in_any_place_is_read_or_refused(tmp_path: Path, name: str) -> None:
    document = read_document(OTHERS / name)
    kind = import_routes(OTHERS / name).kind
    for container, key in list_places(document):
        right = container[key]  # type: ignore[index]
        for wrong in WRONG:
            container[key] = wrong  # type: ignore[index]
            with suppress(InputError):
                found = import_routes(write(tmp_path, document), kind=kind)
                assert all(isinstance(text, str) and text for texts in found.texts.values() for text in texts)
                assert all(isinstance(words, str) and words for words in found.descriptions.values())
        container[key] = right  # type: ignore[index]
