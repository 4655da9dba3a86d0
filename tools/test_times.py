#!/usr/bin/env python3
"""Prints how long the suites of a ctest run took, next to their budgets in tests/time_budgets.txt.

A suite over its budget is a warning, because machines differ; a suite without a budget is one, too.

  ctest --test-dir BUILD --output-junit RESULTS.xml ...
  tools/test_times.py RESULTS.xml
"""
import pathlib
import sys
import xml.etree.ElementTree

BUDGETS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "time_budgets.txt"


def budgets():
    rows = [row.split("#")[0].split() for row in BUDGETS.read_text().splitlines()]
    return {row[0]: float(row[1]) for row in rows if row}


def times(results):
    cases = xml.etree.ElementTree.parse(results).getroot().iter("testcase")
    return {case.get("name"): float(case.get("time")) for case in cases if case.get("status") in ("run", "fail")}


def main():
    allowed, taken = budgets(), times(sys.argv[1])
    row = "{:<28} {:>8} {:>8}  {}".format
    print(row("suite", "seconds", "budget", "").rstrip())
    warnings = []
    for name, seconds in taken.items():
        budget = allowed.get(name)
        note = "no budget" if budget is None else "over its budget" if seconds > budget else ""
        print(row(name, f"{seconds:.1f}", "" if budget is None else f"{budget:.0f}", note).rstrip())
        if note:
            warnings.append(f"{name}: {note}")
    print(row("all", f"{sum(taken.values()):.1f}", f"{sum(allowed.get(name, 0) for name in taken):.0f}", "").rstrip())
    if warnings:
        print(f"warning: {len(warnings)} of {len(taken)} suites ({BUDGETS.relative_to(BUDGETS.parents[1])}): "
              + ", ".join(warnings))


if __name__ == "__main__":
    main()
