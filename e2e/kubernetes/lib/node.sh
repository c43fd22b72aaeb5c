# kubelet, kube-proxy and the cluster's DNS.
# shellcheck shell=bash

# A file that begins with { is read as JSON: hence block style throughout.
write_kubelet_config() {
    printf 'nameserver %s\n' "$node_ip" >"$etc/resolv.conf"
    cat >"$etc/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_ip
healthzBindAddress: 127.0.0.1
tlsCertFile: $pki/kubelet-server.crt
tlsPrivateKeyFile: $pki/kubelet-server.key
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: $pki/ca.crt
authorization:
  mode: Webhook
clusterDNS:
- $node_ip
clusterDomain: cluster.local
resolvConf: $etc/resolv.conf
containerRuntimeEndpoint: unix://$containerd_socket
volumePluginDir: $run/volume-plugins
cgroupDriver: cgroupfs
cgroupRoot: /$name
enforceNodeAllocatable: []
oomScoreAdj: 0
failSwapOn: false
protectKernelDefaults: false
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
  imagefs.available: 1%
EOF
    # Strict decoding: versions before 1.31 do not know the field.
    if [ "$(cgroup_version)" = 1 ] && [ "$(minor_of "$version")" -ge 31 ]; then
        echo 'failCgroupV1: false' >>"$etc/kubelet.yaml"
    fi
    # Containers that are killed on purpose, dozens of times, are started again after a second, not
    # after minutes. Versions before 1.35 refuse it.
    if [ "$(minor_of "$version")" -ge 35 ]; then
        printf 'crashLoopBackOff:\n  maxContainerRestartPeriod: 1s\n' >>"$etc/kubelet.yaml"
    fi
}

minor_of() { local m=${1#*.}; printf '%s\n' "${m%%.*}"; }

start_kubelet() {
    write_kubelet_config
    mkdir -p "$kubelet_root"
    : >"$kubelet_root/.$name"
    # Asking a cloud's metadata service costs seconds where there is none.
    AWS_EC2_METADATA_DISABLED=true launch kubelet "$programs/kubelet" \
        --kubeconfig="$etc/kubelet.kubeconfig" --config="$etc/kubelet.yaml" \
        --root-dir="$kubelet_root" --cert-dir="$run/kubelet" \
        --hostname-override="$name" --node-ip="$node_ip" \
        --node-labels=precisionprobe.io/e2e=true
}

# Conntrack's sysctls belong to the machine: 0 leaves them alone.
start_proxy() {
    cat >"$etc/kube-proxy.yaml" <<EOF
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: $name
clusterCIDR: $pod_cidr
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection:
  kubeconfig: $etc/kube-proxy.kubeconfig
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
EOF
    launch kube-proxy "$programs/kube-proxy" --config="$etc/kube-proxy.yaml"
}

# CoreDNS runs on the node's own address; pods have no names to ask outside.
start_dns() {
    cat >"$etc/Corefile" <<EOF
.:53 {
    bind $node_ip
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig $etc/coredns.kubeconfig
        pods insecure
        ttl 5
    }
}
EOF
    kube apply -f - <<'EOF'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: system:coredns
rules:
- apiGroups: [""]
  resources: [services, pods, namespaces, nodes]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: system:coredns
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:coredns
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: system:coredns
EOF
    launch coredns "$programs/coredns" -conf "$etc/Corefile" -quiet
}
