"""ir3de keys, and what the configuration's checks say of a keys file."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from commands import complaint, run, run_json
from ir3de.gateway.keys.definitions import read_keys_file

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
    assert "no key on standard input" in complaint("keys", "hash", "a", stdin="")


def test_a_broken_keys_file_is_found_before_serving(tmp_path: Path, fitted: Path) -> None:
    expert = {"name": "law", "base_url": "http://127.0.0.1:9/v1"}
    config = {"router": {"path": str(fitted)}, "experts": [expert], "server": {"keys_file": "keys.yaml"}}
    (tmp_path / "ir3de.yaml").write_text(json.dumps(config))
    digest = "sha256:" + "0" * 64
    (tmp_path / "keys.yaml").write_text(f"keys:\n- {{name: a, hash: '{digest}', experts: [surgery]}}\n")
    checked = run_json("config", "validate", tmp_path / "ir3de.yaml")
    assert any("no expert 'surgery'" in finding["message"] for finding in checked["findings"])
    (tmp_path / "keys.yaml").write_text("keys:\n- {name: a}\n")
    for command in (("config", "validate"), ("serve", "--dry-run")):
        assert "line 2, keys.0" in run(*command, tmp_path / "ir3de.yaml", code=1).stderr
    (tmp_path / "keys.yaml").unlink()
    assert "no keys file" in run("config", "validate", tmp_path / "ir3de.yaml", code=1).stderr
