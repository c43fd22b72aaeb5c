#include "cli/kubectl/options.h"

#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_CONTEXT = 1000,
    KEY_KUBECONFIG,
    KEY_AS,
    KEY_SYSTEM,
    KEY_ACCOUNT,
    KEY_TOKEN_FILE,
    TOKEN_MAX = 65536
};

static const struct argp_option known[] = {
    {"namespace", 'n', "NAMESPACE", 0, "Of the session (the context's)", 10},
    {"context", KEY_CONTEXT, "CONTEXT", 0, "As for kubectl", 10},
    {"kubeconfig", KEY_KUBECONFIG, "FILE", 0, "As for kubectl", 10},
    {"as", KEY_AS, "USER", 0, "As for kubectl", 10},
    {"system", KEY_SYSTEM, "NAMESPACE", 0, "The operator's namespace (where it is found)", 10},
    {"account", KEY_ACCOUNT, "NAME", 0,
     "Service account of the namespace whose token reads results (precisionprobe-reader)", 10},
    {"token-file", KEY_TOKEN_FILE, "FILE", 0,
     "A token for the API server that reads results; else that of PRECISIONPROBE_TOKEN, or the "
     "account's",
     10},
    {0}};

/* "--context=x": as kubectl takes it. */
static error_t pass_on(pp_kubectl_options *o, const char *option, const char *value)
{
    const size_t room = strlen(option) + strlen(value) + 2;
    char *text = malloc(room);
    if (!text || o->n_owned == sizeof o->owned / sizeof *o->owned ||
        o->kubectl.n_globals == sizeof o->kubectl.globals / sizeof *o->kubectl.globals) {
        free(text);
        return ENOMEM;
    }
    (void)snprintf(text, room, "%s=%s", option, value);
    o->owned[o->n_owned++] = text;
    o->kubectl.globals[o->kubectl.n_globals++] = text;
    return 0;
}

static error_t take(int key, char *text, struct argp_state *state)
{
    pp_kubectl_options *o = state->input;
    switch (key) {
    case 'n':
        o->kubectl.namespace = text;
        return 0;
    case KEY_CONTEXT:
        return pass_on(o, "--context", text);
    case KEY_KUBECONFIG:
        return pass_on(o, "--kubeconfig", text);
    case KEY_AS:
        return pass_on(o, "--as", text);
    case KEY_SYSTEM:
        o->system = text;
        return 0;
    case KEY_ACCOUNT:
        o->account = text;
        return 0;
    case KEY_TOKEN_FILE:
        o->token_file = text;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp *pp_kubectl_options_argp(void)
{
    static const struct argp argp = {known, take, NULL, NULL, NULL, NULL, NULL};
    return &argp;
}

/* The Service that has the operator's plain port, too: of several replicas there are two. */
static int take_service(pp_kubectl_options *o, const json_t *services, pp_error *err)
{
    size_t i, k;
    json_t *service, *port;
    json_array_foreach(json_object_get(services, "items"), i, service)
    {
        const json_t *metadata = json_object_get(service, "metadata");
        json_array_foreach((json_t *)(uintptr_t)pp_json_get(service, "spec", "ports", NULL), k,
                           port)
        {
            if (o->found_service || strcmp(pp_results_text(port, "name"), "metrics") != 0)
                continue;
            o->found_service = strdup(pp_results_text(metadata, "name"));
            o->found_system = strdup(pp_results_text(metadata, "namespace"));
            if (!o->found_service || !o->found_system)
                return pp_error_nomem(err);
        }
    }
    return 0;
}

/* Who may not look for it in all namespaces has it where the chart's notes put it. */
static int find_operator(pp_kubectl_options *o, pp_error *err)
{
    static const char ours[] = "app.kubernetes.io/name=precisionprobe";
    const char *const everywhere[] = {"get", "services", "-A", "-l", ours, "-o", "json", NULL};
    const char *const there[] = {"get", "services", "-n", o->system ? o->system : "", "-l", ours,
                                 "-o",  "json",     NULL};
    PP_CLEANUP_JSON json_t *services = NULL;
    pp_error ignored = {0};
    if (pp_kubectl_json(&o->kubectl, o->system ? there : everywhere, NULL, &services, &ignored) <
            0 &&
        ignored.code == PP_ERR_NOT_FOUND)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "%s", ignored.message);
    if (services && take_service(o, services, err) < 0)
        return -1;
    o->where.system = o->system ? o->system : o->found_system ? o->found_system : "precisionprobe";
    o->where.service = o->found_service ? o->found_service : "precisionprobe";
    return 0;
}

static int read_token(pp_kubectl_options *o, pp_error *err)
{
    const char *told = getenv("PRECISIONPROBE_TOKEN");
    size_t length = 0;
    if (o->token_file)
        o->token = pp_file_read(o->token_file, TOKEN_MAX, &length, err);
    else if (told && *told)
        o->token = strdup(told);
    if (o->token_file && !o->token)
        return -1;
    if (o->token)
        o->token[strcspn(o->token, "\r\n")] = '\0';
    return 0;
}

int pp_kubectl_options_find(pp_kubectl_options *o, pp_error *err)
{
    if (pp_kubectl_namespace(&o->kubectl, &o->namespace, err) < 0 || find_operator(o, err) < 0 ||
        read_token(o, err) < 0)
        return -1;
    o->where.namespace = o->namespace;
    o->where.account = o->account ? o->account : "precisionprobe-reader";
    o->where.token = o->token;
    return 0;
}

void pp_kubectl_options_done(pp_kubectl_options *o)
{
    for (size_t i = 0; i < o->n_owned; i++)
        free(o->owned[i]);
    free(o->namespace);
    free(o->token);
    free(o->found_system);
    free(o->found_service);
}
