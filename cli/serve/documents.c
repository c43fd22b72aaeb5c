#include "cli/serve/documents.h"

#include "cli/results/results.h"
#include "cli/serve/document_rows.h"
#include "cli/serve/document_timeline.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct one {
    const pp_training *training;
    const char *folder;
    char uid[24];
} one;

static one number(const pp_documents *all, size_t i)
{
    one o = {all->trainings + i, all->folders[i], ""};
    (void)snprintf(o.uid, sizeof o.uid, "run-%zu", i + 1);
    return o;
}

static bool has_batches(const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%.4000s/batches.jsonl", folder);
    return access(path, R_OK) == 0;
}

/* ---- sessions ---- */

/* As a session on a cluster that no step came of. */
static const char no_step[] = "NoStepSampled";

static json_t *head(const one *o)
{
    const bool failed = pp_results_unsampled(o->training->results) != NULL;
    return json_pack("{s:s, s:s, s:s, s:s}", "namespace", "local", "session", o->training->name,
                     "session_uid", o->uid, "session_phase", failed ? "Failed" : "Succeeded");
}

static const json_t *moment(const one *o, const char *key)
{
    return json_object_get(o->training->results, key);
}

/* Of all GPUs the first, or the last. */
static json_t *edge_of_steps(const one *o, const char *key, bool first)
{
    size_t i;
    json_t *gpu;
    json_int_t found = 0;
    char text[64];
    json_array_foreach(json_object_get(o->training->results, "gpus"), i, gpu)
    {
        const json_int_t ns = json_integer_value(json_object_get(gpu, key));
        if (ns > 0 && (found == 0 || (first ? ns < found : ns > found)))
            found = ns;
    }
    if (found == 0)
        return json_null();
    pp_time_format(found, 6, text, sizeof text);
    return json_string(text);
}

static json_t *session_head(const one *o)
{
    json_t *made = head(o);
    static const char *const columns[][2] = {
        {"method", "method"}, {"created_at", "started"}, {"finished_at", "finished"}};
    for (size_t i = 0; made && i < sizeof columns / sizeof *columns; i++) {
        const json_t *told = moment(o, columns[i][1]);
        if (json_object_set_new(made, columns[i][0],
                                json_is_string(told) ? json_deep_copy(told) : json_null()) < 0)
            return NULL;
    }
    if (made && pp_results_unsampled(o->training->results))
        (void)json_object_set_new(made, "reason", json_string(no_step));
    if (made &&
        (json_object_set_new(made, "first_step", edge_of_steps(o, "firstStepNs", true)) < 0 ||
         json_object_set_new(made, "last_step", edge_of_steps(o, "lastStepNs", false)) < 0)) {
        json_decref(made);
        return NULL;
    }
    return made;
}

/* Why it failed; null where it did not. */
static json_t *conditions_of(const one *o)
{
    const char *why = pp_results_unsampled(o->training->results);
    const json_t *finished = moment(o, "finished");
    PP_CLEANUP_JSON json_t *message =
        why ? json_sprintf("no step was sampled: %s", why) : json_null();
    if (!why || !message)
        return json_null();
    return json_pack("[{s:s, s:s, s:s, s:O, s:O?}]", "type", "Failed", "status", "True", "reason",
                     no_step, "message", message, "last_transition_time",
                     json_is_string(finished) ? finished : NULL);
}

static json_t *list_sessions(const pp_documents *all)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < all->n; i++) {
        const one o = number(all, i);
        json_t *row = session_head(&o);
        json_t *workloads =
            json_pack("[{s:s, s:s, s:i}]", "kind", "Run", "name", o.training->name, "pods", 1);
        if (!row || json_object_set_new(row, "workloads", workloads) < 0 ||
            json_object_set_new(row, "pods", json_integer(1)) < 0 ||
            json_array_append_new(items, row) < 0) {
            json_decref(items);
            return NULL;
        }
    }
    return json_pack("{s:o}", "items", items);
}

