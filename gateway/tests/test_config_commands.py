"""The commands `ir3de config` and `ir3de serve --dry-run`: what they write, check and show."""

import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from commands import complaint, run, run_json, wrong_call
from configurations import GOOD, parsed
from ir3de_gateway.config.load import (
    ConfigError,
    read,
)
from running_gateway import Upstream, served, small_router

pytestmark = pytest.mark.usefixtures("plain_terminal", "no_variables")


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_router().save(tmp_path_factory.mktemp("config") / "router")


def test_init_writes_what_validate_accepts(router: Path, tmp_path: Path) -> None:
    assert run_json("config", "init", "--router", router)["experts"] == ["maths", "law", "cooking"]
    assert "can be served" in run("config", "validate").stdout
    assert "choose another name, or replace it with --force" in complaint("config", "init")
    run("config", "init", "deep.yaml", "--force", "--expert", "a=http://x/v1#m", "--expert", "law=http://y/v1")
    assert [expert.served_model for expert in read(tmp_path / "deep.yaml").experts] == ["m", "law"]
    assert "NAME=URL" in wrong_call("config", "init", "x.yaml", "--expert", "law")


def test_init_without_a_router_says_what_is_invented(router: Path) -> None:
    said = " ".join(run("config", "init").stderr.split())
    assert "the experts law and maths in ir3de.yaml are examples" in said and "--router FOLDER --force" in said
    said = " ".join(run("config", "init", "--force", "--expert", "law=http://y/v1").stderr.split())
    assert "router.path in ir3de.yaml is an example" in said and "experts" not in said
    assert "example" not in run("config", "init", "--force", "--router", router).stderr


@pytest.mark.parametrize("others", ["htp://127.0.0.1:2/v1", "", " ,http://127.0.0.1:2/v1", "127.0.0.1:2/v1"])
def test_every_address_of_an_option_is_checked(router: Path, others: str) -> None:
    said = wrong_call("serve", "--dry-run", "--router", router, "--expert", f"law=http://127.0.0.1:1/v1,{others}")
    assert "address 2 of 'law'" in said and ("must look like" in said or "is empty" in said)
    (finding,) = caught_findings(GOOD.replace("/v1", "/v1,http://b/v1"))
    assert "list several addresses in replicas" in finding


