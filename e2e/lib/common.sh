# Shared by the scripts of e2e/: where things lie, progress, locks, atomic
# results. Sourced, never run; needs bash and coreutils only.
# shellcheck shell=bash

PP_CACHE=${PP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/precisionprobe}
PP_LOGS=$PP_CACHE/logs
mkdir -p "$PP_LOGS"

say() { printf '%s\n' "$*" >&2; }
die() { say "$(basename "$0"): $*"; exit 1; }

# Says in one line what keeps a whole run from beginning, before anything is
# installed.
check_start() {
    local name found='' IFS=:
    for name in ${KUBECONFIG:-}; do [ ! -r "$name" ] || found=1; done
    [ -z "${KUBECONFIG:-}" ] || [ -n "$found" ] || die "KUBECONFIG: $KUBECONFIG: no such file"
    [ -n "${KUBECONFIG:-}" ] || [ "$(id -u)" = 0 ] || die "needs root, to bring up a cluster on this machine"
}

# step TEXT LOG COMMAND...: one line for the reader ("TEXT ... 12 s"), the
# command's own output into LOG; on failure the end of LOG, and status 1. On a
# terminal the seconds count up while the command runs; elsewhere a line says
# that it begins. Call it plainly, under
# `set -e`: left of || or && (or in an if) bash ignores `set -e` in everything
# below, and a failure in the middle of COMMAND would pass.
step_group=''
step() {
    local text=$1 log=$2 ticker='' began=$SECONDS rc=0
    shift 2
    mkdir -p "$(dirname "$log")"
    # A process group of its own, so that stop_step ends all of it.
    set -m
    ( trap - INT QUIT TERM HUP EXIT; set -e +m; "$@" ) >>"$log" 2>&1 </dev/null &
    step_group=$!
    set +m
    if [ -t 2 ]; then
        { while :; do printf '\r%-58s %4d s' "$text" $((SECONDS - began)) >&2; sleep 1; done; } 9>&- &
        ticker=$!
    else
        say "$text ..."
    fi
    wait "$step_group" || rc=$?
    step_group=''
    if [ -n "$ticker" ]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        printf '\r' >&2
    fi
    if [ $rc -eq 0 ]; then
        printf '%-58s %4d s\n' "$text" $((SECONDS - began)) >&2
        return 0
    fi
    printf '%-58s failed after %d s; the end of %s:\n' "$text" $((SECONDS - began)) "$log" >&2
    tail -n 25 "$log" | sed 's/^/    /' >&2
    return 1
}

# Ends the step that runs, if one does, and waits for its end. For traps.
stop_step() {
    [ -n "$step_group" ] || return 0
    kill -TERM -- "-$step_group" 2>/dev/null || true
    wait "$step_group" 2>/dev/null || true
    step_group=''
}
trap 'stop_step; exit 130' INT TERM HUP

# Holds the lock FILE for the rest of the process, on file descriptor 9.
# Whatever is started in the background must close it (9>&-).
lock() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    flock -n 9 && return
    say "waiting for another run that holds $1"
    flock 9
}

# Eight hexadecimal digits that change when a file's content does.
key_of() { cat "$@" | sha256sum | cut -c1-8; }

# The archive's address as apt has it configured for the machine's own suite.
mirror() {
    local own url
    own=$(. /etc/os-release && echo "$VERSION_CODENAME")
    url=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v own="$own" '$1 == own && $2 == "main" { print $3; exit }')
    [ -n "$url" ] || die "apt's configuration names no archive for $own main"
    printf '%s\n' "${url%/}"
}