static json_t *session(const one *o, pp_error *err)
{
    json_t *processes =
        has_batches(o->folder) ? pp_document_processes(o->folder, err) : json_array();
    json_t *made = processes ? session_head(o) : NULL;
    if (!made) {
        json_decref(processes);
        return NULL;
    }
    json_t *pods = json_pack("[{s:s, s:s, s:s, s:s, s:o}]", "workload_kind", "Run", "workload_name",
                             o->training->name, "pod_name", o->training->name, "pod_uid", o->uid,
                             "processes", processes);
    (void)json_object_set_new(made, "pods", pods);
    (void)json_object_set_new(made, "conditions", conditions_of(o));
    return made;
}

/* ---- below a session ---- */

/* What follows is asked for by how many steps are before it. */
static json_t *timeline(const one *o, const pp_document_query *query, pp_error *err)
{
    pp_timeline_page page = {query->process, query->from, query->limit, false};
    json_t *steps =
        has_batches(o->folder) ? pp_document_timeline(o->folder, &page, err) : json_array();
    json_t *made = steps ? head(o) : NULL;
    if (!made) {
        json_decref(steps);
        return NULL;
    }
    (void)json_object_set_new(made, "process",
                              page.process < 0 ? json_null() : json_integer(page.process));
    if (page.more)
        (void)json_object_set_new(made, "continue",
                                  json_sprintf("%zu", page.from + json_array_size(steps)));
    (void)json_object_set_new(made, "items", steps);
    return made;
}

static json_t *rows(const one *o, const char *view, pp_error *err)
{
    json_t *items = pp_document_rows(o->training, view, o->uid, err);
    json_t *made = items ? head(o) : NULL;
    if (made)
        (void)json_object_set_new(made, "items", items);
    else
        json_decref(items);
    return made;
}

/* The run of a UID, or, where none is given, of a name. */
static bool find(const pp_documents *all, const char *name, size_t length, const char *uid,
                 one *ret)
{
    for (size_t i = 0; i < all->n; i++) {
        const one o = number(all, i);
        const bool same =
            strlen(o.training->name) == length && memcmp(o.training->name, name, length) == 0;
        *ret = o;
        if (same && (!*uid || strcmp(uid, o.uid) == 0))
            return true;
    }
    return false;
}

/* `name` or `name/below`. */
static json_t *of_session(const pp_documents *all, const char *path, const pp_document_query *query,
                          pp_error *err)
{
    one o;
    const size_t n = strcspn(path, "/");
    const char *below = path[n] ? path + n + 1 : "";
    if (!find(all, path, n, query->uid, &o))
        return NULL;
    if (!*below)
        return session(&o, err);
    return strcmp(below, "timeline") == 0 ? timeline(&o, query, err) : rows(&o, below, err);
}

/* ---- patterns ---- */

static json_t *list_patterns(const pp_documents *all)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < all->n; i++) {
        const one o = number(all, i);
        json_t *pattern = pp_document_pattern(o.training, o.uid);
        if (pattern)
            (void)json_array_append_new(items, pattern);
    }
    return json_pack("{s:o}", "items", items);
}

/* By its run's UID, as lists call it; or by its name, which several may have. */
static json_t *pattern(const pp_documents *all, const char *name)
{
    one o;
    for (size_t i = 0; i < all->n; i++) {
        o = number(all, i);
        if (strcmp(name, o.uid) == 0)
            return pp_document_pattern(o.training, o.uid);
    }
    return find(all, name, strlen(name), "", &o) ? pp_document_pattern(o.training, o.uid) : NULL;
}

/* Behind the prefix; NULL: it has another. */
static const char *behind(const char *path, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(path, prefix, n) == 0 ? path + n : NULL;
}

json_t *pp_document(const pp_documents *all, const char *path, const pp_document_query *query,
                    pp_error *err)
{
    const char *rest = behind(path, "namespaces/local/");
    if (strcmp(path, "sessions") == 0 || (rest && strcmp(rest, "sessions") == 0))
        return list_sessions(all);
    if (rest && strcmp(rest, "patterns") == 0)
        return list_patterns(all);
    if (rest && behind(rest, "patterns/"))
        return pattern(all, behind(rest, "patterns/"));
    return rest && behind(rest, "sessions/")
               ? of_session(all, behind(rest, "sessions/"), query, err)
               : NULL;
}
