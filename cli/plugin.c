#include "cli/plugin.h"

#include "cli/kubectl/doctor.h"
#include "cli/kubectl/facts.h"
#include "cli/kubectl/open.h"
#include "cli/kubectl/options.h"
#include "cli/kubectl/session_results.h"
#include "cli/kubectl/start.h"
#include "cli/kubectl/status.h"
#include "cli/report.h"
#include "cli/results/results.h"
#include "cli/terminal/names.h"
#include "cli/terminal/progress.h"
#include "cli/top.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEY_RESTART = 256,
    KEY_WAIT,
    KEY_METHOD,
    KEY_BUDGET,
    KEY_DEADLINE,
    KEY_NAME,
    KEY_SAVE,
    KEY_FROM,
    KEY_NO_BROWSER,
    KEY_DRY_RUN,
    FACTS_MAX = 64 << 20
};

/* What a verb was given beside the options of all. */
typedef struct request {
    pp_kubectl_options common;
    const char *words[2];
    int n_words, most_words;
    pp_start_request start;
    bool restart, wait, no_browser, dry_run;
    const char *save, *from;
    bool lacks_token; /* what makes it fail */
} request;

static const struct argp_option start_options[] = {
    {"duration", 'd', "TIME", 0, "How long to sample, e.g. 2m (120s)", 0},
    {"selector", 'l', "LABELS", 0, "NAME=VALUE,...: pods by their labels", 0},
    {"name", KEY_NAME, "NAME", 0, "What the session is called (made from what is profiled)", 0},
    {"method", KEY_METHOD, "METHOD", 0, "Auto, Regression, Sampling, Replay or Job (Auto)", 0},
    {"budget", KEY_BUDGET, "PERCENT", 0, "How much slower the training may become (1)", 0},
    {"deadline", KEY_DEADLINE, "TIME", 0, "When to give up or to end (24h)", 0},
    {"dry-run", KEY_DRY_RUN, NULL, 0, "Print what would be created, and create nothing", 0},
    {"restart", KEY_RESTART, NULL, 0, "Make pods anew that run without the hook", 0},
    {"wait", KEY_WAIT, NULL, 0, "Wait until the session is over; the exit status says how", 0},
    {0}};

static const struct argp_option doctor_options[] = {
    {"save", KEY_SAVE, "FILE", 0, "Write what was looked at there, for somebody else to read", 0},
    {"from", KEY_FROM, "FILE", 0, "Look at what --save has written instead of a cluster", 0},
    {0}};

static const struct argp_option open_options[] = {
    {"no-browser", KEY_NO_BROWSER, NULL, 0, "Print the page's address only", 0}, {0}};

static error_t take(int key, char *text, struct argp_state *state)
{
    request *r = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &r->common;
        return 0;
    case ARGP_KEY_ARG:
        if (r->n_words == r->most_words)
            return ARGP_ERR_UNKNOWN;
        r->words[r->n_words++] = text;
        return 0;
    case 'd':
        r->start.duration = text;
        return 0;
    case 'l':
        r->start.labels = text;
        return 0;
    case KEY_NAME:
        r->start.name = text;
        return 0;
    case KEY_METHOD:
        r->start.method = text;
        return 0;
    case KEY_BUDGET:
        r->start.budget = text;
        return 0;
    case KEY_DEADLINE:
        r->start.deadline = text;
        return 0;
    case KEY_RESTART:
        r->restart = true;
        return 0;
    case KEY_DRY_RUN:
        r->dry_run = true;
        return 0;
    case KEY_WAIT:
        r->wait = true;
        return 0;
    case KEY_SAVE:
        r->save = text;
        return 0;
    case KEY_FROM:
        r->from = text;
        return 0;
    case KEY_NO_BROWSER:
        r->no_browser = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int parse(int argc, char **argv, const struct argp_option *options, const char *words,
                 const char *what, request *r, pp_error *err)
{
    const struct argp_child children[] = {{pp_kubectl_options_argp(), 0, NULL, 0}, {0}};
    const struct argp argp = {options, take, words, what, children, NULL, NULL};
    if (argp_parse(&argp, argc, argv, 0, NULL, r) != 0)
        return err->code != PP_OK ? -1 : pp_error_set(err, PP_ERR_INVALID, "wrong arguments");
    return r->from ? 0 : pp_kubectl_options_find(&r->common, err);
}

/* All that a cluster says may have been written by anybody. */
static int print(void (*write)(FILE *, const json_t *), const json_t *of, pp_error *err)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    if (!to)
        return pp_error_nomem(err);
    write(to, of);
    const int rc = fclose(to) == 0 ? 0 : pp_error_nomem(err);
    if (rc == 0)
        pp_lines_print(stdout, text);
    free(text);
    return rc;
}

