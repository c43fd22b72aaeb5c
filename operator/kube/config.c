/* In-cluster settings and kubeconfig files. */
#include "operator/kube/config.h"

#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/yaml.h"
#include "operator/kube/kube_internal.h"

#include <openssl/evp.h>
#include <string.h>

enum { MAX_FILE = 1024 * 1024, MAX_PEM = 256 * 1024, MAX_NAME = 4096 };

static const char SERVICE_ACCOUNT[] = "/var/run/secrets/kubernetes.io/serviceaccount";

void pp_kube_config_done(pp_kube_config *config)
{
    char **owned[] = {&config->server,     &config->ns,        &config->ca_file,
                      &config->ca_pem,     &config->cert_file, &config->cert_pem,
                      &config->key_file,   &config->key_pem,   &config->token,
                      &config->token_file, &config->username,  &config->password};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        free(*owned[i]);
        *owned[i] = NULL;
    }
}

/* ---- kubeconfig ---- */

typedef struct cluster_entry {
    char *server, *ca_file, *ca_data, *tls_server_name, *proxy_url;
    bool insecure;
} cluster_entry;

static const pp_json_field cluster_fields[] = {
    {"server", PP_JSON_STRING, offsetof(cluster_entry, server), true, MAX_NAME},
    {"certificate-authority", PP_JSON_STRING, offsetof(cluster_entry, ca_file), false, MAX_NAME},
    {"certificate-authority-data", PP_JSON_STRING, offsetof(cluster_entry, ca_data), false,
     MAX_PEM},
    {"tls-server-name", PP_JSON_STRING, offsetof(cluster_entry, tls_server_name), false, MAX_NAME},
    {"proxy-url", PP_JSON_STRING, offsetof(cluster_entry, proxy_url), false, MAX_NAME},
    {"insecure-skip-tls-verify", PP_JSON_BOOL, offsetof(cluster_entry, insecure), false, 0},
    {0},
};

typedef struct user_entry {
    char *cert_file, *cert_data, *key_file, *key_data, *token, *token_file, *username, *password;
    json_t *exec, *auth_provider, *impersonate;
} user_entry;

static const pp_json_field user_fields[] = {
    {"client-certificate", PP_JSON_STRING, offsetof(user_entry, cert_file), false, MAX_NAME},
    {"client-certificate-data", PP_JSON_STRING, offsetof(user_entry, cert_data), false, MAX_PEM},
    {"client-key", PP_JSON_STRING, offsetof(user_entry, key_file), false, MAX_NAME},
    {"client-key-data", PP_JSON_STRING, offsetof(user_entry, key_data), false, MAX_PEM},
    {"token", PP_JSON_STRING, offsetof(user_entry, token), false, MAX_PEM},
    {"tokenFile", PP_JSON_STRING, offsetof(user_entry, token_file), false, MAX_NAME},
    {"username", PP_JSON_STRING, offsetof(user_entry, username), false, MAX_NAME},
    {"password", PP_JSON_STRING, offsetof(user_entry, password), false, MAX_NAME},
    {"exec", PP_JSON_VALUE, offsetof(user_entry, exec), false, 0},
    {"auth-provider", PP_JSON_VALUE, offsetof(user_entry, auth_provider), false, 0},
    {"as", PP_JSON_VALUE, offsetof(user_entry, impersonate), false, 0},
    {0},
};

typedef struct context_entry {
    char *cluster, *user, *ns;
} context_entry;

static const pp_json_field context_fields[] = {
    {"cluster", PP_JSON_STRING, offsetof(context_entry, cluster), true, MAX_NAME},
    {"user", PP_JSON_STRING, offsetof(context_entry, user), false, MAX_NAME},
    {"namespace", PP_JSON_STRING, offsetof(context_entry, ns), false, MAX_NAME},
    {0},
};

/** The `kind` ("cluster") of the entry with that name in the list `list` ("clusters"). */
static const json_t *find_entry(const json_t *root, const char *list, const char *kind,
                                const char *name, pp_error *err)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, list), i, entry)
    {
        const char *its = pp_json_get_string(entry, "name", NULL);
        const json_t *value = json_object_get(entry, kind);
        if (its && strcmp(its, name) == 0 && json_is_object(value))
            return value;
    }
    (void)pp_error_field(err, list, "has no %s named \"%s\"", kind, name);
    return NULL;
}