def caught_findings(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return [finding.message for finding in caught.value.findings]


@pytest.mark.parametrize(
    ("kind", "code"), [("before", None), ("after", "raise SystemExit(3)"), ("after", "def redact(")]
)
def test_hooks_that_cannot_be_loaded_are_found(router: Path, kind: str, code: str | None) -> None:
    hooks = f"hooks: {{{kind}: [{{url: 'http://x/'}}, {{call: 'hook.py:redact'}}]}}\n"
    Path("ir3de.yaml").write_text(GOOD.replace("path: router", f"path: {router}") + hooks, "utf-8")
    if code is not None:
        Path("hook.py").write_text(code, "utf-8")
    for command in (("config", "validate"), ("serve", "--dry-run")):
        said = run_json(*command, code=1)
        (found,) = [finding for finding in said["findings"] if finding["level"] == "error"]
        assert found["where"] == f"hooks.{kind}.1.call" and "cannot be loaded" in found["message"] and not said["ok"]
    Path("hook.py").write_text("def redact(event): ...", "utf-8")
    assert run_json("config", "validate")["ok"]


def test_an_expert_without_a_price_among_priced_ones_is_warned_about(router: Path) -> None:
    begin = f"version: 1\nrouter: {{path: {router}}}\nexperts:\n"
    prices = {"maths": "{input_per_1m: 2, output_per_1m: 4}", "law": None, "cooking": "{}"}

    def write(**changed: str | None) -> None:
        experts = "".join(
            f"  - {{name: {name}, base_url: 'http://127.0.0.1:1/v1'{'' if price is None else f', price: {price}'}}}\n"
            for name, price in {**prices, **changed}.items()
        )
        Path("ir3de.yaml").write_text(begin + experts, "utf-8")

    write()
    told = run("config", "validate")
    assert "law has no price while others have: its answers count as free" in " ".join(told.stdout.split())
    assert "can be served, 1 warning" in told.stdout
    (found,) = run_json("config", "validate")["findings"]
    assert (found["level"], found["where"]) == ("warning", "experts.1.price")
    for fine in ({"law": "{input_per_1m: 1}"}, {"law": "{}"}, {"maths": None, "cooking": None}):
        write(**fine)
        assert run_json("config", "validate")["findings"] == []


def test_validate_tells_people_and_programs(tmp_path: Path, router: Path) -> None:
    Path("ir3de.yaml").write_text(GOOD.replace("path: router", f"path: {router}") + "    modle: x\n", "utf-8")
    result = run("config", "validate", code=1)
    assert "did you mean model?" in result.stdout and "1 problem" in result.stderr
    assert run_json("config", "validate", code=1)["findings"][0]["line"] == 5
    Path("ir3de.yaml").write_text(GOOD, "utf-8")
    assert "no router at" in run("config", "validate", code=1).stdout
    Path("ir3de.yaml").write_text(GOOD.replace("path: router", f"path: {router}"), "utf-8")
    said = run_json("config", "validate")
    assert said["ok"] and said["findings"][0]["level"] == "warning"


def test_ping_asks_the_endpoints(router: Path) -> None:
    with served(Upstream().app()) as upstream:
        experts = [f"--expert={name}={upstream}/{name}/v1" for name in ("law", "maths")]
        run("config", "init", "--router", router, *experts, "--expert", "cooking=http://127.0.0.1:9/v1")
        said = run_json("config", "validate", "--ping", code=1)
        failed = run("config", "validate", "--ping", code=1)
        assert run_json("config", "validate")["ok"]
    told = [(finding["level"], finding["message"]) for finding in said["findings"]]
    assert len(told) == 3 and not said["ok"]
    lines = Path("ir3de.yaml").read_text("utf-8").splitlines()
    assert "127.0.0.1:9/v1" in lines[said["findings"][2]["line"] - 1]
    assert told[2] == ("error", "cooking at http://127.0.0.1:9/v1: nothing answers there")
    assert all(level == "warning" and "does not answer as OpenAI's API does" in message for level, message in told[:2])
    assert "nothing answers there" in failed.stdout and "can be served" not in failed.stdout
    assert "1 problem" in failed.stderr and "nothing answers there" not in failed.stderr  # told once


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [(401, 1, "/models answers 401: is its key right?"), (503, 1, "/models answers 503"), (404, 0, "answers 404")],
)
def test_a_ping_fails_where_an_endpoint_refuses_or_fails(router: Path, status: int, code: int, told: str) -> None:
    with served(PlainTextResponse("no", status)) as upstream:
        run("config", "init", "--router", router, f"--expert=law={upstream}/v1")
        findings = run_json("config", "validate", "--ping", code=code)["findings"]
    (found,) = (one for one in findings if one["where"] == "experts.0.base_url")
    assert told in found["message"] and found["level"] == ("error" if code else "warning")


def test_findings_have_the_lines_of_the_file_that_they_are_about(router: Path) -> None:
    lines = [f"router: {{path: {router}}}", "server: {keys_file: keys.yaml}", "experts:", "  - name: maths"]
    lines += ["    base_url: http://127.0.0.1:9/v1", "  - name: law", "    replicas:"]
    lines += ["      - http://127.0.0.1:9/v1", "      - http://localhost:9/v1"]
    Path("ir3de.yaml").write_text("\n".join(lines) + "\n", "utf-8")
    expired = "- {name: %s, hash: 'sha256:%s', expires: 2020-01-31"
    keys = ["keys:", expired % ("a", "0" * 64) + "}", expired % ("b", "1" * 64) + ", disabled: true}"]
    Path("keys.yaml").write_text("\n".join(keys) + "\n", "utf-8")
    found = run_json("config", "validate", "--ping", code=1)["findings"]
    told = {(one["where"], one["line"]) for one in found}
    assert {("experts.0.base_url", 5), ("experts.1.replicas.0", 8), ("experts.1.replicas.1", 9)} <= told
    assert ("experts", 3) in told  # the router has another expert
    assert not any(where == "state" for where, _ in told)
    Path("file").touch()
    Path("ir3de.yaml").write_text("\n".join([*lines, "state: file/state"]), "utf-8")
    for command in (("config", "validate"), ("serve", "--dry-run")):
        (state,) = [one for one in run_json(*command)["findings"] if one["where"] == "state"]
        assert (state["line"], state["level"]) == (10, "warning") and "cannot be written" in state["message"]
    (key,) = [one for one in found if one["where"].startswith("keys.yaml")]
    assert (key["where"], key["line"], key["level"]) == ("keys.yaml: keys.0.expires", 2, "warning")
    assert "the key 'a' has expired and is rejected" in key["message"]


