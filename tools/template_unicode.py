#!/usr/bin/env python3
"""Writes src/text/template/unicode_tables.h: character classes and case mappings as Python's str methods define them.

usage: tools/template_unicode.py > src/text/template/unicode_tables.h
"""
import sys
import unicodedata

N = 0x110000
CHARS = [chr(c) for c in range(N) if not 0xD800 <= c < 0xE000]


def cell(v):
    if isinstance(v, list):
        return "{" + ", ".join(cell(x) for x in v) + "}"
    return f"0x{v:X}" if v >= 0 else str(v)


def emit(name, kind, rows):
    print(f"static const {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        item = " " + cell(list(row)) + ","
        if len(line) + len(item) > 98:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};\n")


def ranges(pred):
    out = []
    for ch in CHARS:
        if pred(ch):
            c = ord(ch)
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def mapping(fn, base=lambda ch: ch):
    """Runs of (first, last, step, delta) for one-to-one mappings, and a list of one-to-many ones."""
    runs, many = [], []
    for ch in CHARS:
        to = fn(ch)
        if to == base(ch):
            continue
        c = ord(ch)
        if len(to) > 1:
            many.append([c, [ord(x) for x in to] + [0] * (3 - len(to))])
            continue
        delta = ord(to) - c
        last = runs[-1] if runs else None
        if last and last[3] == delta and (c - last[1] == last[2] or (last[0] == last[1] and c - last[1] <= 2)):
            last[2] = c - last[1]
            last[1] = c
        else:
            runs.append([c, c, 1, delta])
    return runs, many


print("/* Made by tools/template_unicode.py from Unicode " + unicodedata.unidata_version + "; do not edit. */")
print("/* clang-format off */")
emit("alnum_ranges", "struct uni_range", ranges(lambda ch: ch.isalnum()))
emit("alpha_ranges", "struct uni_range", ranges(lambda ch: ch.isalpha()))
emit("digit_ranges", "struct uni_range", ranges(lambda ch: ch.isdigit()))
emit("printable_ranges", "struct uni_range", ranges(lambda ch: ch.isprintable()))
# A lone capital sigma lowers by context, which the caller handles; its plain mapping is what is stored.
for name, fn, base in (("upper", str.upper, lambda ch: ch), ("lower", str.lower, lambda ch: ch),
                       ("title", str.title, str.upper)):
    runs, many = mapping(fn, base)
    emit(name + "_runs", "struct uni_run", runs)
    emit(name + "_many", "struct uni_many", many)
print("/* clang-format on */")
sys.stdout.flush()
