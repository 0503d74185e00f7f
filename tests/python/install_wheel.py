"""`pip install ./lang/python`, without a network, and the library along."""
import importlib.util
import os
import subprocess
import sys
import tempfile

from harness import check, end

if not importlib.util.find_spec("pip"):
    print("skip no pip for", sys.executable)
    sys.exit()
sources = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../lang/python")
program = ("import flin; print(flin.__file__, flin.lib._name, "
           "flin.load('gla').name)")
with tempfile.TemporaryDirectory() as folder:
    made = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index",
         "--no-cache-dir", "--no-deps", "--target", folder, sources],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check("pip", made.returncode == 0, made.stdout)
    environment = dict(os.environ, PYTHONPATH=folder)
    environment.pop("FLIN_LIB", None)
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder,
                         env=environment, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    found = ran.stdout.split()
    check("it runs", found[2:] == ["gla"], ran.stdout)
    check("as it was installed, with its library", all(
        path.startswith(folder) for path in found[:2]), ran.stdout)
end()
