"""Links, anchors and pictures of the documentation resolve, and its index and site list every page. Needs no program and
no network."""
import re
import unittest

import markdown
from markdown import ROOT

TEXTS = {path: path.read_text(encoding="utf-8") for path in markdown.pages()}
DOCS = sorted((ROOT / "docs").glob("*.md"))


class Links(unittest.TestCase):
    def test_they_resolve(self):
        checked = 0
        for path, text in TEXTS.items():
            for line, target in markdown.links(text):
                if re.match(r"https?://|mailto:", target):
                    continue
                checked += 1
                name, _, anchor = target.partition("#")
                with self.subTest(f"{path.relative_to(ROOT)}:{line}: {target}"):
                    to = (path.parent / name).resolve() if name else path
                    self.assertTrue(to.exists(), "no such file")
                    if path.parent == ROOT / "docs":
                        self.assertIn(ROOT / "docs", to.parents, "the site has only the files in docs/")
                    if anchor:
                        self.assertIn(anchor, map(markdown.slug, markdown.headings(TEXTS[to])), "no such heading")
                        self.assertIn(anchor, map(markdown.site_slug, markdown.headings(TEXTS[to])),
                                      "the site has another anchor for this heading; reword it")
        self.assertGreater(checked, 50)

    def test_files_that_are_named_exist(self):
        """Paths in code marks, such as `configs/quickstart.json`, below the folders of the repository."""
        folders = "|".join(["docs", "configs", "tools", "tests", "engine", "core", "pipeline", "partitioner", "models/[a-z]+",
                            "optim", "tensor_parallel", "examples", "include", "packaging", "cmake"])
        for path, text in TEXTS.items():
            for name in set(re.findall(rf"`((?:{folders})/[\w./-]+\.(?:md|json|py|sh|cpp|h|cu|txt|svg))`", text)):
                if name.startswith("models/") and name.endswith(".json"):
                    continue  # a user's model
                with self.subTest(f"{path.relative_to(ROOT)}: {name}"):
                    self.assertTrue((ROOT / name).exists() or (ROOT / "tests" / name).exists(), "no such file")

    def test_messages_that_are_quoted_exist(self):
        """Checks the tables whose first column is `Message`; `...` stands for a value that the code inserts."""
        code = "".join(re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8"))
                       for folder in ("core", "engine") for path in (ROOT / folder).rglob("*.cpp"))
        value = r'", *[^";]*,\s*"'
        checked = 0
        for path, text in TEXTS.items():
            for table in re.findall(r"(?m)^\| Message \|.*\n\|.*\n((?:\|.*\n?)+)", text):
                for row in table.splitlines():
                    with self.subTest(f"{path.relative_to(ROOT)}: {row}"):
                        message = re.match(r"\| `([^`]+)` \|", row)
                        self.assertTrue(message, "the first cell must be part of a message, as code")
                        parts = message[1].removesuffix(" ...").split("...")
                        self.assertTrue(re.search(value.join(map(re.escape, parts)), code), "no such message")
                        checked += 1
        self.assertGreater(checked, 0)

    def test_every_page_is_in_index_and_site(self):
        index = (ROOT / "docs/index.md").read_text()
        site = (ROOT / "mkdocs.yml").read_text()
        for page in DOCS:
            with self.subTest(page.name):
                if page.name != "index.md":
                    self.assertIn(f"]({page.name})", index)
                self.assertRegex(site, rf"(?m):\s{re.escape(page.name)}$")

    def test_pages_have_one_title(self):
        for page in DOCS:
            with self.subTest(page.name):
                rows = [row for row in markdown.without_code(TEXTS[page]).splitlines() if re.match(r"# ", row)]
                self.assertEqual(len(rows), 1)
                self.assertTrue(TEXTS[page].startswith("# "))


if __name__ == "__main__":
    unittest.main()
