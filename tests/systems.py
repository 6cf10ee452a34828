"""Marks of tests that need what some systems lack."""

import os
import sys

import pytest

unix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="made for Unix: pipes, signals, forks, reads at an offset")
linux = pytest.mark.skipif(sys.platform != "linux", reason="made for Linux: /proc and limits of memory")
