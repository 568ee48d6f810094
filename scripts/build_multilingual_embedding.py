"""Learn the matrix M of the multilingual embedding from translated texts, and print the embedding's fingerprint.

python scripts/build_multilingual_embedding.py             download the texts (Debian 12), write M and the notice
python scripts/build_multilingual_embedding.py --texts D   use files that are already in a folder

Texts are the message catalogues of a few programs, and the descriptions of Debian's packages, each in English and in
other languages. No text comes from the data that the benchmarks use. A text's vector x is the mean of its tokens'
weighted rows, at unit length. M is the ridge regression from x, in any language, to the vector of the English text: it
keeps what all languages share. Its 128 columns are the principal components of the result.
"""

from __future__ import annotations

import argparse
import bz2
import gettext
import hashlib
import lzma
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Tokenizer, multilingual, packaged_models
from ir3de.embedding.copies import canonical_definition
from ir3de.embedding.multilingual import E5File, read_e5
from ir3de.files.tensors import write_tensors

DEBIAN = "http://deb.debian.org/debian"
PROGRAMS = (
    "w/wesnoth-1.16/wesnoth-1.16-data_1.16.9-1_all.deb",
    "i/iso-codes/iso-codes_4.15.0-1_all.deb",
    "f/freeciv/freeciv-data_3.0.6-1+deb12u1_all.deb",
    "m/marble/marble-data_22.12.3-1_all.deb",
    "k/kalzium/kalzium-data_22.12.3-1_all.deb",
    "k/kstars/kstars-data_3.6.2-2_all.deb",
    "g/gramps/gramps_5.1.5-1_all.deb",
    "k/kgeography/kgeography-data_22.12.3-1_all.deb",
)
# fmt: off
DESCRIBED = (
    "da", "it", "fr", "de", "sk", "pt_BR", "ja", "ko", "uk", "pl",
    "ru", "es", "cs", "pt", "zh_CN", "fi", "nl", "sv", "hu",
)
# fmt: on
PAIRS_A_LANGUAGE = 3_000
MIN_MESSAGES = 200  # of a language: one with fewer is left out
MESSAGE_CHARACTERS = range(20, 400)
DESCRIPTION_CHARACTERS = 400
DESCRIPTION_WEIGHT = 0.3  # of all descriptions together, against the messages
ENGLISH_SHARE = 0.1  # of the English texts among those that M is learnt from
STRENGTH = 0.1  # of the ridge, times the mean variance of a column
COLUMNS = 128
LARGEST = 32_767

MARKUP = re.compile(r"<[^>]+>|%\(?\w*\)?[-+ #0-9.]*[a-zA-Z]|%\d+|\{[^}]*\}|[_&~](?=\w)|\\[nt]")
DESCRIPTION = re.compile(r"Package: (.*)\nDescription-md5: .*\nDescription-\w+: (.*)\n((?: .*\n?)*)")

Pairs = list[tuple[str, str]]
Vectors = npt.NDArray[np.float32]
Moments = list[npt.NDArray[np.float64]]