static int get(const request *r, const char *resource, const char *name, json_t **ret,
               pp_error *err)
{
    const char *const arguments[] = {"-n", r->common.namespace, "get", resource, "-o", "json", name,
                                     NULL};
    return pp_kubectl_json(&r->common.kubectl, arguments, NULL, ret, err);
}

/* ---- status ---- */

static int status(int argc, char **argv, request *r, pp_error *err)
{
    r->most_words = 1;
    PP_CLEANUP_JSON json_t *told = NULL;
    if (parse(argc, argv, NULL, "[SESSION]",
              "Says how a session is, or lists all of the namespace.", r, err) < 0 ||
        get(r, "profilesessions.precisionprobe.io", r->words[0], &told, err) < 0)
        return -1;
    return print(r->words[0] ? pp_status_print : pp_status_print_list, told, err);
}

/* Whether no later answer will be another: the session is gone, or may not be looked at. */
static bool is_lasting(const pp_error *err)
{
    return err->code == PP_ERR_NOT_FOUND || err->code == PP_ERR_DENIED ||
           err->code == PP_ERR_UNAUTHORIZED || err->code == PP_ERR_NOMEM;
}

/* One that fails while the API server is away is told once for as long as it is. */
static int look_again(const request *r, const char *name, bool *away, json_t **ret, pp_error *err)
{
    pp_error why = {0};
    const char *const arguments[] = {
        "-n", r->common.namespace,     "get", "profilesessions.precisionprobe.io", "-o", "json",
        name, "--request-timeout=20s", NULL};
    const bool failed = pp_kubectl_json(&r->common.kubectl, arguments, NULL, ret, &why) < 0;
    if (failed && is_lasting(&why))
        return pp_error_set(err, why.code, "waiting for session %s: %s", name, why.message);
    if (failed && !*away) {
        pp_text_tame(why.message);
        pp_progress_clear();
        (void)fprintf(stderr, "session %s cannot be looked at, and is waited for: %s\n", name,
                      why.message);
    }
    *away = failed;
    return 0;
}

/* Until it is over; a line of how far it is on a terminal. */
static int wait_for(const request *r, const char *name, pp_error *err)
{
    for (bool away = false;; (void)sleep(2)) {
        PP_CLEANUP_JSON json_t *session = NULL;
        bool succeeded = false;
        if (look_again(r, name, &away, &session, err) < 0)
            return -1;
        if (!session)
            continue;
        const bool over = pp_status_is_over(session, &succeeded);
        pp_progress_show("%s: %s", name, pp_status_line(session));
        if (over)
            pp_progress_clear();
        if (over)
            return print(pp_status_print, session, err) < 0 ? -1
                   : succeeded                              ? EXIT_SUCCESS
                                                            : EXIT_FAILURE;
    }
}

/* ---- start ---- */

static int get_owner(const request *r, json_t **ret, pp_error *err)
{
    const char *const arguments[] = {"-n",   r->common.namespace, "get", r->words[0], "-o",
                                     "json", r->words[1],         NULL};
    return pp_kubectl_json(&r->common.kubectl, arguments, NULL, ret, err);
}

static int list_pods(const request *r, const json_t *session, json_t **ret, pp_error *err)
{
    PP_CLEANUP_FREE char *selector = pp_start_selector_text(session);
    if (!selector)
        return pp_error_nomem(err);
    const char *const list[] = {
        "-n", r->common.namespace, "get", "pods", "-l", selector, "-o", "json", NULL};
    return pp_kubectl_json(&r->common.kubectl, list, NULL, ret, err);
}

/* Pods that run without the hook stay without: they are made anew, or somebody is told how. The
 * session is there already, by this name. */
