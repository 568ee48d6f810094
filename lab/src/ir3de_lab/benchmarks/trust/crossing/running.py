"""All cases of a seed, each configuration on a gateway of its own, several at once."""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from ir3de_lab.benchmarks.trust.crossing import laws
from ir3de_lab.benchmarks.trust.crossing.covering import Case
from ir3de_lab.benchmarks.trust.crossing.experts import Experts, running_experts
from ir3de_lab.benchmarks.trust.crossing.features import CONFIGURATION, list_cases
from ir3de_lab.benchmarks.trust.crossing.gateways import TEXTS, build_config, fit_router, running_gateway
from ir3de_lab.benchmarks.trust.crossing.laws import Answer
from ir3de_lab.benchmarks.trust.crossing.requests import PROMPTS, Request, build_request, write_key
from ir3de_lab.benchmarks.trust.doors import Campaign

NAME = "crossed features"
AT_ONCE = 4  # gateways; most of the time they wait for experts that are silent
COPIES = 8  # of a request of a key with a budget
TIMEOUT_S = 60.0

_counting = threading.Lock()


def cross(seed: int, seconds: float = 0.0) -> Campaign:
    """Run the cases of a seed, and those of others for so many seconds."""
    campaign, end = Campaign(NAME, seed), time.monotonic() + seconds
    while True:
        run_cases(seed, campaign)
        seed += 1
        if time.monotonic() >= end:
            return campaign


def run_cases(seed: int, campaign: Campaign) -> None:
    """Run the cases of a seed, those of several configurations at once."""
    cases = list_cases(seed)
    for scorer, selector, policy in {(case["scorer"], case["selector"], case["policy"]) for case in cases}:
        fit_router(scorer, selector, policy)  # here, because threads would fit it several times
    groups = groupby(enumerate(cases), lambda pair: [pair[1][name] for name in CONFIGURATION])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda group: _run_group(group, campaign), [list(group) for _, group in groups]))


def _run_group(group: Sequence[tuple[int, Case]], campaign: Campaign) -> None:
    """The cases of one configuration."""
    cases = [case for _, case in group]
    first = cases[0]
    router = fit_router(first["scorer"], first["selector"], first["policy"])
    with (
        tempfile.TemporaryDirectory() as folder,
        running_experts() as experts,
        running_gateway(build_config(cases, Path(folder), experts.url)) as port,
    ):
        for place, (number, case) in enumerate(group):
            request = build_request(case, place)
            broken = _run_case(case, request, experts, port, campaign)
            if case["key"] == "budget":
                used = _spend(port, request, write_key(case, place, at_once=True), experts)
                broken += laws.check_spending(used, request, case)
            broken += laws.check_one_turn(router, PROMPTS[case["prompt"]])
            for law in broken:
                campaign.report(number, law, case=case, request=request.body)


def _run_case(case: Case, request: Request, experts: Experts, port: int, campaign: Campaign) -> list[str]:
    """Send the request of a case; the laws that were broken."""
    expected = laws.expect(case, fit_router(case["scorer"], case["selector"], case["policy"]))
    experts.faults = {expected.decided or "maths": case["fault"]}
    before = len(experts.seen)
    answer = ask(port, "POST", request.path, request.headers, request.content)
    broken = list(laws.check(case, request, answer, expected, experts.seen[before:]))
    end = time.monotonic() + TIMEOUT_S
    while experts.in_flight and time.monotonic() < end:
        time.sleep(0.005)
    if experts.in_flight:
        broken.append(f"{experts.in_flight} requests to experts are left in flight")
    experts.faults = {}
    with _counting:
        campaign.inputs += 1
        campaign.accepted += answer.status < 400
        campaign.refused += answer.status >= 400
    return broken


def ask(port: int, method: str, path: str, headers: dict[str, str], content: bytes = b"") -> Answer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, content or None, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        try:
            return Answer(response.status, found, response.read())
        except http.client.IncompleteRead as error:
            return Answer(response.status, found, error.partial, is_whole=False)
    finally:
        connection.close()


def _spend(port: int, request: Request, key: str, experts: Experts) -> float:
    """Send a request many times at once, so that all of them find the budget unspent; what their key has spent."""
    headers = {**request.headers, "authorization": f"Bearer {key}", "cache-control": "no-store"}
    experts.faults = dict.fromkeys(TEXTS, "slow")
    with ThreadPoolExecutor(COPIES) as pool:
        list(pool.map(lambda _: ask(port, "POST", request.path, headers, request.content), range(COPIES)))
    experts.faults = {}
    got = ask(port, "GET", "/v1/usage", {"authorization": f"Bearer {key}"})
    return float(json.loads(got.body)["used"]["day"]["cost"])
