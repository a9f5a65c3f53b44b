# shellcheck shell=sh
# Sourced by bin/supervisor and bin/test with `root` set to the checkout. Gives them:
#
#   venv                      the environment's folder
#   need_environment KIND     returns when the environment holds requirements/KIND.txt (runtime or dev), exits otherwise
#
# The environment is current when its `ready` file says so (written last, by bin/environment.py, which documents it).
# This check runs at every call: it forks one `cmp` and nothing else.

venv=$root/.venv

environment_is_current() {
    [ -x "$venv/bin/python" ] && [ -f "$venv/ready" ] || return 1
    { IFS= read -r made_format && IFS= read -r made_root && IFS= read -r made_python; } <"$venv/ready" || return 1
    [ "$made_format" = 1 ] && [ "$made_root" = "$root" ] || return 1
    [ "${SUPERVISOR_PYTHON:-$made_python}" = "$made_python" ] || return 1
    cmp -s "$root/requirements/$1.txt" "$venv/installed-$1.txt"
}

is_new_enough() {
    "$1" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Sets `python`, or exits with one sentence.
find_python() {
    if [ -n "${SUPERVISOR_PYTHON:-}" ]; then
        python=$SUPERVISOR_PYTHON
        is_new_enough "$python" && return
        found=$("$python" --version 2>&1) || give_up "SUPERVISOR_PYTHON names $python, which does not run; set it to a Python 3.11 or newer."
        give_up "SUPERVISOR_PYTHON names $python, which is $found; Python 3.11 or newer is needed."
    fi
    old=
    for name in python3.13 python3.12 python3.11 python3; do
        python=$(command -v "$name") || continue
        is_new_enough "$python" && return
        old=$("$python" --version 2>/dev/null) || old=
    done
    [ -n "$old" ] && give_up "Python 3.11 or newer is needed and this machine has $old; install a newer one, or name it with SUPERVISOR_PYTHON."
    give_up "Python 3.11 or newer is needed and none is on PATH; install one, or name it with SUPERVISOR_PYTHON."
}

give_up() {
    echo "supervisor: $1" >&2
    exit 1
}

need_environment() {
    environment_is_current "$1" && return
    find_python
    "$python" -I "$root/bin/environment.py" "$root" "$1" "$python" || exit $?
}
