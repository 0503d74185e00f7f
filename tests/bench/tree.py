"""Python finds this tree's flin, whether one is installed or not: to be
imported before it."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../lang/python"))