/** Base64 as kubeconfig holds it; the text may not hold NUL. NULL on error. */
static char *decode_base64(const char *text, const char *field, pp_error *err)
{
    size_t n = strlen(text);
    PP_CLEANUP_FREE unsigned char *out = malloc(n + 4);
    EVP_ENCODE_CTX *ctx = EVP_ENCODE_CTX_new();
    int len = 0, last = 0; /* never negative after a success */
    bool ok = out && ctx;
    if (ok) {
        EVP_DecodeInit(ctx);
        ok = EVP_DecodeUpdate(ctx, out, &len, (const unsigned char *)text, (int)n) >= 0 &&
             EVP_DecodeFinal(ctx, out + len, &last) >= 0;
    }
    EVP_ENCODE_CTX_free(ctx);
    size_t total = (size_t)len + (size_t)last;
    if (!ok || total == 0 || memchr(out, '\0', total)) {
        (void)pp_error_field(err, field, "is not base64 of a PEM text");
        return NULL;
    }
    out[total] = '\0';
    return (char *)PP_TAKE(out);
}

/** A file name as kubeconfig means it: relative to the folder of the file. */
static char *resolve(const char *name, const char *dir)
{
    if (name[0] == '/' || !dir)
        return strdup(name);
    return kube_format("%s/%s", dir, name);
}

/** Data wins over the file, as in kubectl. */
static int take_pem(char **pem, char **file, const char *data, const char *name, const char *dir,
                    const char *field, pp_error *err)
{
    if (data && *data) {
        *pem = decode_base64(data, field, err);
        return *pem ? 0 : -1;
    }
    if (name && *name) {
        *file = resolve(name, dir);
        return *file ? 0 : pp_error_nomem(err);
    }
    return 0;
}

static int take_cluster(pp_kube_config *config, cluster_entry *c, const char *dir, pp_error *err)
{
    if (c->insecure)
        return pp_error_field(err, "insecure-skip-tls-verify",
                              "is not supported: give the cluster's authority instead");
    if (c->proxy_url)
        return pp_error_field(err, "proxy-url", "is not supported: use https_proxy");
    if (c->tls_server_name)
        return pp_error_field(err, "tls-server-name", "is not supported");
    if (strncmp(c->server, "https://", 8) != 0 && strncmp(c->server, "http://", 7) != 0)
        return pp_error_field(err, "server", "is not an http or https URL");
    size_t n = strlen(c->server);
    while (n > 0 && c->server[n - 1] == '/')
        c->server[--n] = '\0';
    config->server = PP_TAKE(c->server);
    return take_pem(&config->ca_pem, &config->ca_file, c->ca_data, c->ca_file, dir,
                    "certificate-authority-data", err);
}

static int take_user(pp_kube_config *config, user_entry *u, const char *dir, pp_error *err)
{
    if (u->exec)
        return pp_error_field(err, "exec",
                              "credential plugins are not supported: use a token or a certificate");
    if (u->auth_provider)
        return pp_error_field(err, "auth-provider",
                              "is not supported: use a token or a certificate");
    if (u->impersonate)
        return pp_error_field(err, "as", "impersonation is not supported");
    if (take_pem(&config->cert_pem, &config->cert_file, u->cert_data, u->cert_file, dir,
                 "client-certificate-data", err) < 0 ||
        take_pem(&config->key_pem, &config->key_file, u->key_data, u->key_file, dir,
                 "client-key-data", err) < 0)
        return -1;
    if (u->token_file) {
        config->token_file = resolve(u->token_file, dir);
        if (!config->token_file)
            return pp_error_nomem(err);
    }
    config->token = PP_TAKE(u->token);
    config->username = PP_TAKE(u->username);
    config->password = PP_TAKE(u->password);
    return 0;
}

static int parse_cluster(pp_kube_config *config, const json_t *root, const char *name,
                         const char *dir, pp_error *err)
{
    cluster_entry entry = {0};
    const json_t *object = find_entry(root, "clusters", "cluster", name, err);
    int rc = object ? pp_json_decode(object, cluster_fields, false, "cluster", &entry, err) : -1;
    if (rc == 0)
        rc = take_cluster(config, &entry, dir, err);
    pp_json_free_fields(cluster_fields, &entry);
    return rc;
}

