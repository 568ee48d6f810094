"""Collect the texts that version 2 of the default embedding was distilled on: documentation in Debian packages.

python scripts/distillation_texts.py texts.txt.xz            download the packages (Debian 12), write one piece a line
python scripts/distillation_texts.py texts.txt.xz --debs D   use packages that are already in a folder

Pieces are of 5 to 45 words. No text comes from the data that the benchmarks use.
"""

from __future__ import annotations

import argparse
import gzip
import html
import lzma
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# fmt: off
PACKAGES = {
    "apache2-doc", "bash-doc", "bible-kjv-text", "debian-handbook", "debian-reference-en", "developers-reference",
    "dict-foldoc", "dict-gcide", "dict-jargon", "dict-wn", "fortunes", "freebsd-manpages", "ghc-doc", "git-doc",
    "libreoffice-help-en-us", "linux-doc-6.1", "manpages", "manpages-dev", "maxima-doc", "mercurial-common",
    "octave-doc", "perl-doc", "postgresql-doc-15", "python-sympy-doc", "python3-doc", "r-base-html", "r-doc-html",
    "sagemath-doc", "subversion", "vim-doc", "wordnet-base", "wordpress",
}
# fmt: on
MOST_BYTES = {"dict": 14_000_000, "man": 4_000_000}  # of one kind of text; dictionaries are the plainest English
USUAL_BYTES = 3_000_000
PIECES = 430_000
WORDS = (5, 8, 12, 16, 24, 32, 45)  # of a piece
MAX_FILE_BYTES = 30_000_000

TAGS = re.compile(r"<(script|style)[^>]*>.*?</\1>|<[^>]+>", re.S)
BLOCKS = re.compile(r"</(p|li|h\d|td|tr|div|dt|dd|pre)>")
READ = re.compile(r"\.(html?|xhtml|txt|pod|rst|md|xml|gz|dz|[1-8])$|/fortunes/\w+$|/dict|/wordnet/data\.")
SKIPPED = re.compile(
    r"/man/[a-z]{2}(_|/)|genindex|searchindex|\.(de|es|fr|ja|ko|pt-br|ru|tr|zh-cn|da)(\.|$)"
    r"|/(cs|de|es|fr|it|ja|ko|zh|pt|ru|tr|da|pl|nl|id|nb|sv|vi|hr|ro|el|fa|ar)[-_]?[A-Z]*/"
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Collect texts to distil a sentence encoder on.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--debs", type=Path, help="a folder of .deb files, instead of downloading them")
    arguments = parser.parse_args()
    draw = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        debs = arguments.debs or download(Path(temporary, "debs"))
        unpacked = Path(temporary, "unpacked")
        for deb in sorted(debs.glob("*.deb")):
            if deb.name.partition("_")[0] in PACKAGES:
                subprocess.run(["dpkg-deb", "-x", deb, unpacked], check=True)
        pieces = collect(unpacked, draw)
    draw.shuffle(pieces)
    with lzma.open(arguments.target, "wt", encoding="utf-8") as file:
        file.write("\n".join(pieces[:PIECES]))
    print(f"{min(len(pieces), PIECES):,} of {len(pieces):,} pieces")
    return 0


def download(folder: Path) -> Path:
    folder.mkdir()
    for package in sorted(PACKAGES):
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    return folder


def collect(root: Path, draw: random.Random) -> list[str]:
    """Pieces of all files, as many of each kind as `MOST_BYTES` allows."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path in sorted(root.rglob("*")):
        name = str(path)
        is_text = path.is_file() and not path.is_symlink() and READ.search(name) and not SKIPPED.search(name)
        if is_text and path.stat().st_size <= MAX_FILE_BYTES:
            found.setdefault(kind_of(name), []).extend(cut(read(path), seen, draw))
    chosen = []
    for kind, pieces in sorted(found.items()):
        draw.shuffle(pieces)
        left = MOST_BYTES.get(kind, USUAL_BYTES)
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                break
            chosen.append(piece)
    return chosen


def kind_of(path: str) -> str:
    if "/dictd/" in path or "/wordnet/" in path or "/games/" in path:
        return "dict"
    if "/man/" in path:
        return "man"
    return path.split("/doc/")[1].split("/")[0] if "/doc/" in path else "other"


def read(path: Path) -> str:
    """A file as plain text; nothing where it is binary."""
    content = path.read_bytes()
    if path.suffix in (".gz", ".dz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError):
            return ""
    if b"\0" in content[:2_000]:
        return ""
    text, name = content.decode("utf-8", "replace"), path.name.removesuffix(".gz").removesuffix(".dz")
    if "/wordnet/data." in str(path):
        return "\n\n".join(line.split("|", 1)[1].replace('"', "") for line in text.splitlines() if "|" in line)
    if name.endswith((".html", ".htm", ".xhtml", ".xml")) or text[:200].lstrip().startswith("<"):
        return html.unescape(TAGS.sub(" ", BLOCKS.sub("\n\n", text)))
    if re.search(r"\.[1-8]\w*$", name):  # a manual page
        text = re.sub(r"^\.(SH|PP|TP|IP|SS|LP).*$", "\n", re.sub(r'^\.(TH|\\").*$', "", text, flags=re.M), flags=re.M)
        text = re.sub(r"\\f[A-Z]|\\f\([A-Z]{2}|\\&", "", re.sub(r"^\.\w+ ?", "", text, flags=re.M))
        return text.replace(r"\-", "-")
    return text.replace("{", "").replace("}", "") if "/dictd/" in str(path) else text


def cut(text: str, seen: set[str], draw: random.Random) -> Iterator[str]:
    """Pieces of a text's paragraphs, without repeats; at least two characters in five are letters."""
    for paragraph in re.split(r"\n\s*\n", text):
        words, begin = paragraph.split(), 0
        while len(words) - begin >= 4:
            size = draw.choice(WORDS)
            piece = " ".join(words[begin : begin + size])
            begin += size
            letters = sum(character.isalpha() for character in piece)
            if letters >= 0.4 * len(piece) and len(piece) <= 400 and piece not in seen:
                seen.add(piece)
                yield piece


if __name__ == "__main__":
    sys.exit(main())
