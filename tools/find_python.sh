#!/bin/sh
# Prints the newest Python on this machine that can run shardc (3.11 or later, with venv), or says what is missing.
# The first argument, if not empty, is used instead of a search and must fit.
test_python='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))'

if [ -n "$1" ]; then
    if "$1" -c "$test_python" 2>/dev/null; then
        echo "$1"
        exit 0
    fi
    echo "shardc: PYTHON=$1 is not a Python 3.11 to 3.14 with the venv module" >&2
    exit 1
fi
for python in python3.14 python3.13 python3.12 python3.11 python3 python; do
    if command -v "$python" >/dev/null 2>&1 && "$python" -c "$test_python" 2>/dev/null; then
        command -v "$python"
        exit 0
    fi
done
echo "shardc: no Python 3.11 to 3.14 with the venv module was found on PATH" >&2
echo "  fix: install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python" >&2
exit 1
