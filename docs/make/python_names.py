"""The Python package's names as Markdown, read without being imported.

    python3 docs/make/python_names.py lang/python/flin

What flin.__all__ names, with public methods; then what flin.nn and
flin.distributed have."""
import ast
import inspect
import os
import sys
import textwrap

FOLDER = sys.argv[1]


def parse(module):
    with open(os.path.join(FOLDER, module + ".py"), encoding="utf-8") as f:
        return ast.parse(f.read())


def definitions(tree):
    """Functions, classes and what is assigned, by name; imported ones as
    (module, name)."""
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.level == 1:
            for a in node.names:
                found[a.asname or a.name] = node.module or a.name, a.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in getattr(node, "targets", [getattr(node, "target",
                                                            None)]):
                if isinstance(target, ast.Name):
                    found[target.id] = node.value
    return found


def docstring(module, node):
    """A class's own; or, where it makes one, that text of the module which
    it is made of."""
    names = definitions(parse(module))
    for inner in node.body:
        if isinstance(inner, ast.Assign) and inner.targets[0].id == "__doc__":
            for a in inner.value.args:
                text = names.get(a.id) if isinstance(a, ast.Name) else None
                if isinstance(text, ast.Constant):
                    return inspect.cleandoc(text.value)
    return ast.get_docstring(node)


def resolve(module, name):
    """The module and the definition that the name stands for."""
    found = definitions(parse(module)).get(name)
    if isinstance(found, tuple):
        return resolve(*found) if found[0] != found[1] else (module, None)
    if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name):
        return resolve(found.value.id, found.attr)
    return module, found


def signature(node, bound=False):
    a = node.args
    parts, before = [], len(a.args) - len(a.defaults)

    def one(arg, default):
        return arg.arg + ("" if default is None
                          else "=" + ast.unparse(default))

    for i, arg in enumerate(a.args):
        default = a.defaults[i - before] if i >= before else None
        if not (bound and i == 0):
            parts.append(one(arg, default))
    if a.vararg:
        parts.append("*" + a.vararg.arg)
    elif a.kwonlyargs:
        parts.append("*")
    parts += [one(x, d) for x, d in zip(a.kwonlyargs, a.kw_defaults)]
    if a.kwarg:
        parts.append("**" + a.kwarg.arg)
    return "(" + ", ".join(parts) + ")"


def escaped(line):
    for sign in "\\*_<[|":
        line = line.replace(sign, "\\" + sign)
    return line


def fenced(code):
    text = textwrap.dedent("\n".join(code)).rstrip("\n")
    return ["```python", *text.split("\n"), "```"]


def markdown(doc):
    """A docstring: lines that stand in are Python."""
    out, code = [], []
    for line in inspect.cleandoc(doc or "").splitlines():
        if line.startswith("    ") or (code and not line):
            code.append(line)
            continue
        if code:
            out += [*fenced(code), ""]
            code = []
        out.append(escaped(line))
    return "\n".join(out + (fenced(code) if code else []))


def say(name, call, doc):
    if not doc:
        sys.exit(f"{name} has no docstring")
    brief = inspect.cleandoc(doc or "").split("\n\n")[0].replace("\n", " ")
    brief = brief.split(". ")[0].split(": ")[0].rstrip(".:")
    print(f"\n### `{name}`\n\n```text\n{call}\n```\n\n<!-- {brief} -->\n")
    print(markdown(doc))


def is_public(node):
    return isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and (
        node.name == "__call__" or not node.name.startswith("_"))


def a_class(name, module, node):
    start = [n for n in node.body if isinstance(n, ast.FunctionDef)
             and n.name == "__init__"]
    doc = docstring(module, node)
    made = name.split(".")[-1] not in ("Variant", "Error") and start
    say(name, name + signature(start[0], True) if made else "class " + name,
        doc)
    short = name.split(".")[-1].lower()
    for n in filter(is_public, node.body):
        fixed = any(isinstance(d, ast.Name) and d.id == "property"
                    for d in n.decorator_list)
        called = "" if n.name == "__call__" else "." + n.name
        call = short + called + ("" if fixed else signature(n, True))
        say(short + called if called else short + "()", call,
            ast.get_docstring(n))


def main():
    init = parse("__init__")
    names = ast.literal_eval(definitions(init)["__all__"])
    print("## `flin`\n")
    print(markdown(ast.get_docstring(init)))
    classes = []
    for name in names:
        module, node = resolve("__init__", name)
        made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if isinstance(node, ast.ClassDef):
            classes.append((name, module, node))
        elif made and isinstance(resolve(module, node.func.id)[1],
                                 ast.ClassDef):
            say("flin." + name, "flin." + name,
                docstring(*resolve(module, node.func.id)))
        elif isinstance(node, ast.FunctionDef):
            say("flin." + name, "flin." + name + signature(node),
                ast.get_docstring(node))
        else:
            say("flin." + name, "flin." + name, f"The package's {name}.")
    for name, module, node in classes:
        print(f"\n## {name}s")
        a_class("flin." + name, module, node)
    for name in "nn", "distributed":
        tree, whole = parse(name), "flin." + name
        print(f"\n## `{whole}`\n")
        print(markdown(ast.get_docstring(tree)))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                a_class(f"{whole}.{node.name}", name, node)
            elif is_public(node):
                say(f"{whole}.{node.name}",
                    f"{whole}.{node.name}{signature(node)}",
                    ast.get_docstring(node))


main()
