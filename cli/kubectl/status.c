#include "cli/kubectl/status.h"

#include "cli/kubectl/remedies.h"
#include "cli/results/results.h"
#include "cli/tables/table_pattern.h"
#include "common/cleanup.h"

#include <string.h>

static const char *text(const json_t *object, const char *first, const char *second)
{
    const char *found = pp_json_get_string(object, first, second, NULL);
    return found ? found : "";
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

const char *pp_status_line(const json_t *session)
{
    static char line[200];
    const char *sampled = pp_json_get_string(session, "status", "progress", "sampled", NULL);
    (void)snprintf(line, sizeof line, "%s, %s pods, %s", or_dash(text(session, "status", "phase")),
                   or_dash(text(session, "status", "pods")), sampled ? sampled : "nothing sampled");
    return line;
}

static json_int_t number(const json_t *session, const char *group, const char *name)
{
    return json_integer_value(pp_json_get(session, "status", group, name, NULL));
}

void pp_status_print_list(FILE *to, const json_t *sessions)
{
    size_t i;
    json_t *one;
    (void)fprintf(to, "%-32s %-11s %-6s %-10s %s\n", "SESSION", "PHASE", "PODS", "SAMPLED",
                  "STEPS");
    json_array_foreach(json_object_get(sessions, "items"), i, one)
    {
        const char *sampled = pp_json_get_string(one, "status", "progress", "sampled", NULL);
        (void)fprintf(to, "%-32s %-11s %-6s %-10s %lld\n", text(one, "metadata", "name"),
                      or_dash(text(one, "status", "phase")), or_dash(text(one, "status", "pods")),
                      sampled ? sampled : "-", (long long)number(one, "counts", "steps"));
    }
}

const json_t *pp_status_condition(const json_t *session, const char *type)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(session, "status", "conditions", NULL), i,
                       one)
    {
        if (strcmp(pp_results_text(one, "type"), type) == 0)
            return one;
    }
    return NULL;
}

bool pp_status_is_over(const json_t *session, bool *ret_succeeded)
{
    *ret_succeeded =
        strcmp(pp_results_text(pp_status_condition(session, "Succeeded"), "status"), "True") == 0;
    return strcmp(pp_results_text(pp_status_condition(session, "Finished"), "status"), "True") == 0;
}

static void print_conditions(FILE *to, const json_t *session)
{
    static const char *const types[] = {"Accepted",  "Injected", "Collecting", "MetricsAvailable",
                                        "Explained", "Sampled",  "Replayed",   "ClockSkewed",
                                        "Stored",    "Finished"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const json_t *c = pp_status_condition(session, types[i]);
        if (c)
            (void)fprintf(to, "  %-17s %-8s %s: %s\n", types[i], pp_results_text(c, "status"),
                          pp_results_text(c, "reason"), pp_results_text(c, "message"));
    }
}

static void print_targets(FILE *to, const json_t *session)
{
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)pp_json_get(session, "status", "targets", NULL), i, one)
    {
        const char *reason = pp_results_text(one, "reason");
        (void)fprintf(to, "  pod %s on %s: %lld steps%s%s\n", pp_results_text(one, "pod"),
                      or_dash(pp_results_text(one, "node")),
                      (long long)json_integer_value(json_object_get(one, "steps")),
                      *reason ? ", " : "", reason);
    }
}

void pp_status_print(FILE *to, const json_t *session)
{
    const json_t *stalled = pp_status_condition(session, "Stalled");
    bool succeeded;
    (void)fprintf(to, "%s: %s, %lld steps, %lld layers\n", text(session, "metadata", "name"),
                  pp_status_line(session), (long long)number(session, "counts", "steps"),
                  (long long)number(session, "counts", "layers"));
    if (strcmp(pp_results_text(stalled, "status"), "True") == 0)
        (void)fprintf(to, "stalled: %s: %s\n  -> %s\n", pp_results_text(stalled, "reason"),
                      pp_results_text(stalled, "message"),
                      pp_remedy(pp_results_text(stalled, "reason")));
    print_conditions(to, session);
    print_targets(to, session);
    if (pp_status_is_over(session, &succeeded))
        (void)fprintf(to, "results: kubectl precisionprobe report %s\n",
                      text(session, "metadata", "name"));
}

static void print_figure(FILE *to, const char *name, const json_t *figure, double scale,
                         const char *unit)
{
    const json_t *error = json_object_get(figure, "standardError");
    if (!json_is_number(json_object_get(figure, "value")))
        return;
    (void)fprintf(to, "%s: %.2f", name,
                  scale * json_number_value(json_object_get(figure, "value")));
    if (json_is_number(error))
        (void)fprintf(to, " ± %.2f", scale * json_number_value(error));
    (void)fprintf(to, " %s\n", unit);
}

void pp_status_print_pattern(FILE *to, const json_t *pattern)
{
    json_t *status = json_object_get(pattern, "status");
    const json_t *step = json_object_get(status, "step");
    PP_CLEANUP_JSON json_t *results =
        json_pack("{s:O?, s:[{s:s}]}", "pattern", status, "gpus", "gpu", "GPU");
    (void)fprintf(to, "%s (%s %s), %lld sessions\n", text(pattern, "metadata", "name"),
                  or_dash(pp_results_text(pp_json_get(pattern, "spec", "workload", NULL), "kind")),
                  or_dash(pp_results_text(pp_json_get(pattern, "spec", "workload", NULL), "name")),
                  (long long)json_integer_value(json_object_get(status, "sessions")));
    print_figure(to, "step", json_object_get(step, "milliseconds"), 1, "ms");
    print_figure(to, "no kernel ran", json_object_get(step, "idleShare"), 100, "% of a step");
    if (results)
        pp_table_pattern_print(to, results);
}
