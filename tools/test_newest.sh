#!/bin/sh
# Runs what touches JAX once more under the newest Python of this machine, with the newest JAX that it can have, where
# that Python is newer than the one given first, whose environment has the rest of the tests behind it. The second
# argument is the folder of the environment that is made for it, the others go to pytest.
#
# Where there is no newer Python nothing is run. Packages that cannot be installed for it are a failure, unless
# SHARDC_OFFLINE=1 says that this machine reaches no package index.
set -u
given=$1 environment=$2
shift 2

# What JAX's releases differ in: its functions, what it lowers, shardings, and what shardc tells of programs from it.
tests="tests/fuzz/test_fuzz_jax.py tests/frontends/jax tests/frontends/pjrt tests/launcher/test_stages.py
    tests/launcher/test_custom_calls.py tests/launcher/test_executables.py
    tests/launcher/test_save.py tests/launcher/test_array_making.py tests/launcher/test_dlpack.py
    tests/launcher/executors tests/analysis/explain tests/analysis/simulate
    tests/hlo/test_stablehlo_*.py tests/hlo/test_text_xla.py tests/sharding tests/partitioner/test_jax.py
    tests/partitioner/test_manual.py tests/partitioner/test_xla.py tests/demo tests/test_examples.py"

minor() {
    "$1" -c 'import sys, venv, ensurepip; v = sys.version_info; print(v[1] if v[0] == 3 and 11 <= v[1] < 15 else 0)' \
        2>/dev/null || echo 0
}

newest='' best=$(minor "$given")
for python in python3.14 python3.13 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
    found=$(minor "$python")
    if [ "$found" -gt "$best" ]; then
        newest=$python best=$found
    fi
done
if [ -z "$newest" ]; then
    echo "shardc: no Python here is newer than 3.$best: there is nothing more to run"
    exit 0
fi

ready="$environment/.ready-3.$best"
if [ ! -e "$ready" ] || [ pyproject.toml -nt "$ready" ]; then
    echo "shardc: making $environment with $newest"
    rm -f "$environment"/.ready-*
    if ! { "$newest" -m venv --clear "$environment" &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "pip>=24" &&
        "$environment/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[jax,mpich,test]"; }; then
        echo "shardc: the packages cannot be installed for Python 3.$best, so nothing was run under it" >&2
        if [ "${SHARDC_OFFLINE:-0}" = 1 ]; then
            echo "shardc: SHARDC_OFFLINE=1: this is no failure" >&2
            exit 0
        fi
        echo "  fix: see pip's words above; set SHARDC_OFFLINE=1 where no package index is to be reached" >&2
        exit 1
    fi
    touch "$ready"
fi
"$environment/bin/python" -c 'import jax, sys; print(f"shardc: Python {sys.version.split()[0]}, JAX {jax.__version__}")'
# shellcheck disable=SC2086  (a list of patterns)
exec /bin/sh "${0%/*}/run_tests.sh" "$environment/bin/python" "$@" $tests