NOTICE = """# The multilingual embedding

Made by ir3de from the input embedding of multilingual-e5-small (Wang et al., Microsoft), and nothing else of the model.
Its licence is MIT: see `LICENSE` beside this file.

| | |
|---|---|
| Source | `{member}` in the wheel `{wheel}` on PyPI (MIT) |
| Source SHA-256 | `{sha256}` |
| Changes | rows brought to unit length, weighted, multiplied by a matrix of 384 × 128, stored in 4-bit blocks |
| The matrix | learnt by `scripts/build_multilingual_embedding.py` from {pairs:,} translated texts of Debian 12 |
| Fingerprint | `{fingerprint}` |
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn the matrix of the multilingual embedding.")
    parser.add_argument("--texts", type=Path, help="a folder of .deb and Translation-* files, instead of downloading")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        texts = arguments.texts or download(Path(temporary, "texts"))
        model = packaged_models.find(multilingual.MODEL) or packaged_models.fetch(multilingual.MODEL, Path(temporary))
        packaged_models.check(multilingual.MODEL, model)
        source = read_e5(model)
        messages, descriptions = read_messages(texts, Path(temporary, "catalogues")), read_descriptions(texts)
    learnt = learn(source, messages, descriptions)
    unit = float(np.abs(learnt).max()) / LARGEST
    whole = np.rint(learnt / unit).astype(np.int16)
    header = {"unit": unit * 2.0**-multilingual.UNIT_BITS}
    write_tensors(multilingual.FILES / multilingual.MAP, {"map": whole}, header)
    fingerprint = multilingual.build(source).fingerprint
    about = packaged_models.PACKAGED_MODELS[multilingual.MODEL]
    notice = NOTICE.format(
        member=f"{about.module}/{about.path}",
        wheel=f"{about.package}=={about.version}",
        sha256=about.sha256,
        pairs=len(messages) + len(descriptions),
        fingerprint=fingerprint,
    )
    (multilingual.FILES / multilingual.NOTICE).write_text(notice, "utf-8")
    print(f'{len(messages):,} messages, {len(descriptions):,} descriptions\nFINGERPRINT = "{fingerprint}"')
    return 0


def download(folder: Path) -> Path:
    folder.mkdir()
    pool = [f"{DEBIAN}/pool/main/{path}" for path in PROGRAMS]
    names = ["en.xz", *(f"{language}.bz2" for language in DESCRIBED)]
    for address in [*pool, *(f"{DEBIAN}/dists/bookworm/main/i18n/Translation-{name}" for name in names)]:
        urllib.request.urlretrieve(address, folder / address.rpartition("/")[2])
    return folder


def read_messages(texts: Path, unpacked: Path) -> Pairs:
    """English messages and their translations, the same number of each language where there are enough."""
    unpacked.mkdir()
    for path in PROGRAMS:
        deb = texts / path.rpartition("/")[2]
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", unpacked, "--wildcards", "*.mo"], input=files, check=True)
    by_language: dict[str, dict[str, str]] = {}
    for catalogue in sorted(unpacked.rglob("LC_MESSAGES/*.mo")):
        known = by_language.setdefault(re.split("[_@]", catalogue.parent.parent.name)[0], {})
        for english, other in read_catalogue(catalogue):
            known.setdefault(english, other)
    return [
        pair
        for language, known in sorted(by_language.items())
        if language != "en" and len(known) >= MIN_MESSAGES
        for pair in choose(pair for pair in known.items() if len(pair[0]) in MESSAGE_CHARACTERS)
    ]


def read_catalogue(path: Path) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        try:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        except (OSError, ValueError):  # not a catalogue, or one that breaks the rules of catalogues
            return
    for key, value in catalogue.items():
        english = key[0] if isinstance(key, tuple) else key
        plain, other = (" ".join(MARKUP.sub(" ", text).split()) for text in (english.rpartition("\x04")[2], value))
        if plain != other:
            yield plain, other


def read_descriptions(texts: Path) -> Pairs:
    english = read_translation(lzma.decompress((texts / "Translation-en.xz").read_bytes()).decode())
    pairs: Pairs = []
    for language in DESCRIBED:
        found = read_translation(bz2.decompress((texts / f"Translation-{language}.bz2").read_bytes()).decode())
        pairs += choose((english[name], text) for name, text in sorted(found.items()) if name in english)
    return pairs


def read_translation(content: str) -> dict[str, str]:
    """The beginning of each package's description."""
    described = {}
    for entry in content.split("\n\n"):
        if found := DESCRIPTION.match(entry):
            name, title, body = found.groups()
            lines = [line.strip() for line in body.splitlines() if line.strip() != "."]
            described[name] = " ".join([f"{title}.", *lines])[:DESCRIPTION_CHARACTERS]
    return described


def choose(pairs: Iterable[tuple[str, str]]) -> Pairs:
    """At most so many pairs, by a hash of the English text."""
    return sorted(pairs, key=lambda pair: hashlib.sha256(pair[0].encode()).digest())[:PAIRS_A_LANGUAGE]


def learn(source: E5File, messages: Pairs, descriptions: Pairs) -> npt.NDArray[np.float64]:
    """M (384, 128)."""
    rows = multilingual.normalise_rows(source.levels, source.steps).astype(np.float32)
    rows *= (2.0**-multilingual.UNIT_BITS * multilingual.weigh_tokens(source)).astype(np.float32)[:, None]
    tokenizer = Tokenizer(canonical_definition(multilingual.define_tokenizer(source)))
    parts = [sum_moments(rows, tokenizer, pairs) for pairs in (messages, descriptions)]
    english, other, ee, oo, oe = (
        (one + DESCRIPTION_WEIGHT * two) / (1 + DESCRIPTION_WEIGHT) for one, two in zip(*parts, strict=True)
    )
    mean = ENGLISH_SHARE * english + (1 - ENGLISH_SHARE) * other
    # C_xx and C_xy, x being a text in any language and y the English one
    within = ENGLISH_SHARE * ee + (1 - ENGLISH_SHARE) * oo - np.outer(mean, mean)
    across = ENGLISH_SHARE * ee + (1 - ENGLISH_SHARE) * oe - np.outer(mean, english)
    ridge = STRENGTH * np.trace(within) / len(within) * np.eye(len(within))
    M = np.linalg.solve(within + ridge, across)
    _, components = np.linalg.eigh(M.T @ within @ M)
    return np.asarray(M @ components[:, ::-1][:, :COLUMNS])


def sum_moments(rows: Vectors, tokenizer: Tokenizer, pairs: Pairs) -> Moments:
    """The means of both sides, and the second moments of English, of the others, and of others with English."""
    english, other = (mean_rows(rows, tokenizer, list(texts)) for texts in zip(*pairs, strict=True))
    moments = [english.mean(0), other.mean(0), *(a.T @ b / len(pairs) for a, b in pick(english, other))]
    return [moment.astype(np.float64) for moment in moments]


def pick(english: Vectors, other: Vectors) -> tuple[tuple[Vectors, Vectors], ...]:
    return (english, english), (other, other), (other, english)


def mean_rows(rows: Vectors, tokenizer: Tokenizer, texts: list[str]) -> Vectors:
    """Each text's mean row at unit length."""
    means = np.zeros((len(texts), rows.shape[1]), np.float32)
    for begin in range(0, len(texts), 4_096):
        ids, lengths = tokenizer.encode_batch(texts[begin : begin + 4_096])
        for i, part in enumerate(np.split(ids, np.cumsum(lengths.astype(np.int64))[:-1]), begin):
            if len(part):
                means[i] = rows[part].mean(0)
    return np.asarray(means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9))


if __name__ == "__main__":
    sys.exit(main())
