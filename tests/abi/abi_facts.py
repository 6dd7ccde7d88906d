# SPDX-License-Identifier: BSD-2-Clause
"""What a set of C headers declares, as facts that can be compared.

facts() compiles a probe that includes the headers and returns one dictionary: name -> value, where a name
tells the kind ("struct ibv_sge.length", "enumerator IBV_QPT_RC", "macro ...", "function ...") and a value is
text. Sizes, offsets and enumerators are read from the compiler's own debug information, functions from its
list of prototypes, macro values from a program that evaluates them: nothing here parses C. """
import os
import re
import subprocess

HEADERS = [
    "infiniband/verbs.h",
    "infiniband/verbs_api.h",
    "infiniband/ib_user_ioctl_verbs.h",
    "infiniband/ib.h",
    "infiniband/sa.h",
    "infiniband/sa-kern-abi.h",
    "infiniband/opcode.h",
    "infiniband/arch.h",
    "infiniband/tm_types.h",
    "rdma/rdma_cma.h",
    "rdma/rdma_verbs.h",
    "rdma/rsocket.h",
]


class Headers:
    """The public headers below one include directory, and the means to compile against them."""

    def __init__(self, gcc, directory, work):
        self.directory = os.path.realpath(directory)
        self.work = work
        self.gcc = [gcc, "-std=gnu17", "-w", "-I", self.directory]
        os.makedirs(work, exist_ok=True)

    def is_public(self, path):
        """True for the listed headers and for the parts that infiniband/verbs.h is made of."""
        path = os.path.realpath(path)
        if not path.startswith(self.directory + os.sep):
            return False
        path = path[len(self.directory) + 1 :]
        return path in HEADERS or path.startswith("infiniband/verbs/")

    def compile(self, text, *options, check=True):
        source = os.path.join(self.work, "probe.c")
        with open(source, "w", encoding="utf-8") as f:
            f.write("".join(f"#include <{h}>\n" for h in HEADERS) + text)
        return subprocess.run(
            self.gcc + [source, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            check=check,
        )


def facts(headers):
    result = debug_facts(headers)
    result.update(function_facts(headers))
    result.update(macro_facts(headers))
    return result


# Functions


def function_facts(headers):
    listing = os.path.join(headers.work, "functions.txt")
    headers.compile("", "-aux-info", listing, "-c", "-o", os.devnull)
    result = {}
    with open(listing, encoding="utf-8") as f:
        for line in f:
            m = re.match(r"/\* (\S+):\d+:\w+ \*/ (static|extern) (.*?);", line)
            if m and headers.is_public(m.group(1)):
                name, prototype = parse_prototype(m.group(3))
                result[f"function {name}"] = f"{m.group(2)} {prototype}"
    return result


def parse_prototype(text):
    """Split "int f (struct s *a, int)" and drop the parameters' names, which gcc lists for definitions
    only."""
    m = re.match(r"(.*?)\b(\w+) \((.*)\)$", text)
    kind, name, params = m.groups()
    return name, f"{kind.strip()} ({', '.join(unnamed(p) for p in params.split(','))})"


TYPE_WORDS = {"void", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "_Bool"}


def unnamed(param):
    words = re.findall(r"\w+|\*|\.\.\.", param)
    last_is_name = (
        len(words) > 1
        and re.match(r"\w", words[-1])
        and words[-1] not in TYPE_WORDS
        and words[-2] not in ("struct", "union", "enum", "const")
    )
    return " ".join(words[:-1] if last_is_name else words)


# Macros


def macro_facts(headers):
    macros = defined_macros(headers)
    result = {}
    for name, (params, body) in macros.items():
        result[f"macro {name}"] = "object" if params is None else f"function of {params.count(',') + 1}"
    objects = [n for n, (params, body) in macros.items() if params is None and body]
    values = macro_values(headers, objects)
    texts = macro_texts(headers, [n for n in objects if n not in values])
    for name in objects:
        result[f"macro {name}"] = values.get(name) or texts[name]
    return result


def defined_macros(headers):
    """The macros that public headers define and leave defined: name -> (parameters or None, body)."""
    result = {}
    public = False
    for line in headers.compile("", "-E", "-dD").stdout.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        define = re.match(r"#define (\w+)(\([^)]*\))? ?(.*)", line)
        undef = re.match(r"#undef (\w+)", line)
        if marker:
            public = headers.is_public(marker.group(1))
        elif define and public:
            result[define.group(1)] = (define.group(2), define.group(3))
        elif undef:
            result.pop(undef.group(1), None)
    return result


def macro_values(headers, names):
    """The value, size and signedness of every macro that is an arithmetic or pointer expression."""
    tests = {
        n: f'\tshow("{n}", (long long)({n}), sizeof({n}), (__typeof__({n}))-1 < (__typeof__({n}))1);\n'
        for n in names
    }
    while True:
        names = list(tests)
        head = (
            "#include <stdio.h>\n"
            "static void show(const char *n, long long v, unsigned long s, int neg)\n"
            '{ printf("%s %lld of %lu %s bytes\\n", n, v, s, neg ? "signed" : "unsigned"); }\n'
            "int main(void)\n{\n"
        )
        first = len(HEADERS) + head.count("\n") + 1
        program = os.path.join(headers.work, "macros")
        run = headers.compile(
            head + "".join(tests.values()) + "}\n",
            "-fmax-errors=0",
            "-ftrack-macro-expansion=0",
            "-o",
            program,
            check=False,
        )
        if run.returncode == 0:
            break
        bad = {int(m) - first for m in re.findall(r"probe\.c:(\d+):\d+: (?:fatal )?error", run.stderr)}
        if not bad or not all(0 <= b < len(names) for b in bad):
            raise RuntimeError("cannot evaluate macros:\n" + run.stderr)
        for index in bad:
            del tests[names[index]]
    out = subprocess.run([program], stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


def macro_texts(headers, names):
    """What the other macros (aliases of types and members) expand to."""
    if not names:
        return {}
    out = headers.compile("".join(f'"@{n}" {n}\n' for n in names), "-E", "-P").stdout
    found = re.findall(r'"@(\w+)"([^"]*)', out)
    return {n: "text " + "".join(body.split()) for n, body in found}


# Structures, unions, enumerations


class Die:
    """An entry of the debug information: its tag, attributes and children."""

    def __init__(self, tag):
        self.tag = tag
        self.attrs = {}
        self.children = []


def read_dies(obj):
    """All entries by offset. readelf may print the form of a value in parentheses before it."""
    out = subprocess.run(
        ["readelf", "--wide", "--debug-dump=info", obj],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    ).stdout
    dies = {}
    path = []
    die = None
    for line in out.splitlines():
        entry = re.match(r" <(\d+)><([0-9a-f]+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)", line)
        attr = re.match(r" +<[0-9a-f]+> +DW_AT_(\w+) *: (.*)", line)
        if entry:
            depth = int(entry.group(1))
            die = dies[int(entry.group(2), 16)] = Die(entry.group(3))
            del path[depth:]
            if path:
                path[-1].children.append(die)
            path.append(die)
        elif attr and die:
            die.attrs[attr.group(1)] = re.sub(r"^(\([^)]*\):? )+", "", attr.group(2)).strip()
    return dies


def read_files(obj):
    """The paths behind DW_AT_decl_file."""
    out = subprocess.run(
        ["readelf", "--wide", "--debug-dump=rawline", obj],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    ).stdout
    directories, files = {0: "."}, {}
    for line in out.splitlines():
        row = line.strip().split("\t")
        if len(row) == 2 and row[0].isdigit():
            directories[int(row[0])] = row[1]
        elif len(row) == 5 and row[0].isdigit():
            files[int(row[0])] = os.path.join(directories[int(row[1])], row[4])
    return files


def number(text):
    """An attribute's value, behind which readelf may explain it."""
    return int(text.split()[0], 0)


class Types:
    """Describes types in words that do not depend on the order or the files of declarations."""

    def __init__(self, dies):
        self.dies = dies

    def target(self, die):
        ref = die.attrs.get("type")
        return self.dies[int(re.search(r"<0x([0-9a-f]+)>", ref).group(1), 16)] if ref else None

    def size(self, die):
        while die.tag in ("typedef", "const_type", "volatile_type"):
            die = self.target(die)
        if die.tag == "array_type":
            return self.size(self.target(die)) * self.elements(die)
        return number(die.attrs["byte_size"])

    @staticmethod
    def elements(die):
        count = 1
        for child in die.children:
            if child.tag == "subrange_type":
                count *= number(child.attrs.get("upper_bound", "-1")) + 1
        return count

    def words(self, die):
        if die is None:
            return "void"
        tag, name, to = die.tag, die.attrs.get("name"), self.target(die)
        if tag in ("typedef", "volatile_type"):
            return self.words(to)
        if tag == "const_type":
            return "const " + self.words(to)
        if tag == "pointer_type":
            return "pointer to " + self.words(to)
        if tag == "array_type":
            return f"array of {self.elements(die)} {self.words(to)}"
        if tag == "subroutine_type":
            params = [self.words(self.target(c)) for c in die.children if c.tag == "formal_parameter"]
            return f"function ({', '.join(params)}) giving {self.words(to)}"
        if tag == "base_type":
            return f"{die.attrs['encoding'].split('(')[-1].rstrip(')')} of {number(die.attrs['byte_size'])}"
        kind = tag.replace("_type", "").replace("structure", "struct").replace("enumeration", "enum")
        return f"{kind} {name}" if name else f"{kind} without name"


def debug_facts(headers):
    obj = os.path.join(headers.work, "probe.o")
    headers.compile("", "-g", "-gdwarf-4", "-fno-eliminate-unused-debug-types", "-c", "-o", obj)
    dies, files = read_dies(obj), read_files(obj)
    types = Types(dies)
    result = {}
    for die in dies.values():
        source = die.attrs.get("decl_file")
        if not source or not headers.is_public(files[number(source)]) or "declaration" in die.attrs:
            continue
        if die.tag in ("structure_type", "union_type") and "name" in die.attrs:
            name = types.words(die)
            result[name] = f"{number(die.attrs['byte_size'])} bytes"
            member_facts(types, die, name, 0, result)
        elif die.tag == "enumeration_type":
            if "name" in die.attrs:
                result[types.words(die)] = f"{number(die.attrs['byte_size'])} bytes"
            for child in die.children:
                result[
                    f"enumerator {child.attrs['name']}"
                ] = f"{number(child.attrs['const_value'])} in {types.words(die)}"
    return result


def member_facts(types, die, prefix, base, result):
    """Members with their place in the outermost structure; those of nested unnamed types by their own
    path."""
    for child in die.children:
        if child.tag != "member":
            continue
        offset = base + number(child.attrs.get("data_member_location", "0"))
        to = types.target(child)
        name = f"{prefix}.{child.attrs['name']}" if "name" in child.attrs else prefix
        if "name" in child.attrs:
            result[name] = f"offset {offset}, {types.size(to)} bytes, {types.words(to)}"
        if to.tag in ("structure_type", "union_type") and "name" not in to.attrs:
            member_facts(types, to, name, offset, result)
