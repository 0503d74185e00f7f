"""Makes flin's wheel, for pip (PEP 517, PEP 660): with Python alone, so that
nothing is fetched. libflin.so goes along where the repository has built it
(`make`), or as FLIN_LIB names it; without it the package looks for the library
when it is first used."""
import base64
import hashlib
import os
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "flin")
LIBRARY = os.environ.get("FLIN_LIB") or os.path.join(
    HERE, "..", "..", "build", "libflin.so")
VERSION = "0.1.0"
NAME = f"flin-{VERSION}"
METADATA = f"""\
Metadata-Version: 2.1
Name: flin
Version: {VERSION}
Summary: Linear-attention and state-space layers from one token's step
License: MIT
Requires-Python: >=3.9
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
"""


class UnsupportedOperation(Exception):
    """What PEP 517 has for sources that are no package of their own."""


def read(path):
    with open(path, "rb") as f:
        return f.read()


def digest(data):
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + found.rstrip(b"=").decode()


def write(directory, platform, files):
    """The wheel's name. A wheel with a library in it is for one platform."""
    tag = f"py3-none-{platform}"
    info = f"{NAME}.dist-info"
    files[f"{info}/METADATA"] = METADATA.encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: flin\nRoot-Is-Purelib: "
        f"{str(platform == 'any').lower()}\nTag: {tag}\n").encode()
    rows = [f"{name},{digest(data)},{len(data)}\n"
            for name, data in files.items()]
    files[f"{info}/RECORD"] = "".join(rows + [f"{info}/RECORD,,\n"]).encode()
    wheel = f"{NAME}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(directory, wheel), "w",
                         zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)       # of 1980: the same bytes
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def build_wheel(wheel_directory, config_settings=None,
                metadata_directory=None):
    files = {"flin/" + name: read(os.path.join(PACKAGE, name))
             for name in sorted(os.listdir(PACKAGE)) if name.endswith(".py")}
    if not os.path.exists(LIBRARY):
        return write(wheel_directory, "any", files)
    files["flin/libflin.so"] = read(LIBRARY)
    platform = sysconfig.get_platform()
    return write(wheel_directory, platform.replace("-", "_").replace(".", "_"),
                 files)


def build_editable(wheel_directory, config_settings=None,
                   metadata_directory=None):
    return write(wheel_directory, "any", {"flin.pth": HERE.encode() + b"\n"})


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("flin's sources are its repository")
