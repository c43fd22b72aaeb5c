# Processes by pid, never by name: each is recorded with its start time, so
# that a pid given to another process later is never taken for ours.
# shellcheck shell=bash

# Field 22 of stat; the command's name, field 2, may hold blanks.
start_time() { sed -n 's/.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

record() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$run/pids/$1"; }

# alive NAME: whether the process recorded under that name still runs.
alive() {
    local pid began
    [ -f "$run/pids/$1" ] || return 1
    read -r pid began <"$run/pids/$1" || return 1
    [ -n "$began" ] && runs "$pid" "$began"
}

# A process that ended stays visible, as a zombie, until its parent looks.
runs() { [ "$(start_time "$1")" = "$2" ] && [ "$(process_state "$1")" != Z ]; }

process_state() { sed -n 's/.*) \(.\) .*/\1/p' "/proc/$1/stat" 2>/dev/null; }

# launch NAME COMMAND...: in the node's network namespace, in a session of its
# own, output to a log. nsenter, not `ip netns exec`: that mounts /sys anew,
# which hides the cgroups.
launch() {
    local process=$1
    shift
    setsid nsenter --net="/run/netns/$name" "$@" >>"$logs/$process.log" 2>&1 </dev/null 9>&- &
    record "$process" $!
}

# log_end NAME TEXT: the end of a program's log, for a reader who has to find
# out why.
log_end() {
    say "$1 $2; the end of $logs/$1.log:"
    tail -n 15 "$logs/$1.log" | cut -c1-400 | sed 's/^/    /' >&2
}

all_alive() {
    local file
    for file in "$run"/pids/*; do
        alive "$(basename "$file")" || { log_end "$(basename "$file")" "ended by itself"; return 1; }
    done
}

# wait_for SECONDS PROCESS COMMAND...: polls until COMMAND is true of PROCESS;
# gives up at once when any program of the cluster is gone.
wait_for() {
    local limit=$((SECONDS + $1)) process=$2
    shift 2
    until "$@" >>"$logs/$process-wait.log" 2>&1; do
        all_alive || return 1
        if [ $SECONDS -ge $limit ]; then
            log_end "$process-wait" "(what was waited for)"
            log_end "$process" "was not ready in time"
            return 1
        fi
        sleep 0.2
    done
}

# stop_pid PID BEGAN SECONDS: TERM, then KILL; returns when the process is gone.
stop_pid() {
    local pid=$1 began=$2 limit=$((SECONDS + $3))
    [ -n "$began" ] || return 0
    runs "$pid" "$began" || return 0
    kill -TERM "$pid" 2>/dev/null || return 0
    while runs "$pid" "$began"; do
        [ $SECONDS -lt $limit ] || { kill -KILL "$pid" 2>/dev/null || true; limit=$((SECONDS + 5)); }
        sleep 0.05
    done
}

# stop NAME SECONDS
stop() {
    local pid began
    [ -f "$run/pids/$1" ] || return 0
    read -r pid began <"$run/pids/$1" || true
    stop_pid "${pid:-0}" "${began:-}" "$2"
    rm -f "$run/pids/$1"
}
