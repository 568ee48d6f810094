"""A llama.cpp server in a process of its own.

`python -m ir3de_gateway.local.llama_server` reads one line of JSON that says what to serve.

It is no thread of the gateway: xllamacpp's server holds the interpreter's lock while it loads and while it stops,
and stopping waits for every client to leave: one request in flight would freeze the gateway. A process can just end. It
does so when its standard input ends, and so never outlives whoever started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

DEBUG, QUIET = 3, 0  # llama.cpp's verbosity


def main() -> None:
    """Serve until standard input ends; the address, or what was wrong, is one line of JSON on standard output."""
    wanted = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever llama.cpp prints must not get among the answers
    try:
        server = _server(wanted)
        answer = {"address": server.listening_address}
    except Exception as error:
        answer = {"error": str(error)}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    sys.stdin.read()
    os._exit(0)  # a normal exit would wait for the server's clients


def _server(wanted: Mapping[str, Any]) -> Any:
    import xllamacpp as llama

    params = llama.CommonParams()
    params.model.path, params.model_alias = wanted["path"], {wanted["name"]}
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = wanted["slots"], wanted["slots"] * wanted["context"]
    params.n_predict = wanted["answer"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = wanted["threads"]
    params.verbosity = DEBUG if wanted["debug"] else QUIET
    params.ui = params.endpoint_slots = False  # the second would show other users' prompts
    params.cors_origins = ""  # no page of any origin may read answers past the gateway
    params.cache_ram_mib = 0
    if wanted["embeddings"]:
        params.embedding, params.pooling_type = True, llama.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if wanted["adapters"]:
        params.lora_adapters = [llama.CommonAdapterLoraInfo(path, 0.0) for path in wanted["adapters"]]
        params.cache_prompt = False  # what one adapter computed of a prompt would be taken for another's
    return llama.Server(params)


if __name__ == "__main__":
    main()
