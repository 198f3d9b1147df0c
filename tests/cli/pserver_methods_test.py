#!/usr/bin/env python3
"""Tests that people read of exactly the reduce methods that the library's table has. The tool's help, the Python
client, the public header and the documents name them.

    tests/cli/pserver_methods_test.py TOOL"""
import re

from pserver_common import SOURCE, Server, check, tool

import gradwire.pserver as ps


def text_of(path):
    return (SOURCE / path).read_text()


def same(names, found, where):
    check(sorted(found) == sorted(names), f"{where} has the methods {sorted(found)}, and the library {sorted(names)}")


def main():
    names = ps.methods()
    check(len(names) > 7 and len(set(names)) == len(names), f"the library has these methods: {names}")

    told = " ".join(tool("server", "--help").stdout.split())
    listed = told[told.index("reduce method:") : told.index(". C programs")]
    same(names, re.findall(r"(?:method:|\),) (\w+) \(", listed), "gradwire server --help")

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

    with ps.Client(Server("--workers", "1").address, rank=0) as client:
        client.init_parameter(key="x", shape=[1], type="float32")
        try:
            client.pull_parameter(key="x", reduce_method="no_such")
        except ValueError as error:
            check(str(error).endswith("right are " + ", ".join(names)), f"the client's words: {error}")
        else:
            check(False, "a method that is none was taken")
        client.push_parameter(key="x", value=[1.5])
        try:
            client.pull_parameter(key="x", reduce_method="decode_sum")
        except ps.Error as error:
            has = re.search(r"with ([\w, ]+) they can", str(error))[1].split(", ")
            check(set(has) < set(names), f"the server's words: {error}")
            for name in has:
                check(client.pull_parameter(key="x", reduce_method=name)[0] == 1.5, f"{name} of one push")


main()
