"""`pip install ./lang/python`: what it leaves, used as a stranger would; what
it says where something is missing. scikit-build-core comes from PyPI, once,
into a virtual environment beside what has been built."""
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile

from harness import check, end, flin

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.realpath(os.path.join(HERE, "../../lang/python"))
BUILT = os.path.dirname(os.environ.get("FLIN_LIB") or os.path.join(
    HERE, "../../build/libflin.so"))
TOOLS = os.path.join(BUILT, "python-%d.%d" % sys.version_info[:2])


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, **more)


def skip(why):
    print("skip", why)
    sys.exit()


if not importlib.util.find_spec("venv") or not shutil.which("cmake"):
    skip("no venv for " + sys.executable if shutil.which("cmake")
         else "no cmake")
python = os.path.join(TOOLS, "bin", "python")
if run(python, "-c", "import scikit_build_core").returncode \
        if os.path.exists(python) else True:
    if run(sys.executable, "-m", "venv", TOOLS).returncode:
        skip("no virtual environments with " + sys.executable)
    try:
        got = run(python, "-m", "pip", "install", "--quiet", "--retries", "0",
                  "--timeout", "10", "pip>=22.1", "scikit-build-core",
                  timeout=60)
    except subprocess.TimeoutExpired:
        skip("PyPI is too slow for scikit-build-core")
    if got.returncode:
        skip("no scikit-build-core to be had")


def install(folder, sources, *options):
    return run(python, "-m", "pip", "install", "--quiet", "--no-index",
               "--no-cache-dir", "--no-deps", "--no-build-isolation",
               "--target", folder, sources, *options)


program = ("import flin; print(flin.__file__, flin.lib._name, "
           "flin.load('gla').name, flin.__version__)")
with tempfile.TemporaryDirectory() as folder:
    made = install(folder, SOURCES, "--config-settings",
                   "cmake.define.FLIN_PREBUILT=" + os.path.realpath(BUILT))
    check("pip", made.returncode == 0, made.stdout)
    environment = dict(os.environ, PYTHONPATH=folder)
    environment.pop("FLIN_LIB", None)
    ran = run(sys.executable, "-c", program, cwd=folder, env=environment)
    found = ran.stdout.split()
    check("it runs", found[2:] == ["gla", flin.__version__], ran.stdout)
    check("as it was installed, with its library", all(
        path.startswith(folder) for path in found[:2]), ran.stdout)
    for command in ([os.path.join(folder, "bin", "flin")],
                    [sys.executable, "-m", "flin"]):
        ran = run(*command, "-e", "print(6 * 7)", env=environment)
        check("the program", ran.stdout == "42\n", ran.stdout)
    typed = os.path.join(folder, "flin", "py.typed")
    check("its types", os.path.exists(typed))
    info = os.path.join(folder, f"flin-{flin.__version__}.dist-info")
    with open(os.path.join(info, "METADATA")) as f:
        metadata = f.read()
    check("README is its page", "\n# flin\n" in metadata
          and "License-Expression: MIT" in metadata, metadata[:500])
    with open(os.path.join(info, "licenses", "LICENSE")) as f:
        check("its license", f.read().startswith("MIT License"))

# What is missing is said, not guessed.
with tempfile.TemporaryDirectory() as folder:
    alone = os.path.join(folder, "python")
    shutil.copytree(SOURCES, alone)
    with open(os.path.join(folder, "flin.h"), "w") as to, \
            open(os.path.join(SOURCES, "..", "flin.h")) as f:
        to.write(f.read())
    made = install(os.path.join(folder, "to"), alone)
    check("alone", made.returncode != 0 and "its C sources are the repository"
          in " ".join(made.stdout.split()), made.stdout)
    made = install(os.path.join(folder, "to"), SOURCES, "--config-settings",
                   "cmake.define.FLIN_LUA_SRC=/nowhere")
    check("no Lua", made.returncode != 0 and "no lua.h in /nowhere"
          in " ".join(made.stdout.split()), made.stdout)
end()