static int look_after_pods(const request *r, const json_t *session, const char *name, pp_error *err)
{
    PP_CLEANUP_JSON json_t *pods = NULL;
    pp_error why = {0};
    if (list_pods(r, session, &pods, &why) < 0) {
        pp_text_tame(why.message);
        if (r->restart)
            return pp_error_set(err, why.code,
                                "session %s is created, and its pods are not made anew: %s", name,
                                why.message);
        (void)fprintf(stderr,
                      "session %s is created; whether its pods have the hook is not known: %s\n",
                      name, why.message);
        return 0;
    }
    const size_t n = pp_start_count_without_hook(pods);
    const char *kind = r->start.owner ? pp_results_text(r->start.owner, "kind") : "";
    const bool rolls = strcmp(kind, "Deployment") == 0 || strcmp(kind, "StatefulSet") == 0 ||
                       strcmp(kind, "DaemonSet") == 0;
    if (n > 0 && r->restart && rolls) {
        const char *const again[] = {"-n",        r->common.namespace, "rollout", "restart",
                                     r->words[0], r->words[1],         NULL};
        return pp_kubectl_pass(&r->common.kubectl, again, err) == 0
                   ? 0
                   : pp_error_set(err, PP_ERR_IO,
                                  "session %s is created, and kubectl rollout restart failed",
                                  name);
    }
    if (n > 0)
        (void)fprintf(stderr,
                      "%zu pod%s without the hook run%s already and will not be profiled: %s\n", n,
                      n == 1 ? "" : "s", n == 1 ? "s" : "",
                      rolls ? "kubectl rollout restart makes them anew (or start --restart)"
                            : "delete the Job or pods, and apply them again");
    return 0;
}

static int create(const request *r, const json_t *session, json_t **ret, pp_error *err)
{
    static const char *const field = "name";
    const char *const arguments[] = {"-n", r->common.namespace, "create", "-f", "-", "-o", "json",
                                     NULL};
    PP_CLEANUP_FREE char *text = json_dumps(session, JSON_COMPACT);
    if (!text)
        return pp_error_nomem(err);
    if (pp_kubectl_json(&r->common.kubectl, arguments, text, ret, err) < 0)
        return -1;
    (void)printf("%s\n", pp_results_text(json_object_get(*ret, "metadata"), field));
    return fflush(stdout) == 0 ? 0 : pp_error_errno(err, "writing");
}

static int start(int argc, char **argv, request *r, pp_error *err)
{
    r->most_words = 2;
    PP_CLEANUP_JSON json_t *owner = NULL, *session = NULL, *created = NULL;
    if (parse(
            argc, argv, start_options, "[KIND/NAME | KIND NAME]",
            "Profiles a Deployment, a Job, another owner of pods, or pods by their labels: creates "
            "a ProfileSession and prints its name.",
            r, err) < 0)
        return -1;
    if ((r->n_words == 0) == (r->start.labels == NULL))
        return pp_error_set(err, PP_ERR_INVALID,
                            "what shall be profiled? deployment/NAME, job/NAME, or --selector");
    if (r->n_words > 0 && get_owner(r, &owner, err) < 0)
        return -1;
    r->start.owner = owner;
    if (pp_start_session(&r->start, &session, err) < 0)
        return -1;
    if (r->dry_run)
        return json_dumpf(session, stdout, JSON_INDENT(2)) == 0 && printf("\n") > 0
                   ? 0
                   : pp_error_errno(err, "writing");
    if (create(r, session, &created, err) < 0)
        return -1;
    const char *name = pp_results_text(json_object_get(created, "metadata"), "name");
    if (look_after_pods(r, session, name, err) < 0)
        return -1;
    return r->wait ? wait_for(r, name, err) : 0;
}

/* ---- pattern ---- */

static void print_patterns(FILE *to, const json_t *patterns)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(patterns, "items"), i, one)
    {
        (void)fputs(i ? "\n" : "", to);
        pp_status_print_pattern(to, one);
    }
}