def test_show_tells_defaults_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("ir3de.yaml").write_text(GOOD + "    api_key_env: LAW_KEY\n", "utf-8")
    assert "api_key_env: LAW_KEY  # not set" in run("config", "show").stdout
    monkeypatch.setenv("LAW_KEY", "sesame")
    shown = run("config", "show").stdout
    assert "api_key_env: LAW_KEY  # set" in shown and "sesame" not in shown
    assert parsed(shown) == read(Path("ir3de.yaml"))  # what is shown can be served
    assert run_json("config", "show")["secrets"] == {
        "IR3DE_API_KEY": "not set", "IR3DE_ADMIN_TOKEN": "not set", "LAW_KEY": "set",
    }  # fmt: skip


def test_dry_run(router: Path) -> None:
    expert = "law=http://127.0.0.1:1/v1#mistral"
    shown = run("serve", "--router", router, "--expert", expert, "--dry-run").stdout
    assert "mistral" in shown and "can be served" in shown
    said = run_json("serve", "--router", router, "--expert", expert, "--dry-run")
    assert said["ok"] and said["experts"][0]["model"] == "mistral"
    refused = run("serve", "--router", router, "--expert", expert, "--host", "0.0.0.0", "--dry-run", code=1)
    assert "clients need no key" in refused.stdout and "this cannot be served: 1 problem" in refused.stderr
    run("serve", "--router", router, "--expert", expert, "--host", "0.0.0.0", "--open", "--dry-run")
    said = complaint("serve", "--dry-run")
    assert (
        "no configuration at" in said and "--router FOLDER --expert NAME=URL" in said and "ir3de serve --demo" in said
    )
    assert "add --expert NAME=URL for each of" in complaint("serve", "--router", router, "--dry-run")
    assert f"name the router with --router {router}" in complaint("serve", router, "--dry-run")
    assert "--demo brings its own" in wrong_call("serve", "--demo", "--expert", "law=http://127.0.0.1:1/v1")


def test_a_dry_run_refuses_a_level_that_serve_refuses(router: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_LOG_LEVEL", "loud")
    refused = run("serve", "--router", router, "--expert", "law=http://127.0.0.1:1/v1", "--dry-run", code=1)
    assert "IR3DE_LOG_LEVEL is 'loud': choose one of" in refused.stderr and "all is well" not in refused.stdout


def test_without_the_extra_for_local_models_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    said = complaint("serve", "--demo")
    assert "the demonstration needs the package 'xllamacpp'" in said and "[local]'" in said


def test_validate_shows_what_is_wrong_beside_a_missing_router(tmp_path: Path) -> None:
    (tmp_path / "ir3de.yaml").write_text(GOOD.replace("law", "lawyer") + "logs: {prompts: true}\n", encoding="utf-8")
    found = run_json("config", "validate", code=1)["findings"]
    assert [one["where"] for one in found][:2] == ["router.path", "logs.prompts"] and found[0]["line"] is not None


def test_validate_shows_a_missing_router_beside_a_wrong_field(tmp_path: Path) -> None:
    (tmp_path / "ir3de.yaml").write_text(GOOD + "logs: {prompt: true}\n", encoding="utf-8")
    found = run_json("config", "validate", code=1)["findings"]
    assert [one["where"] for one in found] == ["router.path", "logs.prompt"]
    assert all(one["line"] is not None for one in found)
