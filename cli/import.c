#include "cli/import.h"

#include "cli/recording/recording.h"
#include "cli/recording/solve.h"
#include "cli/results/results.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"
#include "estimate/pattern/usage.h"
#include "estimate/times/ranks.h"
#include "operator/store/store.h"

#include <argp.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ns: for a server that is busy; nobody else waits. */
#define PATIENCE INT64_C(60000000000)
#define LOCK_PATIENCE INT64_C(120000000000)

static const struct argp_option known[] = {
    {"database", 'd', "URL", 0,
     "Postgres connection string or URI (PGHOST, PGDATABASE and the like)", 0},
    {"name", 'n', "NAME", 0, "Call session and workload so (the folder's name)", 0},
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    pp_import_options *out = state->input;
    switch (key) {
    case 'd':
        out->database = text;
        return 0;
    case 'n':
        out->name = text;
        return 0;
    case ARGP_KEY_ARG:
        if (out->folder)
            return ARGP_ERR_UNKNOWN;
        out->folder = text;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which folder?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp_option *pp_import_options_known(void)
{
    return known;
}

int pp_import_options_parse(int argc, char **argv, pp_import_options *ret, pp_error *err)
{
    static const struct argp argp = {
        known,
        parse,
        "FOLDER",
        "Writes the results of precisionprobe run into the Postgres database that the operator "
        "uses, as a session of its own. Importing a folder twice changes nothing.",
        NULL,
        NULL,
        NULL};
    *ret = (pp_import_options){.database = ""};
    return argp_parse(&argp, argc, argv, 0, NULL, ret) == 0
               ? 0
               : pp_error_set(err, PP_ERR_INVALID, "wrong arguments");
}

/* ---- results.json ---- */

typedef struct facts {
    int64_t version;
    int64_t started;
    int64_t finished;
    char *method;
    pp_strings metrics;
    pp_strings command;
    json_t *gpus;
} facts;

#define AT(member) offsetof(facts, member)

static const pp_json_field fields[] = {
    {"version", PP_JSON_INT, AT(version), true, 0},
    {"started", PP_JSON_TIME, AT(started), true, 0},
    {"finished", PP_JSON_TIME, AT(finished), true, 0},
    {"method", PP_JSON_STRING, AT(method), true, 16},
    {"metrics", PP_JSON_STRINGS, AT(metrics), true, PP_METRIC_COUNT},
    {"command", PP_JSON_STRINGS, AT(command), true, 100000},
    {"gpus", PP_JSON_VALUE, AT(gpus), true, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static int solving_of(const facts *f, pp_estimates_options *ret, pp_error *err)
{
    if (f->version != 1)
        return pp_error_field(err, "version", "must be 1");
    if (f->started < PP_WIRE_TIME_MIN || f->started > PP_WIRE_TIME_MAX)
        return pp_error_field(err, "started", "is not within the years 2000 to 2099");
    if (f->finished < f->started || f->finished > PP_WIRE_TIME_MAX)
        return pp_error_field(err, "finished", "is before started, or after the year 2099");
    *ret = pp_solve_defaults();
    if (pp_method_parse(f->method, "method", &ret->method, err) < 0)
        return -1;
    for (size_t i = 0; i < f->metrics.count; i++) {
        pp_metric metric;
        if (pp_metric_from_name(f->metrics.items[i], &metric) < 0)
            return pp_error_field(err, "metrics", "entry %zu is no metric", i);
        ret->metrics |= 1U << metric;
    }
    return 0;
}

/* ---- what is written ---- */

typedef struct import {
    const pp_import_options *options;
    facts facts;
    char name[NAME_MAX + 1];
    char uid[37];
    pp_estimates_options solving;
    pp_activity_builder *activity;
    pp_ranks *ranks;
    pp_store_import *rows;
    pp_store *store;
    uv_loop_t loop;
    int64_t locked_ns; /* monotonic: since when it waits for a lock; 0: it does not */
    bool inserted;
    bool answered;
    pp_error *err; /* of the store's answer */
} import;

/* Whether paths of the HTTP API can have it, and lines of programs. */
static bool is_name(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < ' ' || *c == 0x7f || *c == '/')
            return false;
    }
    return *name && strlen(name) <= 253 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int set_name(import *m, pp_error *err)
{
    char path[PATH_MAX];
    const char *name = m->options->name;
    if (!name && !realpath(m->options->folder, path))
        return pp_error_errno(err, "%s", m->options->folder);
    if (!name)
        name = strrchr(path, '/') + 1;
    if (!is_name(name))
        return pp_error_field(err, "--name",
                              "must have 1 to 253 bytes, no slash and no control character");
    (void)snprintf(m->name, sizeof m->name, "%s", name);
    return 0;
}

static char *spec_of(const facts *f)
{
    json_t *command = json_array();
    for (size_t i = 0; i < f->command.count; i++)
        (void)json_array_append_new(command, json_string(f->command.items[i]));
    json_t *metrics = json_array();
    for (size_t i = 0; i < f->metrics.count; i++)
        (void)json_array_append_new(metrics, json_string(f->metrics.items[i]));
    PP_CLEANUP_JSON json_t *spec =
        json_pack("{s:o, s:s, s:o}", "command", command, "method", f->method, "metrics", metrics);
    return spec ? json_dumps(spec, JSON_COMPACT) : NULL;
}

static int begin_rows(import *m, pp_error *err)
{
    PP_CLEANUP_FREE char *spec = spec_of(&m->facts);
    if (!spec)
        return pp_error_field(err, "command", "cannot be written as JSON");
    const pp_store_session session = {.uid = m->uid,
                                      .ns = "local",
                                      .name = m->name,
                                      .spec = spec,
                                      .method = m->facts.method,
                                      .phase = "Succeeded",
                                      .created_ns = m->facts.started};
    const pp_store_target target = {.session_uid = m->uid,
                                    .pod_uid = m->uid,
                                    .ns = "local",
                                    .pod_name = m->name,
                                    .workload_kind = "Run",
                                    .workload_name = m->name,
                                    .cpu_request = (double)NAN};
    m->rows = pp_store_import_new(&session, &target, "nvml", err);
    return m->rows ? 0 : -1;
}

static int take_batch(void *user, const pp_wire_batch *batch, pp_error *err)
{
    import *m = user;
    pp_store_import_batch(m->rows, batch);
    return pp_activity_builder_add(m->activity, batch, err);
}

static int take_solution(void *user, const pp_estimates *solution, pp_error *err)
{
    const import *m = user;
    pp_usage *usage = NULL;
    const pp_usage_input in = {
        .activity = pp_activity_builder_get(m->activity), .estimates = solution, .ranks = m->ranks};
    int rc = pp_usage_find(&in, &usage, err);
    if (rc == 0)
        rc = pp_store_import_solution(m->rows, solution, usage, err);
    pp_usage_free(usage);
    return rc;
}

static int gather(import *m, pp_error *err)
{
    const char *folder = m->options->folder;
    PP_CLEANUP_JSON json_t *results = NULL;
    if (pp_results_read(folder, &results, err) < 0 ||
        pp_json_decode(results, fields, false, "", &m->facts, err) < 0 ||
        solving_of(&m->facts, &m->solving, err) < 0 || set_name(m, err) < 0 ||
        pp_recording_uid(folder, m->uid, err) < 0 || begin_rows(m, err) < 0)
        return -1;
    m->activity = pp_activity_builder_new();
    if (!m->activity)
        return pp_error_nomem(err);
    if (pp_recording_batches(folder, take_batch, m, err) < 0 ||
        pp_recording_samples(folder, m->activity, err) < 0)
        return -1;
    const pp_activity *activity = pp_activity_builder_get(m->activity);
    if (activity->n_steps == 0)
        return pp_error_field(err, "batches.jsonl", "holds no step: nothing was sampled");
    if (pp_store_import_samples(m->rows, activity, err) < 0)
        return -1;
    if (pp_ranks_compare(activity, &m->ranks, err) < 0 ||
        pp_solve(activity, &m->solving, take_solution, m, err) < 0)
        return -1;
    return pp_store_import_ranks(m->rows, m->ranks, err);
}

/* ---- the database ---- */

static void end(import *m, const pp_error *error)
{
    if (m->answered) /* the store was given up */
        return;
    m->answered = true;
    if (error)
        *m->err = *error;
    uv_stop(&m->loop);
}

static void on_patterns(void *user, const pp_error *error)
{
    end(user, error);
}

static void on_usages(void *user, const pp_workload_usages *usages, const pp_error *error)
{
    import *m = user;
    pp_patterns patterns = {0};
    pp_error why = {0};
    if (error || m->answered) {
        end(m, error);
        return;
    }
    if (pp_patterns_make(usages, pp_time_now(), &patterns, &why) < 0 ||
        pp_store_put_patterns(m->store, &patterns, on_patterns, m, &why) < 0)
        end(m, &why);
    pp_patterns_done(&patterns);
}

/* The run is one more session of its workload's pattern. */
static void on_imported(void *user, bool inserted, const pp_error *error)
{
    import *m = user;
    pp_error why = {0};
    m->inserted = inserted;
    if (error || !inserted || m->answered)
        end(m, error);
    else if (pp_store_load_usages(m->store, m->uid, on_usages, m, &why) < 0)
        end(m, &why);
}

/* Whether who holds what a migration has to lock is waited for a little longer. */
static bool waits_for_lock(import *m)
{
    const int64_t now = pp_time_monotonic();
    if (!m->store || !pp_store_got_no_lock(m->store))
        return false;
    if (m->locked_ns == 0)
        m->locked_ns = now;
    return now - m->locked_ns < LOCK_PATIENCE;
}

/* A person waits: what the operator would try again is said at once, but for what passes. */
static void on_health(void *user, bool ready, const char *text)
{
    import *m = user;
    if (ready || m->answered || strcmp(text, "connecting") == 0 || waits_for_lock(m))
        return;
    m->answered = true;
    (void)pp_error_set(m->err, PP_ERR_UNAVAILABLE, "%s", text);
    uv_stop(&m->loop);
}

static int write_rows(import *m, pp_error *err)
{
    const pp_store_options options = {.conninfo = m->options->database,
                                      .connect_timeout_ns = PATIENCE,
                                      .on_health = on_health,
                                      .user = m};
    pp_error why = {0};
    m->err = &why;
    if (uv_loop_init(&m->loop) != 0)
        return pp_error_set(err, PP_ERR_INTERNAL, "no libuv loop");
    m->store = pp_store_new(&m->loop, &options, &why);
    if (m->store && pp_store_import_submit(m->store, PP_TAKE(m->rows), m->facts.finished,
                                           on_imported, m, &why) == 0)
        (void)uv_run(&m->loop, UV_RUN_DEFAULT);
    m->answered = true;
    pp_store_free(m->store);
    (void)uv_run(&m->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&m->loop);
    if (why.code == PP_OK)
        return 0;
    *err = why;
    return -1;
}

int pp_import(const pp_import_options *options, bool *ret_inserted, char ret_uid[37], pp_error *err)
{
import m = {.options = options };
    int rc = gather(&m, err) < 0 ? -1 : write_rows(&m, err);
    *ret_inserted = m.inserted;
    memcpy(ret_uid, m.uid, sizeof m.uid);
    pp_store_import_free(m.rows);
    pp_ranks_free(m.ranks);
    pp_activity_builder_free(m.activity);
    pp_json_free_fields(fields, &m.facts);
    return rc;
}
