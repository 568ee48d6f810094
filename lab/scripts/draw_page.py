"""Draw docs/images/gateway-*.png: the page of a gateway with the demo's router, in front of experts that are played.

Needs chromium, chromedriver and selenium. Two minutes of traffic go through before the pictures are taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de_gateway import Config, Gateway, create_app
from ir3de_lab.catalogue.recording import record
from ir3de_lab.files import write_json

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TOKEN = "drawing"
SIZE = (1280, 800)
PROMPT = "How did lawyers in ancient Rome prove that a will was forged?"
CHAT = (
    "My landlord wants to evict me. Is that allowed?",
    "Ok, and how long does that take?",
    "How do I sort a list of dates in Python?",
)
TYPED = "Can I also sort by two keys?"
CHAT_ANSWERS = {
    CHAT[
        0
    ]: "Only with a reason that the law accepts, such as unpaid rent, and with notice in writing. Without a court "
    "order nobody may put you out.",
    CHAT[1]: "From the notice to the court's order mostly three to six months. Until then you may stay.",
    CHAT[2]: "With sorted(dates): dates compare as you expect, the earliest one first.",
}
ANSWER = (
    "Mostly by people and by seals. A will was sealed by its witnesses, seven of them in the praetor's form, and "
    "opened before them: a broken seal, or a witness who did not know his own, spoke for a forgery. From 81 BC the "
    "lex Cornelia made it a crime, and handwriting was compared in court."
)
SECONDS = {"coding": 0.5, "mathematics": 0.7, "law": 0.8, "medicine": 0.6, "history": 0.3}
PRICES = {"coding": 0.6, "mathematics": 0.4, "law": 0.9, "medicine": 0.5, "history": 0.2}


async def expert(request: Request) -> Response:
    """An expert that is played: it takes its time, and one of them fails now and then."""
    name, asked = request.path_params["expert"], await request.json()
    if name == "law" and not asked.get("stream") and random.random() < 0.03:
        return JSONResponse({"error": {"message": "overloaded"}}, 503)
    if asked.get("stream"):
        said = CHAT_ANSWERS.get(asked["messages"][-1]["content"], ANSWER)
        return StreamingResponse(_events(asked["model"], said, SECONDS[name]), media_type="text/event-stream")
    await asyncio.sleep(random.lognormvariate(0, 0.35) * SECONDS[name])
    message = {"role": "assistant", "content": ANSWER}
    usage = {"prompt_tokens": 21, "completion_tokens": random.randint(60, 240)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse({"object": "chat.completion", "model": asked["model"], "choices": [choice], "usage": usage})


async def _events(model: str, said: str, seconds: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(random.lognormvariate(0, 0.3) * seconds / 6)
    for word in said.split(" "):
        choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
        yield b"data: %s\n\n" % json.dumps({"model": model, "choices": [choice]}).encode()
        await asyncio.sleep(seconds / 60)
    usage = {"prompt_tokens": 21, "completion_tokens": len(said.split(" "))}
    yield b"data: %s\n\n" % json.dumps({"model": model, "choices": [], "usage": usage}).encode()
    yield b"data: [DONE]\n\n"


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


async def send_traffic(url: str, seconds: int) -> None:
    """Prompts of all domains, some of two at once; now more of them, now fewer."""
    prompts = demo.held_out()
    async with aiohttp.ClientSession() as client:

        async def ask() -> None:
            one, other = random.choices(list(prompts), [6, 3, 3, 2, 1], k=2)
            text = random.choice(prompts[one])
            if random.random() < 0.25:
                text = f"{text[: len(text) // 2]} {random.choice(prompts[other])[:40]}"
            body = {"model": "auto", "messages": [{"role": "user", "content": text}], "stream": random.random() < 0.6}
            timeout = aiohttp.ClientTimeout(0.25 if random.random() < 0.01 else 60)
            try:
                async with client.post(f"{url}/v1/chat/completions", json=body, timeout=timeout) as response:
                    await response.read()
            except TimeoutError:
                pass  # a client that leaves

        rate = 14.0
        async with asyncio.TaskGroup() as tasks:
            for _ in range(seconds):
                rate = min(24.0, max(5.0, rate + random.gauss(0, 1.6)))
                for _ in range(round(random.gauss(rate, 1.5))):
                    tasks.create_task(ask())
                await asyncio.sleep(1)


def draw(url: str, folder: Path, seconds: int) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={folder}")
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def look(scheme: str) -> None:
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )

    try:
        metrics: dict[str, Any] = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1.5, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        look("light")
        driver.get(f"{url}/#token={TOKEN}")
        sleep(2)
        _type(driver, "prompt", PROMPT)
        sleep(1)
        driver.find_element("id", "send").click()
        driver.execute_script("document.activeElement.blur()")
        sleep(4)
        for _ in range(5):  # as after some typing: the first look of a process takes longer
            driver.execute_script("document.getElementById('prompt').dispatchEvent(new Event('input'))")
            sleep(0.5)
        driver.save_screenshot(str(IMAGES / "gateway-playground.png"))
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**metrics, "height": 880})
        driver.find_element("id", "tab-chat").click()
        for text in CHAT:
            _type(driver, "chat-text", text)
            sleep(1)
            driver.find_element("id", "chat-send").click()
            sleep(3)
        _type(driver, "chat-text", TYPED)
        sleep(1)
        driver.execute_script("scrollTo(0, 0)")
        sleep(0.5)
        driver.save_screenshot(str(IMAGES / "gateway-chat.png"))
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.find_element("id", "tab-traffic").click()
        look("dark")
        sending = threading.Thread(target=asyncio.run, args=[send_traffic(url, seconds)])
        sending.start()
        sleep(seconds - 5)
        driver.save_screenshot(str(IMAGES / "gateway-traffic.png"))
        sending.join()
    finally:
        driver.quit()


def _type(driver: Any, place: str, text: str) -> None:
    element = driver.find_element("id", place)
    element.clear()
    element.send_keys(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=125, help="of traffic before the second picture")
    seconds = parser.parse_args().seconds
    random.seed(1)
    os.environ["IR3DE_ADMIN_TOKEN"] = TOKEN
    app = Starlette(routes=[Route("/{expert}/v1/chat/completions", expert, methods=["POST"])])
    with tempfile.TemporaryDirectory() as folder, served(app) as upstream:
        router = Router.fit(demo.prompts()).save(Path(folder, "router"))
        experts = [
            {
                "name": name,
                "base_url": f"{upstream}/{name}/v1",
                "model": f"{name}-expert",
                "price": {"input_per_1m": PRICES[name], "output_per_1m": 4 * PRICES[name]},
            }
            for name in demo.DOMAINS
        ]
        config = Config.model_validate({"router": {"path": str(router)}, "experts": experts, "logs": {"access": None}})
        with served(create_app(Gateway.open(config))) as url:
            draw(url, Path(folder, "profile"), seconds)
    write_json(IMAGES.parents[1] / "results" / "picture_page.json", record("pictures of the page"))
    for path in sorted(IMAGES.glob("gateway-*.png")):
        print(f"{path.name}: {path.stat().st_size // 1024} KB", file=sys.stderr)


if __name__ == "__main__":
    main()
