"""Draw docs/images/report.png: the first screen of the report on the demo's router.

Needs chromium, chromedriver, selenium and scikit-learn.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
from pathlib import Path

from ir3de import Router
from ir3de.cli import cli
from ir3de.corpora import examples as demo
from ir3de_lab.catalogue.recording import record
from ir3de_lab.files import write_json

ROOT = Path(__file__).parents[2]
IMAGE, RECORD = ROOT / "docs" / "images" / "report.png", ROOT / "results" / "picture_report.json"
SIZE = {"width": 1200, "height": 1060, "deviceScaleFactor": 1, "mobile": False}
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def write_report(folder: Path) -> Path:
    """The report on the demo's prompts, made by the command as anybody would."""
    prompts = demo.prompts()
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("prompt", "team"))
        writer.writerows((text, name) for name, texts in prompts.items() for text in texts)
    router, target = Router.fit(prompts).save(folder / "router"), folder / "report.html"
    arguments = ["report", str(router), str(folder / "train.csv"), "--label", "team", "-o", str(target), "-q"]
    cli(arguments, standalone_mode=False)
    return target


def draw(page: Path, folder: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or ""
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        driver.get(page.as_uri())
        driver.save_screenshot(str(IMAGE))
    finally:
        driver.quit()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        draw(write_report(Path(folder)), Path(folder, "profile"))
    write_json(RECORD, record("picture of the report"))
    print(f"{IMAGE.name}: {IMAGE.stat().st_size // 1024} KB", file=sys.stderr)


if __name__ == "__main__":
    main()
