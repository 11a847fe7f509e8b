#!/usr/bin/env python3
"""The example's page in a browser: test_browser.py PROGRAM [FILE.html]

PROGRAM writes the page; with FILE.html, that page is looked at instead. Exits 77 where there is no Chromium
(TPGM_BROWSER names one that is not in PATH), after the checks that need none.
"""
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
import zlib
from html import unescape
from pathlib import Path

WIDTHS = (360, 800, 1400)
SKIP = 77
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Frames of each width, because a window of a headless browser has a least width. What a frame's document says of
# itself goes into a line of text each: what, width, and the values.
MEASURE = """<!DOCTYPE html><body style="margin:0">%s<pre id="result"></pre><script>
onload = () => {
  const lines = [];
  const say = (...words) => lines.push(words.join(' '));
  const rgb = color => color.match(/[\\d.]+/g).slice(0, 3).join(',');
  for (const frame of document.querySelectorAll('iframe')) {
    const page = frame.contentDocument, view = frame.contentWindow, width = frame.clientWidth;
    const style = element => view.getComputedStyle(element);
    say('scroll', width, page.documentElement.scrollWidth);
    say('loaded', width, view.performance.getEntriesByType('resource').length);
    say('background', width, rgb(style(page.body).backgroundColor));
    say('text', width, rgb(style(page.body).color));
    let shown = 0;
    for (const figure of page.querySelectorAll('figure.drawing svg')) {
      const box = figure.getBoundingClientRect();
      if (box.width === 0) continue;
      ++shown;
      for (const text of figure.querySelectorAll('text')) {
        const place = text.getBoundingClientRect();
        if (!text.hasAttribute('fill')) say('text', width, rgb(style(text).fill));
        if (place.left < box.left - 1 || place.right > box.right + 1 || place.top < box.top - 1 ||
            place.bottom > box.bottom + 1) say('cut', width, figure.getAttribute('aria-label'), text.textContent);
      }
      const labels = [...figure.querySelectorAll('text.halo')].map(label => label.getBoundingClientRect());
      for (let a = 0; a < labels.length; ++a) for (let b = 0; b < a; ++b) {
        const [one, other] = [labels[a], labels[b]];
        // A line of text is taller than its letters.
        if (one.left < other.right && other.left < one.right && one.top + 3 < other.bottom && other.top + 3 < one.bottom)
          say('overlap', width, figure.getAttribute('aria-label'), a, b);
      }
    }
    say('figures', width, shown, page.querySelectorAll('figure.drawing').length);
    const broken = [...page.images].filter(image => !image.complete || image.naturalWidth === 0).length;
    say('images', width, broken, page.images.length);
  }
  document.getElementById('result').textContent = lines.join('\\n');
};
</script></body>"""

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAILED:", message)


def find_browser():
    named = os.environ.get("TPGM_BROWSER")
    for name in [named] if named else BROWSERS:
        if found := shutil.which(name):
            return found
    return None


def check_text(html):
    """What can be said of the file without a browser."""
    xml.etree.ElementTree.fromstring(html)  # each figure in it is XML, and so is the page
    expect(len(html) < 2_000_000, f"the page has {len(html)} bytes")
    text = html.decode()
    expect("<script" not in text.lower(), "there is a script in the page")
    for address in re.findall(r'(?:src|href)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text):
        expect(address.startswith(("#", "data:")), f"the page refers to {address[:80]}")
    expect("@import" not in text, "the page imports a style")
    ids = re.findall(r'\sid="([^"]*)"', text)
    expect(len(ids) == len(set(ids)), "an id is there twice")
    for target in re.findall(r'href="#([^"]*)"', text):
        expect(target in ids, f"a link leads to #{target}, which is not there")


def run_browser(browser, folder, *arguments):
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
               "--disable-background-networking", "--allow-file-access-from-files", "--disable-dev-shm-usage",
               f"--user-data-dir={folder}/profile", *arguments]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