static int pattern(int argc, char **argv, request *r, pp_error *err)
{
    r->most_words = 1;
    PP_CLEANUP_JSON json_t *told = NULL;
    if (parse(argc, argv, NULL, "[PATTERN]",
              "Says how a workload uses its GPUs and what bounds it: of one ConsumptionPattern, or "
              "of "
              "all of the namespace.",
              r, err) < 0 ||
        get(r, "consumptionpatterns.precisionprobe.io", r->words[0], &told, err) < 0)
        return -1;
    return print(r->words[0] ? pp_status_print_pattern : print_patterns, told, err);
}

/* ---- doctor ---- */

static int read_facts(const char *file, json_t **ret, pp_error *err)
{
    size_t length = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(file, FACTS_MAX, &length, err);
    if (!text)
        return -1;
    *ret = pp_json_parse(text, length, NULL);
    if (pp_facts_is(*ret))
        return 0;
    return pp_error_set(err, PP_ERR_INVALID,
                        "%s is no file that doctor --save of this release has written", file);
}

static int diagnose(const request *r, const json_t *facts, pp_error *err)
{
    PP_CLEANUP_JSON json_t *findings = pp_doctor_findings(facts, r->words[0]);
    char *text = NULL;
    size_t length = 0;
    FILE *to = findings ? open_memstream(&text, &length) : NULL;
    if (!to)
        return pp_error_nomem(err);
    pp_doctor_print(to, findings, facts);
    if (fclose(to) != 0)
        return pp_error_nomem(err);
    pp_lines_print(stdout, text);
    free(text);
    return pp_doctor_is_well(findings) ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int doctor(int argc, char **argv, request *r, pp_error *err)
{
    r->most_words = 1;
    PP_CLEANUP_JSON json_t *facts = NULL;
    if (parse(
            argc, argv, doctor_options, "[SESSION]",
            "Says what is missing for a session to tell what it should: each with its evidence and "
            "what to do. The exit status is 1 where anything is.",
            r, err) < 0)
        return -1;
    if (!r->from)
        pp_progress_show("looking at the cluster");
    if ((r->from ? read_facts(r->from, &facts, err)
                 : pp_facts_gather(&r->common.kubectl, &r->common.where, &facts, err)) < 0)
        return -1;
    pp_progress_clear();
    if (r->save && json_dump_file(facts, r->save, JSON_INDENT(1)) < 0)
        return pp_error_errno(err, "%s", r->save);
    return diagnose(r, facts, err);
}

/* ---- open ---- */

static int open_page(int argc, char **argv, request *r, pp_error *err)
{
    r->most_words = 1;
    if (parse(argc, argv, open_options, "[SESSION]",
              "Opens the page of the namespace's sessions, or of one, for as long as it runs.", r,
              err) < 0)
        return -1;
    return pp_open_page(&r->common.kubectl, &r->common.where, r->words[0], !r->no_browser, err);
}

/* ---- results ---- */

typedef struct reading {
    request *request;
    pp_session_api *api;
    const char *session; /* of top */
} reading;

/* A name without a slash, that is no file here, is a session's. */
static int fetch(void *user, const char *name, int depth, json_t **ret, pp_error *err)
{
    reading *of = user;
    request *r = of->request;
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return 1;
    if (!of->api && (pp_kubectl_options_find(&r->common, err) < 0 ||
                     pp_session_api_open(&r->common.kubectl, &r->common.where, &of->api, err) < 0))
        return -1;
    return pp_session_results(of->api, r->common.namespace, name, depth, ret, err);
}

static int report(int argc, char **argv, request *r, const char *parquet, pp_error *err)
{
    const struct argp_child children[] = {{pp_kubectl_options_argp(), 0, NULL, 0}, {0}};
    reading of = {.request = r};
    pp_report_options options;
    int rc = pp_report_options_parse(argc, argv, children, &r->common, &options, err);
    options.fetch = fetch;
    options.user = &of;
    if (rc == 0)
        rc = pp_report(&options, parquet, err);
    r->lacks_token = rc < 0 && err->code == PP_ERR_UNAUTHORIZED;
    pp_report_options_done(&options);
    pp_session_api_close(of.api);
    return rc;
}

static int read_again(void *user, json_t **ret, pp_error *err)
{
    reading *of = user;
    return pp_session_results(of->api, of->request->common.namespace, of->session, 0, ret, err);
}

static int top(int argc, char **argv, request *r, pp_error *err)
{
    const struct argp_child children[] = {{pp_kubectl_options_argp(), 0, NULL, 0}, {0}};
    pp_top_options options;
    reading of = {.request = r};
    int rc = pp_top_options_parse(argc, argv, children, &r->common, &options, err);
    of.session = options.what;
    if (rc == 0)
        rc = pp_kubectl_options_find(&r->common, err);
    if (rc == 0)
        rc = pp_session_api_open(&r->common.kubectl, &r->common.where, &of.api, err);
    if (rc == 0)
        rc = pp_top(&options, read_again, &of, err);
    r->lacks_token = rc < 0 && err->code == PP_ERR_UNAUTHORIZED;
    pp_session_api_close(of.api);
    return rc;
}

/* ---- verbs ---- */

const struct argp_option *pp_plugin_options_known(const char *verb)
{
    return strcmp(verb, "start") == 0    ? start_options
           : strcmp(verb, "doctor") == 0 ? doctor_options
           : strcmp(verb, "open") == 0   ? open_options
                                         : NULL;
}

/* Quietly: somebody is typing. */
static void list_names(FILE *to, const char *resource)
{
    const pp_kubectl kubectl = {0};
    const char *const list[] = {"get", resource, "-o", "name", "--request-timeout=3s", NULL};
    pp_kubectl_answer answer;
    pp_error ignored = {0};
    if (pp_kubectl_run(&kubectl, list, NULL, &answer, &ignored) < 0)
        return;
    for (char *at = answer.out, *end; answer.status == 0 && (end = strchr(at, '\n'));
         at = end + 1) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *name = strchr(resource, ',') || !slash ? at : slash + 1;
        (void)fprintf(to, "%.*s\n", (int)(end - name), name);
    }
    pp_kubectl_answer_done(&answer);
}

