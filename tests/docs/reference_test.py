"""docs/cli.md, the man page and the completion have the commands and options that the program's --help lists.
SHARDLINE_WRITE_DOCS=1 writes docs/cli.md instead."""
import functools
import os
import pathlib
import re
import subprocess
import unittest

import markdown
from markdown import ROOT

PROGRAM = pathlib.Path(os.environ["SHARDLINE"]).resolve()
PAGE = ROOT / "docs/cli.md"
START = "<!-- Generated from --help: run tests/docs/reference_test.py with SHARDLINE_WRITE_DOCS=1 to regenerate it. -->\n"


@functools.cache
def help_of(*command):
    return subprocess.run([PROGRAM, *command, "--help"], check=True, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL).stdout.replace(str(PROGRAM), "shardline")


def commands_of(text):
    rows = text[text.index("Subcommands:"):].splitlines()[1:] if "Subcommands:" in text else []
    return [m[1] for row in rows for m in [re.match(r"  (\w+)  ", row + "  ")] if m]


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


COMMANDS = commands_of(help_of())
HELP = {command: help_of(command) for command in COMMANDS}


def generated():
    text = START + f"\n```text\n{help_of().strip()}\n```\n"
    for command in COMMANDS:
        text += f"\n## shardline {command}\n\n```text\n{HELP[command].strip()}\n```\n"
        for sub in commands_of(HELP[command]):
            text += f"\n```text\n{help_of(command, sub).strip()}\n```\n"
    return text


class Reference(unittest.TestCase):
    def test_page(self):
        page = PAGE.read_text()
        head = page[:page.index(START)]
        if os.environ.get("SHARDLINE_WRITE_DOCS"):
            PAGE.write_text(head + generated())
        self.assertEqual(PAGE.read_text(), head + generated(), "run this test with SHARDLINE_WRITE_DOCS=1")

    def test_man_page_and_completion(self):
        man = (ROOT / "packaging/shardline.1").read_text()
        completion = (ROOT / "packaging/shardline.bash").read_text()
        self.assertEqual(re.search(r'commands="([^"]*)"', completion)[1].split(), COMMANDS)
        self.assertEqual(re.findall(r"(?m)^\.TP\n\.B (\w+)$", man[man.index(".SH COMMANDS"):man.index(".SH EXIT")]),
                         COMMANDS)
        offered = {}
        for names, options in re.findall(r'(?m)^    ([a-z| ]+)\) options="([^"]*)"', completion):
            for name in names.split(" | "):
                offered[name] = set(options.split())
        for command in COMMANDS:
            with self.subTest(command):
                options = set().union(options_of(HELP[command]), *(options_of(help_of(command, sub))
                                                                   for sub in commands_of(HELP[command])))
                self.assertEqual(offered.get(command, set()), options - {"--help"})

    def completed(self, *words):
        script = (f'source "{ROOT}/packaging/shardline.bash"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shardline; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        return subprocess.run(["bash", "-c", script, "bash", PROGRAM, *words], check=True, capture_output=True,
                              text=True).stdout.split()

    def test_completion_of_keys_and_values(self):
        for words, offers in [
            (["pl"], ["plan"]),
            (["help", "smp_options.microb"], ["smp_options.microbatches"]),
            (["help", "trai"], ["train", "training."]),
            (["train", "run.json", "--set", "out"], ["output_dir="]),
            (["train", "run.json", "--set", "run"], ["runtime."]),
            (["train", "run.json", "--set", "training.max_st"], ["training.max_steps="]),
            (["plan", "run.json", "--cluster", "loc"], ["local"]),
            (["study", "study.json", "--cluster", "loc"], []),
            (["plan", "run.json", "--search", ""], ["time", "cost", "memory"]),
        ]:
            with self.subTest(words):
                self.assertEqual(self.completed(*words), offers)

    def test_commands_and_options_in_the_documentation_exist(self):
        for path in markdown.pages():
            if path == PAGE:
                continue
            text = path.read_text(encoding="utf-8")
            code = [block.text for block in markdown.blocks(text)] + re.findall(r"`([^`\n]+)`", text)
            for row in "\n".join(code).replace("\\\n", " ").splitlines():
                for match in re.finditer(r"(?:^|[ (\"])shardline ([a-z]+)((?: [^#|&;]*)?)", row):
                    with self.subTest(f"{path.name}: {match[0]}"):
                        self.assertIn(match[1], COMMANDS)
                        known = options_of(HELP[match[1]] + help_of())
                        for sub in commands_of(HELP[match[1]]):
                            known |= options_of(help_of(match[1], sub))
                        self.assertLessEqual(options_of(match[2]), known)


if __name__ == "__main__":
    unittest.main()
