# containerd with runc and a bridge network, and the images in it.
# shellcheck shell=bash

ctr() { command ctr --address "$containerd_socket" --namespace k8s.io "$@"; }

write_containerd_config() {
    local snapshotter=overlayfs
    if ! overlay_works; then
        say "warning: no overlay file system on $containerd_root; containers are full copies (slow, large)"
        snapshotter=native
    fi
    mkdir -p "$containerd_root" "$etc/cni"
    cat >"$etc/containerd.toml" <<EOF
version = 2
root = "$containerd_root"
state = "$containerd_state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "$containerd_socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "$run/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  # Without CAP_SYS_RESOURCE no process may lower its own score.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = "$run/runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$cni_plugins"
    conf_dir = "$etc/cni"
EOF
    cat >"$etc/cni/10-bridge.conflist" <<EOF
{
  "cniVersion": "0.4.0",
  "name": "$name",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "$run/cni",
        "ranges": [[{"subnet": "$pod_cidr"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
EOF
}

# Not on top of another overlay, as inside some containers.
overlay_works() {
    local test rc=0
    mkdir -p "$containerd_root"
    test=$(mktemp -d "$containerd_root/overlay.XXXXXX")
    mkdir "$test"/{lower,upper,work,merged}
    mount -t overlay overlay -o "lowerdir=$test/lower,upperdir=$test/upper,workdir=$test/work" "$test/merged" 2>/dev/null || rc=1
    [ $rc -ne 0 ] || umount "$test/merged"
    rm -rf "$test"
    return $rc
}

start_containerd() {
    write_containerd_config
    run_containerd
    # Containers of an earlier cluster that was not taken down, or whose
    # machine went down: only images are kept.
    if [ -n "$(ctr containers list --quiet)" ]; then
        forget_containers
        stop containerd 10
        run_containerd
    fi
}

run_containerd() {
    launch containerd containerd --config "$etc/containerd.toml"
    wait_for 30 containerd ctr version
    wait_for 60 containerd runtime_serves
}

# Whether the CRI, by which the kubelet speaks to containerd, answers: it begins
# later than the rest, and a kubelet that is told "not initialized yet" ends.
# gRPC's request for the version is an empty message.
runtime_serves() {
    printf '\0\0\0\0\0' |
        curl --silent --show-error --max-time 5 --unix-socket "$containerd_socket" --http2-prior-knowledge \
            --header 'content-type: application/grpc' --header 'te: trailers' --data-binary @- \
            --output "$run/cri-version" http://localhost/runtime.v1.RuntimeService/Version &&
        grep -q containerd "$run/cri-version"
}

forget_containers() {
    local id
    for id in $(ctr containers list --quiet); do
        ctr task kill --signal KILL "$id" >/dev/null 2>&1 || true
        ctr task delete --force "$id" >/dev/null 2>&1 || true
        ctr containers delete "$id" >/dev/null 2>&1 || true
    done
}

# Each container's shim outlives containerd. Ours have our socket among their
# arguments; what runs under them in our cgroups goes with them.
stop_shims() {
    local file pid
    for file in $(grep -lzxF -- "$containerd_socket" /proc/[0-9]*/cmdline 2>/dev/null); do
        pid=${file#/proc/}
        pid=${pid%/cmdline}
        [ "$(basename "$(readlink "/proc/$pid/exe")")" = containerd-shim-runc-v2 ] || continue
        stop_pid "$pid" "$(start_time "$pid")" 2
    done
    for pid in $(for file in $(cgroup_mounts); do
        find "$file/$name" -name cgroup.procs -exec cat {} + 2>/dev/null
    done | sort -u); do
        kill -KILL "$pid" 2>/dev/null
    done
}

# Shims listen in /run/containerd/s whatever the state folder is.
remove_shim_sockets() {
    local socket
    while read -r socket; do
        [[ $socket != /run/containerd/s/* ]] || rm -f "$socket"
    done < <(cat "$run/shim-sockets" 2>/dev/null)
}

note_shim_sockets() {
    find "$containerd_state" -name address -exec cat {} \; -exec echo \; 2>/dev/null |
        sed -n 's|^unix://||p' >>"$run/shim-sockets" || true
}

# --- images ------------------------------------------------------------------

# The archive's identity: its manifest, which names its config and layers by
# digest. Our own archives have it first, so that little is read.
archive_identity() {
    tar -xOf "$1" --occurrence=1 manifest.json | sha256sum | cut -d' ' -f1
}

archive_names() {
    tar -xOf "$1" --occurrence=1 manifest.json | python3 -c '
import json, sys
for image in json.load(sys.stdin):
    for name in image["RepoTags"] or []:
        print(name)'
}

# loaded NAME: the digest that containerd has under the name.
loaded_digest() { ctr images list "name==$1" | awk 'NR == 2 { print $3 }'; }

# What was loaded is noted beside the images: archive's identity and the digest
# that the import gave it. Both must still hold for the load to be skipped.
load_image() {
    local archive=$1 identity names image note current=1
    [ -r "$archive" ] || die "cannot read $archive"
    identity=$(archive_identity "$archive") || die "$archive is no image archive"
    names=$(archive_names "$archive") || die "$archive is no image archive"
    [ -n "$names" ] || die "$archive names no image"
    mkdir -p "$containerd_root/loaded"
    for image in $names; do
        note=$containerd_root/loaded/${image//\//%}
        [ "$(cat "$note" 2>/dev/null)" = "$identity $(loaded_digest "$image")" ] || current=''
    done
    if [ -n "$current" ]; then
        say "already loaded: $(echo $names)"
        return
    fi
    : >"$logs/load-image.log"
    step "loading $(echo $names)" "$logs/load-image.log" ctr images import "$archive"
    for image in $names; do
        printf '%s %s' "$identity" "$(loaded_digest "$image")" >"$containerd_root/loaded/${image//\//%}"
    done
}
