"""What MkDocs needs to know of this repository: pages link to files beside docs/, and those become pages of the site.

`../results/speed.json` leads somewhere on a code host, but not on a site that holds docs/ alone. So each file that a
page links to is shown under `repository/`: Markdown as a page, code as a page with one block, a folder as a list, and
anything else as it is.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PREFIX = "repository/"
NOT_SEARCHED = "---\nsearch: {exclude: true}\n---\n"
_BLOCK_OR_LINK = re.compile(r"^(?P<fence> *(`{3,}|~{3,})).*?^ *\2 *$|(?P<link>\]\((?P<target>[^)\s]+)\))", re.M | re.S)
_MARKER_BEFORE_TABLE = re.compile(r"^(<!-- .* -->)\n(?=\|)", re.M)
_ADDRESS = re.compile(r"[a-z]+:|#|/")
_LANGUAGES = {
    ".py": "python",
    ".mjs": "js",
    ".sh": "sh",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    "": "docker",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the list of versions where mike deploys one; elsewhere the page would look for it in vain."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page links to, and what those pages link to in turn."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        source = waiting.pop()
        if not source.endswith(".md"):
            continue
        text = (ROOT / source).read_text(encoding="utf-8")
        for path in _find_paths(text, source):
            if path.startswith("docs/") or path in known or not (ROOT / path).exists():
                continue
            known.add(path)
            files.append(_make_file(path, config))
            inner = [f"{path}/{entry.relative_to(ROOT / path)}" for entry in _list_folder(ROOT / path)]
            for entry in {entry.replace("\\", "/") for entry in inner} - known:
                known.add(entry)
                files.append(_make_file(entry, config))
            waiting.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to their places on the site, and part markers from tables, which would not be seen otherwise."""
    own = page.file.src_uri
    source = own.removeprefix(PREFIX) if own.startswith(PREFIX) else f"docs/{own}"

    def lead(match: re.Match[str]) -> str:
        target = match["target"]
        if not target or _ADDRESS.match(target):
            return match[0]
        path, hash_sign, anchor = target.partition("#")
        found = _resolve(path, source)
        if not (ROOT / found).exists():
            return match[0]  # MkDocs says that it leads nowhere
        place = found.removeprefix("docs/") if found.startswith("docs/") else _place(found)
        return f"]({posixpath.relpath(place, posixpath.dirname(own) or '.')}{hash_sign}{anchor})"

    return _MARKER_BEFORE_TABLE.sub(r"\1\n\n", _BLOCK_OR_LINK.sub(lead, markdown))


def _find_paths(markdown: str, source: str) -> Iterator[str]:
    for match in _BLOCK_OR_LINK.finditer(markdown):
        target = match["target"]
        if target and not _ADDRESS.match(target):
            yield _resolve(target.partition("#")[0], source)


def _resolve(target: str, source: str) -> str:
    """The path from the root of the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _place(path: str) -> str:
    """Where a file of the repository lies among the sources of the site."""
    if (ROOT / path).is_dir():
        return f"{PREFIX}{path}/index.md"
    return f"{PREFIX}{path}.md" if _is_code(path) else PREFIX + path


def _is_code(path: str) -> bool:
    return Path(path).suffix in _LANGUAGES and Path(path).name != "LICENSE"


def _make_file(path: str, config: MkDocsConfig) -> File:
    full, place = ROOT / path, _place(path)
    if full.is_dir():
        links = (
            f"- [{name}]({name})" for name in sorted(entry.relative_to(full).as_posix() for entry in _list_folder(full))
        )
        return File.generated(config, place, content="\n".join([f"{NOT_SEARCHED}# {path}\n", *links]))
    if path.endswith(".md"):
        return File.generated(config, place, content=NOT_SEARCHED + full.read_text(encoding="utf-8"))
    if _is_code(path):
        block = f"~~~~{_LANGUAGES[full.suffix]}\n{full.read_text(encoding='utf-8')}\n~~~~\n"
        return File.generated(config, place, content=f"{NOT_SEARCHED}# {path}\n\n{block}")
    return File.generated(config, place, abs_src_path=str(full))


def _list_folder(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [entry for entry in folder.rglob("*") if entry.is_file() and "__pycache__" not in entry.parts]
