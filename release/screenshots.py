"""Take the screenshots of docs/images: `python release/screenshots.py FAMILY_RUN UMLS_RUN`.

Needs Playwright and Chromium. FAMILY_RUN comes from `plogicnet demo --out`, UMLS_RUN from
`plogicnet train umls --preset best/umls --out`.
"""

import shutil
import subprocess  # nosec B404
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
FACT, ENTITY = "#/fact?h=walter_wagner&r=grandfather&t=ben_kraus_2", "#/entity?name=walter_wagner"
SIZES = {"page": (1200, 1060), "page-dark": (1200, 760), "page-phone": (390, 844), "report": (1000, 1245)}


def take(browser: Browser, name: str, address: str, dark: bool = False, scale: float = 1) -> None:
    """Save one screenshot as docs/images/NAME.png."""
    width, height = SIZES[name]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        device_scale_factor=scale,
    )
    page.goto(address)
    page.wait_for_timeout(2_000)
    page.screenshot(path=IMAGES / f"{name}.png")


def main(family: str, umls: str) -> None:
    """Serve one run, write the report of the other, and take all screenshots."""
    program = [sys.executable, "-m", "plogicnet"]
    server = subprocess.Popen([*program, "serve", family, "--port", "0"], stdout=subprocess.PIPE, text=True)  # nosec B603
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        try:
            report = Path(folder) / "report.html"
            subprocess.run([*program, "report", umls, "--out", str(report)], check=True)  # nosec B603
            line = server.stdout.readline() if server.stdout else ""
            address = line.split(" at ")[1].strip()
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            take(browser, "page", address + FACT)
            take(browser, "page-dark", address + ENTITY, dark=True)
            take(browser, "page-phone", address + ENTITY)
            take(browser, "report", report.as_uri(), scale=1.25)
            browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
