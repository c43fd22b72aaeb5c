/* Where the API server is and how we prove who we are: in-cluster, or a kubeconfig. */
#ifndef PP_OPERATOR_KUBE_CONFIG_H
#define PP_OPERATOR_KUBE_CONFIG_H

#include "common/error.h"

#include <stddef.h>

/** All strings are owned; NULL where not given. */
typedef struct pp_kube_config {
    char *server;     /**< base URL without a slash at its end */
    char *ns;         /**< the namespace we run in or the context names; "default" otherwise */
    char *ca_file;    /**< PEM file, or */
    char *ca_pem;     /**< PEM text */
    char *cert_file;  /**< client certificate */
    char *cert_pem;   /**< the same as PEM text */
    char *key_file;   /**< its key */
    char *key_pem;    /**< the same as PEM text */
    char *token;      /**< fixed bearer token */
    char *token_file; /**< bearer token that is read again every 60 s; wins over token */
    char *username;   /**< HTTP basic */
    char *password;
} pp_kube_config;

/**
 * The way kubectl and in-cluster programs do it: `path` when not NULL, else the file that
 * KUBECONFIG names, else the pod's service account where KUBERNETES_SERVICE_HOST is set, else
 * ~/.kube/config.
 */
int pp_kube_config_load(pp_kube_config *config, const char *path, pp_error *err);

/** The pod's service account; `dir` NULL: /var/run/secrets/kubernetes.io/serviceaccount. */
int pp_kube_config_in_cluster(pp_kube_config *config, const char *dir, pp_error *err);

/**
 * From kubeconfig text; relative file names in it are taken from `dir`. Refuses what we do not do
 * (exec and auth-provider plugins, insecure-skip-tls-verify, proxy-url) with the field's name.
 */
int pp_kube_config_parse(pp_kube_config *config, const char *text, size_t n, const char *dir,
                         pp_error *err);

/** Frees what it owns and zeroes it. */
void pp_kube_config_done(pp_kube_config *config);

#endif
