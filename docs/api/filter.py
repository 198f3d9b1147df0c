"""Turns a public header into what Doxygen reads: its INPUT_FILTER. The headers have plain comments, by these rules:

  - a comment above a declaration is about it, and about those that follow without an empty line;
  - a comment behind a field or a constant is about that;
  - the first comment of a file is about all of it;
  - a comment that begins with dashes begins a section.

    docs/api/filter.py HEADER"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?:GW_API .*?|gw_status )(gw_\w+)\(|^(gw_\w+)\(")


def known_names(folder):
    """Functions, constants and macros of all headers: what a text may link to."""
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.h"))
    functions = re.findall(r"^(?:GW_API [^;(]*?)?\b(gw_\w+)\(", text, re.MULTILINE)
    constants = re.findall(r"^\s*(?:X\(|#define )?(GW_[A-Z0-9_]+)\b(?!\()", text, re.MULTILINE)
    return {*functions, *constants} - {"GW_API"}


def prose(text, names):
    """Text whose marks mean nothing to Doxygen, and whose names are links."""
    text = re.sub(r"[\\@<>&#%]", lambda mark: "\\" + mark.group(), text)
    # Of a plain one Doxygen makes an apostrophe, which at the beginning of a line is a command to roff.
    text = re.sub(r'"([^"]*)"', r"&ldquo;\1&rdquo;", text)
    return re.sub(r"\b(?:gw|GW)_\w+\b(?!\*|\(\w)", lambda m: ("#" if m.group() in names else "") + m.group(), text)


def block(lines, names):
    """A comment's lines for Doxygen. What is indented stays as it is."""
    out, inside = [], False
    for line in lines:
        indented = line.startswith("  ")
        if line and indented != inside:
            out.append("@code{.unparsed}" if indented else "@endcode")
            inside = indented
        out.append(line if inside else prose(line, names))
    return [*out, "@endcode"] if inside else out


def main_page(title, rest, names):
    """The page that one sees first. It has the text of the header of all, and its list of headers as links."""
    out = [f"/** @mainpage {title}", "The headers in C:", ""]
    for name, text in re.findall(r"^  (\w+)\.h +(.*)$", rest, re.MULTILINE):
        out.append(f'- @ref gradwire_{name} "{name}.h": {prose(text, names)}')
    return [*out, "", *block(re.sub(r"^  .*\n", "", rest, flags=re.MULTILINE).strip().split("\n"), names), "*/"]


def bare(comment):
    """The lines of a comment without its marks. Indentation counts from the first line's text."""
    lines = re.sub(r"\s*\*/\s*$", "", comment).split("\n")
    first = re.sub(r"^\s*/\*\s?", "", lines[0])
    return [first, *(re.sub(r"^\s*\* ?", "", line).rstrip() for line in lines[1:])]


def statuses(text):
    """gw_status is made from a list of macros. Doxygen gets the enumeration that it stands for."""
    begin, end = text.index("/* Code, number and text"), text.index("} gw_status;")
    rows = re.findall(r'X\((GW_\w+), (-?\d+), "([^"]*)"\)', text[begin:end])
    values = "".join(f"    {name} = {number}, /* {sentence} */\n" for name, number, sentence in rows)
    comment = "/* What became of a call. Numbers are fixed and never reused. */\n"
    return f"{text[:begin]}{comment}typedef enum gw_status {{\n{values}{text[end:]}"


def convert(path):
    names = known_names(path.parent)
    text = path.read_text(encoding="utf-8")
    if "define GW_STATUS_MAP" in text:
        text = statuses(text)
    pieces = re.split(r"(/\*.*?\*/)", text, flags=re.DOTALL)
    group = "gradwire" if path.stem == "gradwire" else f"gradwire_{path.stem}"
    out, section, about, depth = [], False, None, 0
    for i, piece in enumerate(pieces):
        if i == 1:  # of the file
            title, rest = re.match(r"(.*?)\.\s(.*)", "\n".join(bare(piece)) + "\n", re.DOTALL).groups()
            title = title.replace("\n", " ")
            include = ["@code{.c}", f"#include <gradwire/{path.name}>", "@endcode"]
            lines = [f"/** @defgroup {group} {title}", *include, *block(rest.rstrip().split("\n"), names), "*/"]
            if group == "gradwire":
                lines += main_page(title, rest, names)
            lines += ["/** @file", f"@ref {group} */", f"/** @addtogroup {group}", "@{ */"]
            out.append("\n".join(lines) + "\n")
        elif i % 2 == 0:
            kept = []
            for line in piece.split("\n"):
                found = FUNCTION.match(line)
                if not line.strip() and depth == 0 and kept:
                    about = None
                if found and depth == 0:
                    name = found.group(1) or found.group(2)
                    if about and about != name and about != "next":
                        kept.append(f"/** Described with #{about}. */")
                    about = name if about == "next" else about
                else:
                    named = re.match(r"^typedef (?:enum|struct) (gw_\w+)", line)
                    if named and about == "next":
                        about = named.group(1)
                    elif named and depth == 0:  # a page of its own needs a sentence
                        kept.append(f"/** Its {'fields' if line.endswith('{') else 'functions'} say what it is. */")
                depth += line.count("{") - line.count("}")
                if re.search(r'^extern "C" \{', line):
                    depth -= 1
                if depth < 0:  # its other end
                    depth = 0
                kept.append(line)
            out.append("\n".join(kept))
        elif re.match(r"/\* -{3,}", piece):
            title, *rest = bare(piece)
            title = re.sub(r"^-+ | -*$", "", title)
            out.append("/**@}*/\n" if section else "")
            out.append(f"/** @name {title[0].upper()}{title[1:]}\n" + "\n".join(block(rest, names)) + "\n*/\n/**@{*/")
            section = True
        elif out and out[-1].rsplit("\n", 1)[-1].strip():  # behind something on its line
            words = " ".join(line.strip() for line in bare(piece))
            out.append(f"/**< {prose(words, names)} */")
        else:
            out.append("/** " + "\n".join(block(bare(piece), names)) + " */")
            if depth == 0:
                about = "next"
    out.append(("/**@}*/\n" if section else "") + "/** @} */\n")
    return "".join(out)


if __name__ == "__main__":
    sys.stdout.write(convert(pathlib.Path(sys.argv[1])))
