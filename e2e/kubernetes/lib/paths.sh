# Names, addresses and places of the cluster. Sourced by e2e/cluster.
# shellcheck shell=bash disable=SC2034 # used by the other parts

name=${PP_CLUSTER:-precisionprobe-e2e} # node, network namespace and cgroup
run=${PP_RUN:-/run/$name}
veth=pp$(printf '%s' "$name" | cksum | cut -d' ' -f1) # this machine's end; 15 characters at most
kubelet_root=/var/lib/kubelet       # as on any cluster, for hostPath volumes
network=${PP_NODE_NETWORK:-10.77.0} # /24: .1 is this machine, .2 the node
host_ip=$network.1
node_ip=$network.2
pod_cidr=${PP_POD_CIDR:-10.78.0.0/16}
service_prefix=${PP_SERVICE_PREFIX:-10.79.0}
service_cidr=$service_prefix.0/24
api_service_ip=$service_prefix.1
api=https://$node_ip:6443
pki=$run/pki
etc=$run/etc
logs=$run/logs
kubeconfig=$run/kubeconfig
containerd_root=$PP_CACHE/containerd # images stay, so that they load once
containerd_state=$run/containerd
containerd_socket=$run/containerd.sock
cni_plugins=/usr/lib/cni
pause_image=docker.io/precisionprobe/pause:1
