# Sourced by the scripts here: makes .venv on first use, and again when what is asked of it changes.
#   bootstrap EXTRAS    with EXTRAS such as "" or "[test]"; afterwards $VENV/bin is ready
# PYTHON names the interpreter to use; COMMBENCH_VENV another place than .venv.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${COMMBENCH_VENV:-$ROOT/.venv}

# Of pip's lines those that take long: packages of 10 MB or more, and the installation at the end.
LARGE='s/^ *Downloading ([^-]*-[^-]*)[^ ]* \(([0-9.]+ GB|[0-9]{2,}[0-9.]* MB)\).*/  downloading \1, \2/p
s/^Installing collected packages.*/  installing all packages/p'

find_python() {
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10 python}; do
        if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "error: there is no Python 3.10 or newer with the venv module here" >&2
    echo "hint: install one (Debian: python3 python3-venv), or name one: PYTHON=/path/to/python3" >&2
    exit 3
}

bootstrap() {
    local wanted stamp="$VENV/.commbench-installed"
    wanted=$(cat "$ROOT/pyproject.toml" "$ROOT/constraints.txt" | sha256sum | cut -d' ' -f1)
    grep -qsxF -- "$wanted $1" "$stamp" && return
    # Two first uses at once: the second waits, then finds the work done.
    exec 9>"$ROOT/.bootstrap.lock"
    flock 9
    if ! grep -qsxF -- "$wanted $1" "$stamp"; then
        local python
        python=$(find_python) || exit 3
        echo "first use: installing commbench$1 and torch into $VENV (some minutes)" >&2
        [ -x "$VENV/bin/python" ] || "$python" -m venv "$VENV" || exit 3
        if ! (
            set -o pipefail
            PYTHONUNBUFFERED=1 "$VENV/bin/python" -m pip install --disable-pip-version-check \
                --constraint "$ROOT/constraints.txt" --editable "$ROOT$1" 2>&1 |
                tee "$VENV/pip.log" | sed -unE "$LARGE" >&2
        ); then
            cat "$VENV/pip.log" >&2
            echo "error: pip could not install commbench$1 into $VENV" >&2
            echo "hint: its messages are above; a package index must be reachable" >&2
            exit 3
        fi
        # As pip does for what is not editable: without, each start would compile it anew where
        # PYTHONDONTWRITEBYTECODE is set.
        "$VENV/bin/python" -m compileall -q "$ROOT/commbench" >&2 || true
        # Another hash means other requirements: what was installed for the old ones is done with.
        { grep -s "^$wanted " "$stamp" || true; echo "$wanted $1"; } >"$stamp.new"
        mv "$stamp.new" "$stamp"
    fi
    exec 9>&-
}
