"""The gateway's configuration: what is refused and how that is told, the schema, the recipes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from commands import ROOT, run
from configurations import GOOD, parsed
from ir3de.errors import ArtifactError, InputError
from ir3de.files.router_folder import RouterFiles
from ir3de_gateway import validation
from ir3de_gateway.cli.config import build_template, suggest_endpoints
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.config.load import (
    ConfigError,
    Source,
    find_config_file,
    format_schema,
    merge_overrides,
    parse_document,
    read,
)
from running_gateway import small_router

pytestmark = pytest.mark.usefixtures("plain_terminal", "no_variables")


def replicas_of(given: str) -> str:
    return GOOD.replace("base_url: http://127.0.0.1:1/v1", f"replicas: {given}")


SCHEMA = Draft202012Validator(json.loads(format_schema()))
EXAMPLES = sorted((ROOT / "examples" / "gateway").glob("*.yaml"))


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_router().save(tmp_path_factory.mktemp("config") / "router")


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parsed(text)
    return str(caught.value)


# reading --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "    modle: x\n", "line 5, experts.0.modle: there is no such field, did you mean model?"),
        (GOOD + "port: 80\n", "line 5, port: there is no such field here, did you mean server.port?"),
        (GOOD + '("routing": {}\n', 'line 5, ("routing": there is no such field, did you mean routing?'),
        (GOOD + "(folder): {}\n", "line 5, (folder): there is no such field"),
        (GOOD + "state: {(store): 1, store: 'redis://a'}\n", "line 5, state.(store): there is no such field"),
        (GOOD + "server:\n  port: '80'\n", 'line 6, server.port: should be a valid integer, found "80"'),
        (GOOD + "server:\n  open: yes\n", 'server.open: should be a valid boolean, found "yes": write true or false'),
        (GOOD + "routing: {default: maths}\n", "line 5, routing.default: no expert 'maths': there are law"),
        (GOOD + "    fallbacks: [maths, law]\n", "line 5, experts.0.fallbacks: no expert 'maths'"),
        (GOOD + "  - name: law\n    base_url: http://x/v1\n", "experts: the names law occur twice"),
        (GOOD.replace("law", "7"), "line 3, experts.0.name: should be a valid string, found 7: put it in quotes"),
        (GOOD.replace("http:", "ftp:"), "line 4, experts.0.base_url: must look like http://"),
        (GOOD + "router: {path: other}\n", "line 5: 'router' occurs twice, first in line 1"),
        (GOOD + "server: {port: 1, port: 2}\n", "line 5: 'port' occurs twice, first in line 5"),
        (GOOD + "version: 2\n", "line 5, version: should be 1, found 2"),
        ("version: 1\n", "2 problems: line 1, experts: this field is missing; line 1, router: this field is missing"),
        ("router: {path: r}\nexperts: []\n", "line 2, experts: should not be empty"),
        ("experts:\n\t- name: law\n", "line 2: this is not YAML"),
        ("experts: &a [*a]\n", "line 1: this is not YAML: an alias that contains itself"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: this is not YAML: could not determine a constructor"),
        ("[" * 500, "the nesting is too deep"),
        ("a: \x00\n", "line 1: the character U+0000"),
        ("- a\n", "expected fields such as `router:`, found a list"),
        ("", "is empty: `ir3de config init`"),
        (replicas_of("[http:/a/v1]"), "f.yaml: line 4, experts.0.replicas.0: must look like http://127.0.0.1:8001/v1"),
        (
            replicas_of("[{base_url: 'http://a/v1', nmae: b}]"),
            "replicas.0.nmae: there is no such field, did you mean name",
        ),
        (replicas_of("[{url: 'http://a/v1'}]"), "replicas.0.url: there is no such field, did you mean base_url?"),
        (replicas_of("[{name: a}]"), "f.yaml: line 4, experts.0.replicas.0.base_url: this field is missing"),
        (replicas_of("http://a/v1"), 'replicas: should be a list, found "http://a/v1": put it in [ ]'),
        (replicas_of("[3]"), "f.yaml: line 4, experts.0.replicas.0: should be an object, found 3"),
        (replicas_of("[]"), "experts.0.base_url: base_url or replicas is needed"),
        (
            GOOD.replace("law", "''").replace("base_url", "model"),
            "f.yaml: line 3, experts.0.name: String should have at least",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_its_field(text: str, told: str) -> None:
    said = refusal(text)
    assert said.startswith("f.yaml") and told in said


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(GOOD.replace("base_url", "base_ulr") + "    timeouts: {connect: soon}\nserver: {port: 99999}\n")
    assert [finding.where for finding in caught.value.findings] == [
        "experts.0.base_ulr", "experts.0.timeouts.connect", "server.port",
    ]  # fmt: skip
    assert [finding.line for finding in caught.value.findings] == [4, 5, 6]


@pytest.mark.parametrize("text", [GOOD.replace("base_url", "url"), replicas_of("[{url: 'http://a/v1'}]")])
def test_a_misspelt_field_is_not_also_reported_as_missing(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    (found,) = caught.value.findings
    assert found.where.endswith(".url") and found.message == "there is no such field, did you mean base_url?"


@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("    api_key: SESAME-1\n", "api_key_env"),
        ("    defaults: {Password: SESAME-1}\n", "api_key_env"),
        ("    api_key_env: SESAME-1\n", "such as MY_KEY"),
        ("    api_key_env: sesame_1234567890\n", "looks like a key"),
        ("server:\n  admin_token: SESAME-1\n", "admin_token_env"),
    ],
)
def test_secrets_are_refused_and_never_repeated(field: str, hint: str) -> None:
    said = refusal(GOOD + field)
    assert hint in said and re.search("line [56],", said)
    assert "sesame" not in said.lower()


@pytest.mark.parametrize("address", ["http://u:sesame@a/v1", "ftp://u:sesame@a/v1", "u:sesame@a/v1"])
def test_passwords_in_addresses_are_never_repeated(address: str) -> None:
    said = refusal(GOOD.replace("http://127.0.0.1:1/v1", address))
    assert "experts.0.base_url: must not contain a user or password" in said
    assert "sesame" not in said


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://a:99999/v1", "a port from 1 to 65535"),
        ("http://a:0/v1", "a port from 1 to 65535"),
        ("http://a:b/v1", "a port from 1 to 65535"),
        ("http://a b/v1", "no spaces"),
        ("http://a/v1 x", "no spaces"),
        ("http://a/\u00e4", "no spaces"),
        ("http://a\r\nx: y/v1", "no spaces"),
        ("http://a\0/v1", "no spaces"),
    ],
)
def test_addresses_that_no_request_can_be_sent_to_are_refused(address: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        ExpertConfig(name="a", base_url=address)


def test_a_named_variable_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD + "    api_key_env: LAW_KEY\nserver: {api_keys_env: [CLIENTS]}\n"
    assert "line 5, experts.0.api_key_env: the environment variable LAW_KEY is not set" in refusal(text)
    assert "server.api_keys_env.0: the environment variable CLIENTS is not set" in refusal(text)
    assert parsed(text, secrets=False).experts[0].api_key_env == "LAW_KEY"
    monkeypatch.setenv("LAW_KEY", "a")
    monkeypatch.setenv("CLIENTS", "b")
    assert parsed(text).server.api_keys_env == ("CLIENTS",)


def test_yaml_is_read_as_editors_read_it() -> None:
    said = parsed(GOOD.replace("law", "no") + "    defaults: {a: 010, b: 1e3, c: 2024-01-01, d: ~}\n").experts[0]
    assert said.name == "no" and said.defaults == {"a": 10, "b": 1000.0, "c": "2024-01-01", "d": None}


def test_paths_are_relative_to_the_file_and_addresses_stay() -> None:
    config = parsed(GOOD + "logs: {access: a.log, decisions: /d.jsonl}\nstate: s\n")
    assert (config.router.path, config.logs.access, config.logs.decisions, config.state) == (
        "/etc/router", "/etc/a.log", "/d.jsonl", "/etc/s",
    )  # fmt: skip
    assert parsed(GOOD).logs.access == "-" and parsed(GOOD).state is None
    assert parsed(GOOD.replace("path: router", "path: s3://b/r")).router.path == "s3://b/r"


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="ir3de config init"):
        read(tmp_path / "missing.yaml")
    with pytest.raises(ArtifactError, match="cannot read"):
        read(tmp_path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(InputError, match="line 2: not UTF-8, found the byte 0xe9"):
        read(latin)


def test_what_the_command_line_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    below = {"server": {"port": 1, "host": "h"}, "experts": [{"name": "a", "x": 1}, {"name": "b"}]}
    above = {"server": {"port": 2}, "experts": [{"name": "a", "x": 2}, {"name": "c"}]}
    assert merge_overrides(below, above) == {
        "server": {"port": 2, "host": "h"},
        "experts": [{"name": "b"}, {"name": "a", "x": 2}, {"name": "c"}],
    }
    odd = {"experts": [{"name": ["a"]}]}  # refused later, with its line
    assert merge_overrides(odd, above)["experts"] == [*odd["experts"], *above["experts"]]
    given = Source(None, {"router": {"path": "r"}, "experts": [{"name": "a", "base_url": "http://x/v1"}]})
    monkeypatch.setenv("IR3DE_SERVE_SOURCE", "")  # so that it is put back
    given.to_environment()
    assert Source.from_environment() == given and given.read() == Source.from_environment().read()


def test_where_the_file_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config_file() == Path("ir3de.yaml")
    monkeypatch.setenv("IR3DE_CONFIG", "/etc/other.yaml")
    assert find_config_file() == Path("/etc/other.yaml") and find_config_file("given.yaml") == Path("given.yaml")


# schema and recipes ---------------------------------------------------------------------------------------------------


def manifests() -> dict[str, str]:
    deploy = ROOT / "examples" / "deploy"
    compose = yaml.safe_load((deploy / "compose.yaml").read_text("utf-8"))
    return {
        "compose": compose["configs"]["gateway"]["content"],
        **{name: (deploy / "kubernetes" / name / "ir3de.yaml").read_text("utf-8") for name in ("base", "production")},
        **{path.stem: path.read_text("utf-8") for path in EXAMPLES},
        "template": build_template("router", suggest_endpoints(["law", "on", "1"])),
    }


@pytest.mark.parametrize(("name", "text"), manifests().items(), ids=list(manifests()))
def test_recipes_satisfy_loader_and_schema(name: str, text: str) -> None:
    config = parsed(text, secrets=False)
    SCHEMA.validate(parse_document(text, name).value)
    assert len(config.experts) > 1
    if name in (
        "compose",
        "base",
        "production",
    ):  # in a container the gateway has to be reached, and its settings cannot
        assert config.server.host == "0.0.0.0" and config.server.api_keys_env and config.state


def test_comments_of_the_template_are_the_defaults() -> None:
    text = build_template("router", suggest_endpoints(["law", "maths"]))
    shown = re.sub(r"^( *)# (?=\S+:|  )", r"\1", text.split("version: 1", 1)[1], flags=re.M)
    no_default = (
        "default|shadow|threshold|decisions|state|api_key_env|price|context_window|system_prompt|defaults|keys_file"
    )
    shown = re.sub(rf"^ *({no_default}):.*\n", "", shown, flags=re.M)
    config = parsed(shown.replace("    model: law ", "    model: null "), secrets=False)
    plain = parsed(build_template("router", suggest_endpoints(["law", "maths"])))
    assert config.model_copy(update={"server": config.server.model_copy(update={"api_keys_env": ()})}) == plain
    assert "capabilities:" in shown and "limits:" in shown


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    SCHEMA.check_schema(SCHEMA.schema)
    for wrong in ("port: 1\n", "server: {port: x}\n", "    price: {input_per_1m: -1}\n", "version: 2\n"):
        assert not SCHEMA.is_valid(parse_document(GOOD + wrong, "f").value) and refusal(GOOD + wrong)
    parts = [SCHEMA.schema, *SCHEMA.schema["$defs"].values()]
    assert all(part["description"] for part in parts)
    fields = [field for part in parts for field in part["properties"].values()]
    assert all("description" in field or "$ref" in field for field in fields)


def test_the_published_schema_is_this_one() -> None:
    published = json.loads((ROOT / "docs" / "ir3de.schema.json").read_text("utf-8"))
    assert published == json.loads(format_schema()) == json.loads(run("config", "schema").stdout)


# fitting together -----------------------------------------------------------------------------------------------------


def test_refusing_what_this_router_never_calls_out_of_domain_is_told(router: Path) -> None:
    def tell(routing: str, facts: validation.RouterFacts | None) -> list[str]:
        told = validation.check_consistency(parsed(f"{GOOD}routing: {routing}\n"), facts)
        return [finding.message for finding in told if finding.where == "routing.out_of_domain"]

    facts = validation.read_router_facts(str(router))
    assert facts is not None and facts.tells_out_of_domain and not tell("{out_of_domain: refuse}", facts)
    never = replace(facts, tells_out_of_domain=False)
    assert "at least two prompts of an expert" in tell("{out_of_domain: refuse}", never)[0]
    assert not tell("{out_of_domain: answer}", never)


@pytest.mark.parametrize(
    ("member", "familiarity", "threshold", "own", "told"),
    [
        ({"lowest": -1_000.0}, {"lowest": -3.0}, 0.5, 0.0, False),
        ({"lowest": -1.5}, None, None, 0.0, True),
        (None, {"lowest": -3.0}, None, 0.0, False),
        (None, {"lowest": -3.0}, None, 0.5, True),
        (None, {"lowest": -3.0}, 0.5, 0.0, True),
        (None, None, 0.5, 0.5, False),
    ],
)
def test_which_routers_tell_out_of_domain(
    member: Any, familiarity: Any, threshold: float | None, own: float, told: bool
) -> None:
    header = {"membership": member, "familiarity": familiarity, "policy": {"threshold": own}}
    assert RouterFiles(header, ()).tells_out_of_domain(threshold) is told


def test_names_of_router_and_configuration(router: Path) -> None:
    facts = validation.read_router_facts(str(router))
    assert facts is not None and facts.experts == ("maths", "law", "cooking") and len(facts.digest) == 64
    some = parsed(GOOD + "  - {name: poetry, base_url: 'http://x/v1'}\n")
    told = validation.check_consistency(some, facts)
    assert {finding.level for finding in told} == {"warning"}
    assert "no endpoint for maths, cooking, which the router knows" in told[0].message and "'poetry'" in told[1].message
    none = parsed(GOOD.replace("law", "poetry"))
    assert [finding.level for finding in validation.check_consistency(none, facts)] == ["error"]


def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    def told(state: Path) -> list[str]:
        config = parsed(f"{GOOD}state: {state}\nserver: {{workers: 2, keys_file: keys.yaml}}\n")
        return [str(finding) for finding in validation.check_state_folder(config, None)]

    assert told(tmp_path) == told(tmp_path / "new" / "state") == [] and not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    (found,) = told(tmp_path / "file" / "state")
    assert "state cannot be written" in found and "each worker counts keys alone" in found


def test_other_machines_need_a_key_or_an_open_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(server: str) -> bool:
        return validation.find_host_error(parsed(f"{GOOD}server: {{{server}}}\n")) is not None

    hosts = {
        "127.0.0.1": False,
        "::1": False,
        "localhost": False,
        "0.0.0.0": True,
        "::": True,
        "": True,
        "10.0.0.1": True,
    }
    assert {host: refused(f"host: '{host}'") for host in hosts} == hosts
    assert not refused("host: 0.0.0.0, open: true")
    monkeypatch.setenv("IR3DE_API_KEY", " , ")
    assert refused("host: 0.0.0.0")
    monkeypatch.setenv("IR3DE_API_KEY", "sesame")
    assert not refused("host: 0.0.0.0")


def test_problems_of_every_kind_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong field, names that do not fit, and variables that are not set: nobody corrects a file four times."""
    monkeypatch.delenv("UNSET_KEY", raising=False)
    text = GOOD + "    api_key_env: UNSET_KEY\n    fallbacks: [lwa]\nrouting: {default: laww}\nserver: {port: 99999}\n"
    with pytest.raises(ConfigError) as caught:
        parsed(text, secrets=True)
    found = {finding.where: finding for finding in caught.value.findings}
    assert list(found) == ["experts.0.api_key_env", "experts.0.fallbacks", "routing.default", "server.port"]
    assert [finding.line for finding in found.values()] == [5, 6, 7, 8]
    assert "did you mean law?" in found["routing.default"].message
    with pytest.raises(ConfigError) as caught:
        parsed(text.replace("99999", "80"), secrets=True)
    assert [finding.where for finding in caught.value.findings] == list(found)[:3]
    with pytest.raises(ConfigError, match=r"^f\.yaml: line 1, experts: this field is missing$"):
        parsed("router: {path: router}\nrouting: {default: law}\n")  # without experts, no name is wrong


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD + "routing: {text: conversatoin}\n", "did you mean conversation?"),
        (GOOD + "    capabilities: [chat, vison]\n", "did you mean vision?"),
        (GOOD + "routing: {default: lwa}\n", "did you mean law?"),
    ],
)
def test_values_much_like_others_are_suggested(text: str, told: str) -> None:
    assert told in refusal(text)
