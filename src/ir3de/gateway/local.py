"""Experts on the gateway's own machine: a GGUF file served by llama.cpp, and a whole demo of five of them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ir3de import carried, demo as example
from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.gateway.config import Concurrency, Config, ExpertConfig, RouterConfig, Server, Timeouts
from ir3de.router import Router

MODEL = "smollm2-135m"
