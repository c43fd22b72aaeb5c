# etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
# shellcheck shell=bash

start_etcd() {
    launch etcd "$programs/etcd" --name "$name" --data-dir "$run/etcd" \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster "$name=http://127.0.0.1:2380" \
        --unsafe-no-fsync --log-level warn
}

start_apiserver() {
    local issuer=https://kubernetes.default.svc.cluster.local
    launch kube-apiserver "$programs/kube-apiserver" \
        --etcd-servers=http://127.0.0.1:2379 \
        --advertise-address="$node_ip" --bind-address=0.0.0.0 --secure-port=6443 \
        --service-cluster-ip-range="$service_cidr" \
        --cert-dir="$run/apiserver" \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --client-ca-file="$pki/ca.crt" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --enable-bootstrap-token-auth --allow-privileged \
        --kubelet-certificate-authority="$pki/ca.crt" \
        --kubelet-client-certificate="$pki/apiserver-kubelet.crt" \
        --kubelet-client-key="$pki/apiserver-kubelet.key" \
        --kubelet-preferred-address-types=InternalIP \
        --service-account-issuer="$issuer" --api-audiences="$issuer" \
        --service-account-key-file="$pki/service-account.pub" \
        --service-account-signing-key-file="$pki/service-account.key" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
        --requestheader-allowed-names=front-proxy-client \
        --requestheader-extra-headers-prefix=X-Remote-Extra- \
        --requestheader-group-headers=X-Remote-Group \
        --requestheader-username-headers=X-Remote-User \
        --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key"
}

start_controller_manager() {
    launch kube-controller-manager "$programs/kube-controller-manager" \
        --kubeconfig="$etc/kube-controller-manager.kubeconfig" \
        --authentication-kubeconfig="$etc/kube-controller-manager.kubeconfig" \
        --authorization-kubeconfig="$etc/kube-controller-manager.kubeconfig" \
        --bind-address=127.0.0.1 --leader-elect=false --cert-dir="$run/controller-manager" \
        --use-service-account-credentials \
        --service-account-private-key-file="$pki/service-account.key" --root-ca-file="$pki/ca.crt" \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
        --service-cluster-ip-range="$service_cidr" \
        --flex-volume-plugin-dir="$run/volume-plugins"
}

start_scheduler() {
    launch kube-scheduler "$programs/kube-scheduler" \
        --kubeconfig="$etc/kube-scheduler.kubeconfig" \
        --authentication-kubeconfig="$etc/kube-scheduler.kubeconfig" \
        --authorization-kubeconfig="$etc/kube-scheduler.kubeconfig" \
        --bind-address=127.0.0.1 --leader-elect=false --cert-dir="$run/scheduler"
}

kube() { "$programs/kubectl" --kubeconfig "$kubeconfig" "$@"; }
