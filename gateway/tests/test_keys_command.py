"""ir3de keys, and what the configuration's checks say of a keys file."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import complaint, run, run_json
from ir3de.errors import InputError
from ir3de_gateway.config.document import Config
from ir3de_gateway.keys.keys_file import check_keys_file, read_keys_file

pytestmark = pytest.mark.usefixtures("plain_terminal")


def test_a_new_key_and_its_entry(tmp_path: Path) -> None:
    made = run_json("keys", "new", "research")
    assert made["key"].startswith("sk-ir3de-") and len(made["key"]) > 40
    assert made["entry"] == {"name": "research", "hash": f"sha256:{hashlib.sha256(made['key'].encode()).hexdigest()}"}
    assert run_json("keys", "new", "research")["key"] != made["key"]
    printed = run("keys", "new", 'a: "b"', "--quiet").stdout
    key, entry = printed.split("\n", 1)
    (tmp_path / "keys.yaml").write_text("keys:\n" + entry)
    (found,) = read_keys_file(tmp_path / "keys.yaml").keys
    assert (found.name, found.hash) == ('a: "b"', f"sha256:{hashlib.sha256(key.encode()).hexdigest()}")
    again = yaml.safe_load("keys:\n" + run("keys", "hash", 'a: "b"', "--quiet", stdin=key + "\n").stdout)
    assert again["keys"][0]["hash"] == found.hash
    assert "printable name" in complaint("keys", "new", "a\nb")
    assert "printable name" in complaint("keys", "hash", "", stdin="sk-1")
    assert "no key on standard input" in complaint("keys", "hash", "a", stdin="")
    (tmp_path / "keys.yaml").write_text(entry)
    with pytest.raises(InputError, match="expected `keys:` and the list of keys below it, found a list"):
        read_keys_file(tmp_path / "keys.yaml")


def test_a_broken_keys_file_is_found_before_serving(tmp_path: Path, fitted: Path) -> None:
    expert = {"name": "law", "base_url": "http://127.0.0.1:9/v1"}
    config = {"router": {"path": str(fitted)}, "experts": [expert], "server": {"keys_file": "keys.yaml"}}
    (tmp_path / "ir3de.yaml").write_text(json.dumps(config))
    digest = "sha256:" + "0" * 64
    (tmp_path / "keys.yaml").write_text(f"keys:\n- {{name: a, hash: '{digest}', experts: [surgery]}}\n")
    checked = run_json("config", "validate", tmp_path / "ir3de.yaml")
    (found,) = [finding for finding in checked["findings"] if "keys.yaml" in finding["where"]]
    assert (found["line"], found["where"]) == (2, "keys.yaml: keys.0.experts")
    assert "no expert 'surgery': there are law" in found["message"]
    (tmp_path / "keys.yaml").write_text("keys:\n- {name: a}\n")
    for command in (("config", "validate"), ("serve", "--dry-run")):
        (found,) = [
            one for one in run_json(*command, tmp_path / "ir3de.yaml", code=1)["findings"] if one["level"] == "error"
        ]
        assert (found["line"], found["where"]) == (2, "keys.yaml: keys.0") and "needs either" in found["message"]
    (tmp_path / "keys.yaml").unlink()
    assert "no keys file" in run("config", "validate", tmp_path / "ir3de.yaml", code=1).stdout
    key = "sk-my-own-secret-key"
    (tmp_path / "keys.yaml").write_text(f"keys:\n- name: a\n  hash: {key}\n- name: b\n  hash: sha256:00\n  scops: []\n")
    found = run_json("config", "validate", tmp_path / "ir3de.yaml", code=1)["findings"]
    errors = [(one["line"], one["where"]) for one in found if one["level"] == "error"]
    assert errors == [(3, "keys.yaml: keys.0.hash"), (5, "keys.yaml: keys.1.hash"), (6, "keys.yaml: keys.1.scops")]
    said = json.dumps(found, ensure_ascii=False)
    assert "must be sha256: and 64 hexadecimal digits, found 'sk-'… with 20 characters; `ir3de keys new" in said
    assert key not in said and "found 'sha256:00'…" in said


@pytest.mark.parametrize(
    ("price", "key", "told"),
    [
        ({}, {"limits": {"budget_per_day": 5}}, "is never reached, because no expert has a price"),
        ({}, {"limits": {"budget_per_month": 5}, "experts": ["law"]}, "is never reached, because its experts have no"),
        ({"output_per_1m": 1}, {"limits": {"budget_per_day": 0}}, "a budget of 0 rejects every request of 'a'"),
        ({"output_per_1m": 1}, {"limits": {"budget_per_day": 5}}, None),
        ({}, {"limits": {"concurrent": 5}}, None),
    ],
)
def test_budgets_without_a_use_are_told(tmp_path: Path, price: Any, key: Any, told: str | None) -> None:
    (tmp_path / "keys.yaml").write_text(json.dumps({"keys": [{"name": "a", "hash": "sha256:" + "0" * 64, **key}]}))
    experts = [{"name": "law", "base_url": "http://a/v1", "price": price}]
    server = {"keys_file": str(tmp_path / "keys.yaml")}
    config = Config.model_validate({"router": {"path": "r"}, "experts": experts, "server": server})
    findings = check_keys_file(config)
    assert [finding.level for finding in findings] == ["warning"] * (told is not None)
    assert told is None or (told in findings[0].message and "keys.yaml: keys.0.limits.budget_per_" in findings[0].where)
