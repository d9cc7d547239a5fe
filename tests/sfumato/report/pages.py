"""What the tests of the page share: a parser, and the step that writes it."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect"}


class Page(HTMLParser):
    """Open elements, ids and what could reach out to a network."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.svgs: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if "id" in values:
            self.ids.append(str(values["id"]))
        self.links += [str(values[k]) for k in ("href", "src", "xlink:href", "action") if k in values]
        if tag == "svg":
            self.svgs.append(values)
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.stack and self.stack[-1] == tag:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.stack.pop() == tag


def run_step(root: Path, step: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"tasks.{step}"]
    path = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "random"}
    return subprocess.run(command, cwd=root, env=path, capture_output=True, text=True, check=False)


def written(root: Path) -> str:
    """The page of a tree, written by the step in this process."""
    from sfumato.params import load
    from tasks.command import Call
    from tasks.report import report

    report(Call(load(root / "params.yaml"), root, "", {}))
    return (root / "report/index.html").read_text(encoding="utf-8")


def assert_well_formed(page: str) -> None:
    """Balanced, unique ids, every reference meets one, nothing reaches out, pictures follow the page's colours."""
    parsed = Page(page)
    assert parsed.stack == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert all(link.startswith("#") for link in parsed.links)
    assert {link[1:] for link in parsed.links} | set(re.findall(r"url\(#([^)]+)\)", page)) <= set(parsed.ids)
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) <= {"#000000", "#ffffff"}
