# What the cluster changes on the machine, and how each change is undone:
# network namespace, cgroups, sysctls, folders outside the run folder.
# shellcheck shell=bash

# Kernel settings that the kubelet makes its own on start.
kubelet_sysctls="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops
    kernel/keys/root_maxkeys kernel/keys/root_maxbytes"

# Folders that the kubelet, containerd and CNI make at places of their own
# choice; those that were not there before are removed at the end.
outside="/var/lib/kubelet /var/log/pods /var/log/containers /var/lib/cni /run/containerd /run/netns"

note_outside() {
    local path
    for path in $outside; do
        [ -e "$path" ] || printf '%s\n' "$path"
    done >"$run/made"
    for path in $kubelet_sysctls; do
        [ ! -r "/proc/sys/$path" ] || printf '%s %s\n' "$path" "$(cat "/proc/sys/$path")"
    done >"$run/sysctls"
}

restore_sysctls() {
    local path value
    [ -f "$run/sysctls" ] || return 0
    while read -r path value; do
        [ "$(cat "/proc/sys/$path")" = "$value" ] || printf '%s\n' "$value" >"/proc/sys/$path" || true
    done <"$run/sysctls"
}

# Another kubelet's folder is never touched.
check_host() {
    [ "$(id -u)" = 0 ] || die "needs root"
    [ "$(uname -s)" = Linux ] || die "needs Linux"
    if [ -e "$kubelet_root" ] && [ -n "$(ls -A "$kubelet_root")" ] && [ ! -e "$kubelet_root/.$name" ]; then
        die "$kubelet_root belongs to another kubelet: this machine is already a node. Use that cluster (set KUBECONFIG), or another machine."
    fi
    if ip -4 route show "$network.0/24" | grep -q .; then
        die "the network $network.0/24 is in use here; set PP_NODE_NETWORK to three free octets (and PP_POD_CIDR, PP_SERVICE_PREFIX where these clash)"
    fi
    [ ! -e "/run/netns/$name" ] || die "another cluster of the name $name is up; take it down, or set PP_CLUSTER"
    local cidr
    for cidr in "$pod_cidr" "$service_cidr"; do
        ! ip -4 route show "$cidr" | grep -q . || die "the network $cidr is in use here; set PP_POD_CIDR or PP_SERVICE_PREFIX"
    done
}

# --- network -----------------------------------------------------------------

inside() { nsenter --net="/run/netns/$name" "$@"; }

make_network() {
    modprobe -a br_netfilter overlay 2>/dev/null || true
    ip netns add "$name"
    ip link add "$veth" type veth peer name eth0 netns "$name"
    ip address add "$host_ip/24" dev "$veth"
    ip link set "$veth" up
    inside ip link set lo up
    inside ip address add "$node_ip/24" dev eth0
    inside ip link set eth0 up
    # The kubelet looks for an address along the default route.
    inside ip route add default via "$host_ip"
    # Services and pods can be reached from the machine by their addresses.
    ip route add "$pod_cidr" via "$node_ip"
    ip route add "$service_cidr" via "$node_ip"
    inside sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    if inside test -e /proc/sys/net/bridge/bridge-nf-call-iptables; then
        inside sh -c 'echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables'
    else
        say "warning: no br_netfilter in this kernel; a pod cannot reach itself or its neighbours through a Service"
    fi
}

# The veth, its routes and all iptables rules go with the namespace.
remove_network() {
    [ ! -e "/run/netns/$name" ] || ip netns delete "$name"
    ! ip link show "$veth" >/dev/null 2>&1 || ip link delete "$veth"
}

# --- cgroups -----------------------------------------------------------------

cgroup_version() { if [ -f /sys/fs/cgroup/cgroup.controllers ]; then echo 2; else echo 1; fi; }

cgroup_mounts() {
    if [ "$(cgroup_version)" = 2 ]; then
        echo /sys/fs/cgroup
    else
        # With the hybrid layout's v2 tree, in which runc makes folders too.
        awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts
    fi
}

# The kubelet takes a cgroup root that is there in every controller. Under v1 a
# new cpuset has no CPUs and no memory nodes until they are copied.
make_cgroups() {
    local mount file controller
    for mount in $(cgroup_mounts); do
        mkdir -p "$mount/$name"
        if [ "$(cgroup_version)" = 2 ]; then
            for controller in $(cat "$mount/cgroup.controllers"); do
                echo "+$controller" >"$mount/cgroup.subtree_control" || say "cgroup controller $controller cannot be passed on"
            done
            for controller in $(cat "$mount/$name/cgroup.controllers"); do
                echo "+$controller" >"$mount/$name/cgroup.subtree_control"
            done
        fi
        for file in cpuset.cpus cpuset.mems; do
            [ "$(cgroup_version)" = 2 ] || [ ! -f "$mount/$file" ] || cat "$mount/$file" >"$mount/$name/$file"
        done
    done
}

# A cgroup whose last process has just ended can be busy for a moment.
remove_cgroups() {
    local mount folder attempt
    for mount in $(cgroup_mounts); do
        for attempt in 1 2 3 4 5 6 7 8 9 10; do
            [ -d "$mount/$name" ] || break
            while read -r folder; do
                rmdir "$folder" 2>/dev/null || true
            done < <(find "$mount/$name" -depth -type d)
            [ ! -d "$mount/$name" ] || sleep 0.$attempt
        done
        [ ! -d "$mount/$name" ] || say "left behind: $mount/$name (processes: $(find "$mount/$name" -name cgroup.procs -exec cat {} + | tr '\n' ' '))"
    done
}

# --- mounts and folders ------------------------------------------------------

# The folder itself too: the kubelet mounts its own on itself.
unmount_below() {
    local path
    while read -r path; do
        umount "$path" 2>/dev/null || umount --lazy "$path" || true
    done < <(awk -v top="$1" '$2 == top || index($2, top "/") == 1 { print $2 }' /proc/mounts | sort -r)
}

# What pods left in folders that were there before.
remove_pod_logs() {
    local uid link
    for uid in "$@"; do
        rm -rf /var/log/pods/*_"$uid"
    done
    for link in /var/log/containers/*.log; do
        [ -e "$link" ] || [ ! -L "$link" ] || [[ $(readlink "$link") != /var/log/pods/* ]] || rm -f "$link"
    done
}

remove_folders() {
    local path
    unmount_below "$kubelet_root"
    if [ -e "$kubelet_root/.$name" ]; then
        find "$kubelet_root" -mindepth 1 -xdev -delete 2>/dev/null || rm -rf --one-file-system "${kubelet_root:?}"/*
        rm -f "$kubelet_root/.$name"
    fi
    unmount_below "$run"
    rm -rf --one-file-system /run/precisionprobe-vgpu # hostPath of manifests/vgpu.yaml
    [ ! -f "$run/made" ] || while read -r path; do
        case $path in
        /run/netns) remove_empty_netns ;;
        /run/containerd) find "$path" -depth -type d -empty -delete 2>/dev/null ;;
        /var/lib/kubelet | /var/lib/cni | /var/log/pods | /var/log/containers) rm -rf --one-file-system "$path" ;;
        esac
    done <"$run/made"
}

# `ip netns` mounts the folder on itself; other namespaces may have come since.
remove_empty_netns() {
    [ -d /run/netns ] && [ -z "$(ls -A /run/netns)" ] || return
    unmount_below /run/netns
    rmdir /run/netns
}