def scheme_argument(dark):
    return f"--blink-settings=preferredColorScheme={0 if dark else 1}"


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (each / 255 for each in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def check_measures(dom, dark):
    light = "dark" if dark else "light"
    lines = [line.split(" ") for line in unescape(re.search(r'<pre id="result">(.*?)</pre>', dom, re.S)[1]).split("\n")]
    expect(sum(line[0] == "scroll" for line in lines) == len(WIDTHS), f"{light}: not every width was measured")
    background = {}
    for what, width, *values in lines:
        where = f"{light}, {width} px"
        if what == "scroll":
            expect(int(values[0]) <= int(width), f"{where}: the page scrolls sideways, it is {values[0]} px wide")
        elif what == "loaded":
            expect(values == ["0"], f"{where}: the page loaded {values[0]} other files")
        elif what == "background":
            background[width] = luminance([float(part) for part in values[0].split(",")])
            expect(background[width] < 0.05 if dark else background[width] > 0.9, f"{where}: wrong background {values[0]}")
        elif what == "text":
            one, other = sorted([luminance([float(part) for part in values[0].split(",")]), background[width]])
            expect((other + 0.05) / (one + 0.05) >= 4.5, f"{where}: text of too little contrast, {values[0]}")
        elif what == "figures":
            expect(values[0] == values[1] != "0", f"{where}: {values[0]} of {values[1]} figures are shown")
        elif what == "images":
            expect(values[0] == "0", f"{where}: {values[0]} of {values[1]} images are broken")
        elif what in ("cut", "overlap"):
            expect(False, f"{where}: {what}: {' '.join(values)}")


def pixels_of(png):
    """The rows of a PNG of 8 bits per channel, as bytes, and the number of channels."""
    position, data, header = 8, b"", None
    while position < len(png):
        size, kind = struct.unpack(">I4s", png[position:position + 8])
        body = png[position + 8:position + 8 + size]
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            data += body
        position += size + 12
    width, height, depth, colors = header[:4]
    channels = {0: 1, 2: 3, 6: 4}[colors]
    assert depth == 8
    data, stride, rows = zlib.decompress(data), width * channels, []
    above = bytearray(stride)
    for y in range(height):
        kind, row = data[y * (stride + 1)], bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            left, up = row[x - channels] if x >= channels else 0, above[x]
            if kind == 1:
                row[x] = (row[x] + left) & 255
            elif kind == 2:
                row[x] = (row[x] + up) & 255
            elif kind == 3:
                row[x] = (row[x] + (left + up) // 2) & 255
            elif kind == 4:
                corner = above[x - channels] if x >= channels else 0
                near = min((abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner))
                row[x] = (row[x] + near[2]) & 255
        rows.append(bytes(row))
        above = row
    return rows, channels


def check_screenshot(png, where, dark):
    rows, channels = pixels_of(png)
    pixels = [tuple(row[x:x + 3]) for row in rows[::4] for x in range(0, len(row), 4 * channels)]
    background = max(set(pixels), key=pixels.count)
    other = sum(pixel != background for pixel in pixels) / len(pixels)
    expect(0.02 < other < 0.7, f"{where}: {100 * other:.1f} % of the image is not background")
    expect(len(set(pixels)) > 20, f"{where}: there are {len(set(pixels))} colors in the image")
    expect(sum(background) < 150 if dark else sum(background) > 700, f"{where}: the background is {background}")


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder, "page.html")
        if len(sys.argv) > 2:
            shutil.copy(sys.argv[2], page)
        else:
            subprocess.run([sys.argv[1], page], check=True)
        check_text(page.read_bytes())
        browser = find_browser()
        if not browser:
            print("no Chromium here; TPGM_BROWSER may name one")
            return 1 if failures else SKIP
        frames = "".join(f'<iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>' for width in WIDTHS)
        Path(folder, "measure.html").write_text(MEASURE % frames)
        for dark in (False, True):
            measure = Path(folder, "measure.html").as_uri()
            check_measures(run_browser(browser, folder, scheme_argument(dark), "--dump-dom", measure), dark)
            for width in WIDTHS:
                frame = f'<body style="margin:0"><iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>'
                Path(folder, "frame.html").write_text(frame)
                shot = Path(folder, "shot.png")
                run_browser(browser, folder, scheme_argument(dark), f"--window-size={width},900", f"--screenshot={shot}",
                            Path(folder, "frame.html").as_uri())
                check_screenshot(shot.read_bytes(), f"{'dark' if dark else 'light'}, {width} px", dark)
        paper = Path(folder, "page.pdf")
        run_browser(browser, folder, scheme_argument(True), f"--print-to-pdf={paper}", "--no-pdf-header-footer", page.as_uri())
        expect(paper.read_bytes().startswith(b"%PDF") and paper.stat().st_size > 20000, "the page does not print")
        # What is folded is on paper as if it were open.
        opened = Path(folder, "opened.html")
        opened.write_text(page.read_text(encoding="utf-8").replace("<details", "<details open"), encoding="utf-8")
        paper_of_opened = Path(folder, "opened.pdf")
        run_browser(browser, folder, scheme_argument(True), f"--print-to-pdf={paper_of_opened}", "--no-pdf-header-footer",
                    opened.as_uri())
        sizes = [path.stat().st_size for path in (paper, paper_of_opened)]
        expect(abs(sizes[0] - sizes[1]) < 0.01 * sizes[1], f"folded parts are not on paper: {sizes[0]} and {sizes[1]} bytes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
