#!/usr/bin/env python3
"""Tests that people read of exactly the reduce methods that the library's table has, in the public header and in the
documents. The tool's help and the clients' sentences are made from that table.

    tests/cli/pserver_methods_test.py TOOL"""
import re

from pserver_common import SOURCE, check, tool

import gradwire.pserver as ps


def text_of(path):
    return (SOURCE / path).read_text()


def same(names, found, where):
    check(sorted(found) == sorted(names), f"{where} has the methods {sorted(found)}, and the library {sorted(names)}")


names = ps.methods()
check(len(names) > 7 and len(set(names)) == len(names), f"the library has these methods: {names}")
check(names[-1] + " (" in tool("server", "--help").stdout, "gradwire server --help")

page = text_of("docs/pserver.md")
rows = re.findall(r"^\| (`.*?) \|", page[page.index("| method |") :].split("\n\n")[0], re.M)
same(names, set(re.findall(r"`(\w+)`", " ".join(rows))), "docs/pserver.md")

sentence = re.search(r"Methods: (.*?)\.\s", text_of("docs/pserver-protocol.md"), re.S)[1]
numbered = [entry.split() for entry in sentence.replace("\n", " ").split(", ")]
expected = [[str(number), name] for number, name in enumerate(names, 1)]
check(numbered == expected, f"docs/pserver-protocol.md: {numbered}, and the library has {expected}")

header = text_of("include/gradwire/pserver.h")
enumerators = re.findall(r"GW_PS_(\w+) = \d+,", re.search(r"enum gw_ps_method \{(.*?)\}", header, re.S)[1])
check([word.lower() for word in enumerators] == names, f"gradwire/pserver.h: {enumerators}")
comment = header[header.index("How a pull makes one value") : header.index("typedef enum gw_ps_method")]
described = re.findall(r"^ \*   (\w+(?:, \w+)*)  ", comment, re.M)
same(names, ", ".join(described).split(", "), "the comment in gradwire/pserver.h")