static int parse_user(pp_kube_config *config, const json_t *root, const char *name, const char *dir,
                      pp_error *err)
{
    if (!name || !*name)
        return 0;
    user_entry entry = {0};
    const json_t *object = find_entry(root, "users", "user", name, err);
    int rc = object ? pp_json_decode(object, user_fields, false, "user", &entry, err) : -1;
    if (rc == 0)
        rc = take_user(config, &entry, dir, err);
    pp_json_free_fields(user_fields, &entry);
    return rc;
}

static int parse_root(pp_kube_config *config, const json_t *root, const char *dir, pp_error *err)
{
    const char *current = pp_json_get_string(root, "current-context", NULL);
    if (!current || !*current)
        return pp_error_field(err, "current-context", "is missing");
    const json_t *object = find_entry(root, "contexts", "context", current, err);
    if (!object)
        return -1;
    context_entry entry = {0};
    int rc = pp_json_decode(object, context_fields, false, "context", &entry, err);
    if (rc == 0)
        rc = parse_cluster(config, root, entry.cluster, dir, err);
    if (rc == 0)
        rc = parse_user(config, root, entry.user, dir, err);
    if (rc == 0) {
        config->ns = entry.ns && *entry.ns ? PP_TAKE(entry.ns) : strdup("default");
        if (!config->ns)
            rc = pp_error_nomem(err);
    }
    pp_json_free_fields(context_fields, &entry);
    return rc;
}

int pp_kube_config_parse(pp_kube_config *config, const char *text, size_t n, const char *dir,
                         pp_error *err)
{
    *config = (pp_kube_config){0};
    PP_CLEANUP_JSON json_t *root = pp_yaml_parse(text, n, err);
    if (!root)
        return -1;
    if (!json_is_object(root))
        return pp_error_set(err, PP_ERR_INVALID, "a kubeconfig is a map");
    int rc = parse_root(config, root, dir, err);
    if (rc < 0)
        pp_kube_config_done(config);
    return rc;
}

static int load_file(pp_kube_config *config, const char *path, pp_error *err)
{
    *config = (pp_kube_config){0};
    PP_CLEANUP_FREE char *text = pp_file_read(path, MAX_FILE, NULL, err);
    if (!text)
        return -1;
    const char *slash = strrchr(path, '/');
    PP_CLEANUP_FREE char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (!dir)
        return pp_error_nomem(err);
    if (pp_kube_config_parse(config, text, strlen(text), dir, err) < 0)
        return pp_error_prefix(err, "%s", path);
    return 0;
}

/* ---- in-cluster ---- */

static int fill_in_cluster(pp_kube_config *config, const char *dir, const char *host,
                           const char *port, pp_error *err)
{
    bool v6 = strchr(host, ':') != NULL;
    PP_CLEANUP_FREE char *ns_file = kube_format("%s/namespace", dir);
    config->server = kube_format("https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    config->token_file = kube_format("%s/token", dir);
    config->ca_file = kube_format("%s/ca.crt", dir);
    if (!ns_file || !config->server || !config->token_file || !config->ca_file)
        return pp_error_nomem(err);
    PP_CLEANUP_FREE char *token = pp_file_read(config->token_file, MAX_PEM, NULL, err);
    if (!token)
        return -1;
    config->ns = pp_file_read(ns_file, MAX_NAME, NULL, NULL);
    if (!config->ns)
        config->ns = strdup("default");
    if (!config->ns)
        return pp_error_nomem(err);
    (void)kube_trim(config->ns);
    return 0;
}

int pp_kube_config_in_cluster(pp_kube_config *config, const char *dir, pp_error *err)
{
    *config = (pp_kube_config){0};
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !*host || !port || !*port)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "not in a pod: KUBERNETES_SERVICE_HOST is not set");
    int rc = fill_in_cluster(config, dir ? dir : SERVICE_ACCOUNT, host, port, err);
    if (rc < 0)
        pp_kube_config_done(config);
    return rc;
}

int pp_kube_config_load(pp_kube_config *config, const char *path, pp_error *err)
{
    if (path && *path)
        return load_file(config, path, err);
    const char *env = getenv("KUBECONFIG");
    if (env && strchr(env, ':'))
        return pp_error_set(err, PP_ERR_INVALID,
                            "KUBECONFIG names several files; one is supported");
    if (env && *env)
        return load_file(config, env, err);
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return pp_kube_config_in_cluster(config, NULL, err);
    const char *home = getenv("HOME");
    PP_CLEANUP_FREE char *file = kube_format("%s/.kube/config", home ? home : "");
    if (!file)
        return pp_error_nomem(err);
    return load_file(config, file, err);
}
