#!/usr/bin/env python3
"""What must be true of every kernel's PTX: usage: ptx_lint.py FILE [--expect INSTRUCTION]...

A kernel has instructions (one that calls what only the host can call is compiled to none), keeps nothing in local memory, and reads nothing
through the read-only cache, which does not see what a peer writes. The instructions that are expected occur in the file. One line for
each thing that is wrong; the exit status says whether there was any."""
import re
import sys


def kernels(text):
    """Name and body of each .entry."""
    for match in re.finditer(r"\.entry\s+([\w$]+)", text):
        begin = text.index("{", text.index(")", match.end()) if "(" in text[match.end() : match.end() + 2] else match.end())
        depth, end = 0, begin
        while True:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
            if depth == 0:
                break
        yield match.group(1), text[begin:end]


def instructions(body):
    """Opcodes, without labels, directives and what only ends a function."""
    lines = (re.sub(r"^\s*(@!?%\w+\s+)?(\{\s*)?", "", line) for line in body.splitlines())
    opcodes = [line.split()[0].rstrip(";") for line in lines if re.match(r"[a-z]\w*(\.|\s|;)", line)]
    return [opcode for opcode in opcodes if opcode not in ("ret", "exit")]


def complaints(text, expected):
    found = list(kernels(text))
    if not found:
        yield "there is no kernel"
    for name, body in found:
        opcodes = instructions(body)
        if not opcodes:
            yield f"{name}: a kernel without instructions"
        if re.search(r"\.local\b", body):
            yield f"{name}: uses local memory"
        if any(re.match(r"ld\.global[.\w:]*\.nc\b|ldu\b", opcode) for opcode in opcodes):
            yield f"{name}: reads through the read-only cache"
    for instruction in expected:
        if not re.search(r"\b" + re.escape(instruction) + r"\b", text):
            yield f"no {instruction}"


def main():
    file, *rest = sys.argv[1:]
    with open(file, encoding="ascii") as opened:
        wrong = list(complaints(opened.read(), [word for word in rest if word != "--expect"]))
    for line in wrong:
        print(f"{file}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