void pp_plugin_list_sessions(FILE *to)
{
    list_names(to, "profilesessions.precisionprobe.io");
}

void pp_plugin_list_patterns(FILE *to)
{
    list_names(to, "consumptionpatterns.precisionprobe.io");
}

void pp_plugin_list_owners(FILE *to)
{
    list_names(to, "deployments,statefulsets,jobs");
}

static int help(FILE *to, int status)
{
    (void)fputs("usage: kubectl precisionprobe start [OPTION...] [KIND/NAME]\n"
                "       kubectl precisionprobe status [OPTION...] [SESSION]\n"
                "       kubectl precisionprobe report [OPTION...] SESSION...\n"
                "       kubectl precisionprobe top [OPTION...] SESSION\n"
                "       kubectl precisionprobe pattern [OPTION...] [PATTERN]\n"
                "       kubectl precisionprobe open [OPTION...] [SESSION]\n"
                "       kubectl precisionprobe doctor [OPTION...] [SESSION]\n"
                "Each has a help of its own, with its options: start --help, ...\n",
                to);
    return status;
}

static int call(const char *verb, int argc, char **argv, request *r, const char *parquet,
                pp_error *err)
{
    static const struct {
        const char *name;
        int (*call)(int argc, char **argv, request *r, pp_error *err);
    } verbs[] = {{"start", start},    {"status", status}, {"top", top},
                 {"open", open_page}, {"doctor", doctor}, {"pattern", pattern}};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(verb, verbs[i].name) == 0)
            return verbs[i].call(argc, argv, r, err);
    if (strcmp(verb, "report") == 0)
        return report(argc, argv, r, parquet, err);
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "help") == 0)
        return help(stdout, EXIT_SUCCESS);
    (void)fprintf(stderr, "kubectl precisionprobe: unknown command %s\n", verb);
    return help(stderr, EXIT_FAILURE);
}

int pp_plugin(int argc, char **argv, const char *parquet, char **ret_advice, pp_error *err)
{
    request r = {0};
    char name[64];
    if (argc < 1)
        return help(stderr, EXIT_FAILURE);
    const char *verb = argv[0];
    (void)snprintf(name, sizeof name, "kubectl precisionprobe %.30s", verb);
    argv[0] = name;
    const int rc = call(verb, argc, argv, &r, parquet, err);
    if (r.lacks_token)
        *ret_advice = pp_session_api_advice(&r.common.where);
    pp_kubectl_options_done(&r.common);
    return rc;
}
