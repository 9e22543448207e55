"""A whole page in a real browser, on a desk, on a phone and on paper: no text covers another, is cut or too wide.

Wants Chromium, and playwright from PyPI: make test-browser.
"""

import pytest

from deepbench.reporting.page.report import write_report
from deepbench.results.file import read_results
from tests.help import samples
from tests.reporting import test_figures_in_browser as figures
from tests.reporting.conftest import CHROMIUM

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

# The faults of a page, each in words. Texts count where they are visible; what a scrolling container hides does not
# count, and neither does the table of cases, whose first columns lie above the others.
FAULTS = r"""() => {
  const found = new Set(), texts = [];
  const about = (e) => `${e.closest("figure")?.id ?? ""} ${e.tagName} "${e.textContent.trim().slice(0, 60)}"`;
  const styleOf = (e) => getComputedStyle(e);
  const container = (e) => {
    for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
      if (/auto|scroll|hidden|clip/.test(styleOf(p).overflow)) return p;
    return null;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || e.closest("script, style, option, .unseen, .cards thead, #scroller, .modebar")) continue;
    if (!e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const clip = container(e)?.getBoundingClientRect();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      const [left, right] = clip ? [Math.max(r.left, clip.left), Math.min(r.right, clip.right)] : [r.left, r.right];
      const [top, bottom] = clip ? [Math.max(r.top, clip.top), Math.min(r.bottom, clip.bottom)] : [r.top, r.bottom];
      if (right - left > 1 && bottom - top > 1) texts.push({ e, left, right, top, bottom });
    }
    if (e.closest("svg")) continue;
    const line = parseFloat(styleOf(e).lineHeight) || 1.5 * parseFloat(styleOf(e).fontSize);
    for (const word of node.data.matchAll(/[^\s\-/:,=]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (range.getBoundingClientRect().height > 2.5 * line) found.add(`in pieces: ${word[0]} of ${about(e)}`);
    }
  }
  texts.sort((a, b) => a.top - b.top);
  texts.forEach((a, at) => {
    for (let i = at + 1; i < texts.length && texts[i].top < a.bottom - 3; i++) {
      const b = texts[i], width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      if (a.e !== b.e && width > 2 && Math.min(a.bottom, b.bottom) - b.top > 3)
        found.add(`covered: ${about(a.e)} and ${about(b.e)}`);
    }
  });
  const widest = document.documentElement.clientWidth + 1 - scrollX;
  for (const e of document.body.querySelectorAll("*:not(svg *)"))
    if (e.getBoundingClientRect().right > widest && e.checkVisibility() && !container(e))
      found.add(`too wide: ${about(e)}`);
  for (const text of document.querySelectorAll("figcaption"))
    if (/\b(false|undefined|null|NaN)\b/.test(text.textContent)) found.add(`no words: ${text.textContent}`);
  return { faults: [...found], texts: texts.length };
}"""


@pytest.fixture(scope="session")
def noisy_pages(tmp_path_factory):
    """Pages of one file and of two with every chart, long names, steps of devices, and many disturbed times."""
    folder = tmp_path_factory.mktemp("layout")
    steps = [*samples.kernels_of_steps(1, 2), *samples.all_reduce(2, 2e-3)]
    made = [*figures.records(), *samples.ocr("f32"), *samples.ocr("i8"), *steps]
    files = []
    for name, every in (("a-machine-with-a-long-name.jsonl", 4), ("noisy.jsonl", 2)):
        lines = [{"limit": samples.peak(1e12)}, samples.failed("crashed", "a long reason " * 8, "torch")]
        for i, record in enumerate(made):
            measurement = dict(record["measurement"])
            if i // 3 % every == 0:
                measurement["steal_s"] = [0.0] * 2 + [0.01] * 8
            lines.append({**record, "measurement": measurement})
        header = samples.header()
        header["machine"]["cpu"] = "A Processor(R) of a Maker(TM) with 8481C Cores @ 2.70GHz"
        files.append(read_results(samples.write(folder / name, lines, header)))
    write_report(files[:1], [], folder / "one.html", None)
    write_report(files, ["NVIDIA T4"], folder / "two.html", None)
    return folder


@pytest.mark.parametrize(("width", "media"), [(1400, "screen"), (390, "screen"), (703, "print")])
@pytest.mark.parametrize("name", ["one", "two"])
def test_no_text_of_a_page_covers_another_or_is_too_wide(visit, noisy_pages, name, width, media):
    page = visit(noisy_pages / f"{name}.html", width=width)
    page.emulate_media(media=media)
    if media == "print":
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    page.evaluate("document.querySelectorAll('.legend').forEach(l => { l.open = true; })")
    sync_api.expect(page.locator("#charts .plot:not([data-followed])")).to_have_count(0)
    found = page.evaluate(FAULTS)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")

    assert found["texts"] > 300
    assert [] == found["faults"]
