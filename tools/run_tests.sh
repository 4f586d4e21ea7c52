#!/bin/sh
# Runs pytest of the Python given first with the other arguments. Where up to three tests fail, these are run once more,
# alone and in order: tests of jobs and services wait for processes, and beside others they can come too late. A test
# that fails alone too is a failure; one that passes alone is printed, since it may have a fault of its own.
# The slowest tests are listed at the end.
set -u
python=$1
shift

"$python" -m pytest --cache-clear --durations 40 --durations-min 20 "$@"
code=$?
[ "$code" -eq 1 ] || exit "$code"

failed=$("$python" - <<'END'
import json
from pathlib import Path

file = Path(".pytest_cache/v/cache/lastfailed")
print("\n".join(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else "")
END
)
count=$(printf '%s\n' "$failed" | grep -c .)
if [ "$count" -lt 1 ] || [ "$count" -gt 3 ]; then
    exit 1
fi
printf '\nshardc: these tests failed beside others, and are run once more, alone:\n%s\n' "$failed"
"$python" -m pytest -n 0 --last-failed --last-failed-no-failures none || exit $?
printf '\nshardc: passed alone, failed beside others:\n%s\n' "$failed"
