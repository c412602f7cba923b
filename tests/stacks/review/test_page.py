"""The page in a real browser, where there is one."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from support.readers.review_documents import parse_html

PAGE = Path(__file__).parent / "scenarios" / "together-replaced" / "plan.html"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(13, 17, 23)"

LOOK = """
<script>
const page = document.documentElement;
const details = [...document.querySelectorAll("details")];
const visible = name => details.filter(each => each.querySelector(name).checkVisibility()).length;
const seen = {
  summaries: visible("summary"),
  folded: visible("p.urn"),
};
details.forEach(each => { each.open = true; });
seen.opened = visible("p.urn");
seen.wide = page.scrollWidth > page.clientWidth;
seen.back = getComputedStyle(document.body).backgroundColor;
const light = color => {
  const [r, g, b] = color.match(/[\\d.]+/g).map(each => each / 255)
    .map(each => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  const color = getComputedStyle(element).backgroundColor;
  return color === "rgba(0, 0, 0, 0)" ? behind(element.parentElement) : color;
};
seen.contrast = Math.min(...[...document.querySelectorAll("main *")].map(element => {
  const both = [light(getComputedStyle(element).color), light(behind(element))];
  return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}));
page.dataset.seen = JSON.stringify(seen);
</script>
"""
"""A script that measures what only a browser knows: visible parts, widths and contrasts."""


def dump_page(page: Path, profile: Path, *flags: str) -> str:
    """Return the page's DOM after the browser has rendered it."""
    command = [
        *(BROWSER or "", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={profile}", "--window-size=900,1200", "--dump-dom", *flags),
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=LAST_RESORT)
    return done.stdout


def measure_page(tmp_path: Path, *flags: str) -> dict[str, Any]:
    """Return the measurements that a script takes in the rendered page."""
    # The page allows no script; for this look its policy is taken out.
    html = PAGE.read_text()
    assert html.count("default-src 'none'") == 1
    html = html.replace("default-src 'none'", "script-src 'unsafe-inline'")
    page = tmp_path / "plan.html"
    page.write_text(html.replace("</body>", f"{LOOK}</body>"))
    attributes = dict(parse_html(dump_page(page, tmp_path / "profile", *flags)).tags[0][1])
    measurements: dict[str, Any] = json.loads(attributes["data-seen"])
    return measurements


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize(("flags", "back"), [((), LIGHT), (("--force-dark-mode",), DARK)])
def test_a_browser_shows_the_page_folded_and_readable(
    tmp_path: Path, flags: tuple[str, ...], back: str
) -> None:
    measurements = measure_page(tmp_path, *flags)
    assert measurements.pop("contrast") >= 4.5, "WCAG's level AA"
    assert measurements == {"summaries": 6, "folded": 0, "opened": 6, "wide": False, "back": back}


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_a_browser_runs_no_script_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    script = "<script>document.title = 'changed'</script></body>"
    page.write_text(PAGE.read_text().replace("</body>", script))
    assert "<title>gpuform plan: conformance/dev</title>" in dump_page(page, tmp_path / "profile")
