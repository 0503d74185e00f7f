"""Bundles libflin.so where the repository has built it (`make`); without it
the package looks for the library when it is first used."""
import os
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.environ.get("FLIN_LIB") or os.path.join(
    HERE, "..", "..", "build", "libflin.so")


class Build(build_py):
    def run(self):
        super().run()
        if os.path.exists(LIBRARY):
            to = os.path.join(self.build_lib, "flin", "libflin.so")
            self.mkpath(os.path.dirname(to))
            shutil.copyfile(LIBRARY, to)


class Platform(Distribution):
    """A wheel with a library in it is for one platform."""

    def has_ext_modules(self):
        return os.path.exists(LIBRARY)


setup(cmdclass={"build_py": Build}, distclass=Platform)
