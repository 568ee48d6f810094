"""Models in the cache of the hub's library, and what a process without a network makes of them."""

import os
import subprocess
import sys
from pathlib import Path

import ir3de


def hub_cache(home: Path, repo_id: str, source: Path, under: str = "") -> None:
    """Lay a model's files out as the hub's cache does: contents in blobs, names in a snapshot."""
    repository = home / "hub" / f"models--{repo_id.replace('/', '--')}"
    revision = "0123456789abcdef0123456789abcdef01234567"
    snapshot = repository / "snapshots" / revision / under
    for folder in (repository / "refs", repository / "blobs", snapshot):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    for number, path in enumerate(sorted(source.iterdir())):
        (repository / "blobs" / f"{number:040x}").write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(repository / "blobs" / f"{number:040x}")


def load_offline(home: Path, repo_id: str, **variables: str) -> str:
    """What a fresh process says of the model: the hub's library reads the environment when it is imported.

    It may not reach the hub, unless the variables say otherwise.
    """
    program = (
        "import sys\nfrom ir3de.embedding import Embedding\nfrom ir3de.errors import EmbeddingError\n"
        "try:\n    e = Embedding.load(sys.argv[1])\n    print(e.name, e.fingerprint)\n"
        "except EmbeddingError as error:\n    print('EmbeddingError', error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(ir3de.__file__).parent.parent)}
    environment |= variables
    command = [sys.executable, "-W", "ignore", "-c", program, repo_id]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()
