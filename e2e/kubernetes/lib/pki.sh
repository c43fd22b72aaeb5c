# Keys, certificates and kubeconfigs, made anew for every cluster.
# shellcheck shell=bash

new_ca() {
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"
    openssl req -x509 -new -key "$pki/$1.key" -days 365 -subj "/CN=$1" -out "$pki/$1.crt"
}

# certificate NAME CA SUBJECT USAGE [ALTERNATIVE-NAMES]
certificate() {
    local extensions="keyUsage=critical,digitalSignature,keyEncipherment"$'\n'"extendedKeyUsage=$4"
    [ -z "${5:-}" ] || extensions+=$'\n'"subjectAltName=$5"
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"
    openssl req -new -key "$pki/$1.key" -subj "$3" |
        openssl x509 -req -CA "$pki/$2.crt" -CAkey "$pki/$2.key" -CAcreateserial -days 365 \
            -extfile <(printf '%s\n' "$extensions") -out "$pki/$1.crt"
}

# kubeconfig_of NAME FILE: for the client certificate of that name.
kubeconfig_of() {
    cat >"$2" <<EOF
apiVersion: v1
kind: Config
clusters:
- name: $name
  cluster:
    server: $api
    certificate-authority-data: $(base64 -w0 "$pki/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$pki/$1.crt")
    client-key-data: $(base64 -w0 "$pki/$1.key")
contexts:
- name: $name
  context: {cluster: $name, user: $1}
current-context: $name
EOF
}

make_pki() {
    local client user
    umask 077
    mkdir -p "$pki"
    new_ca ca
    new_ca front-proxy-ca
    certificate apiserver ca /CN=kube-apiserver serverAuth \
        "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,DNS:$name,IP:$api_service_ip,IP:$node_ip,IP:127.0.0.1"
    certificate kubelet-server ca "/O=system:nodes/CN=system:node:$name" serverAuth "DNS:$name,IP:$node_ip"
    certificate apiserver-kubelet ca /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
    certificate front-proxy front-proxy-ca /CN=front-proxy-client clientAuth
    certificate admin ca /O=system:masters/CN=admin clientAuth
    certificate kubelet ca "/O=system:nodes/CN=system:node:$name" clientAuth
    for user in kube-controller-manager kube-scheduler kube-proxy coredns; do
        certificate $user ca "/CN=system:$user" clientAuth
    done
    openssl genrsa -out "$pki/service-account.key" 2048
    openssl rsa -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
    for client in kubelet kube-controller-manager kube-scheduler kube-proxy coredns; do
        kubeconfig_of $client "$etc/$client.kubeconfig"
    done
    kubeconfig_of admin "$kubeconfig"
}
