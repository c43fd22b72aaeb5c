#include "cli/run/run_pattern.h"

#include "controller/pattern_object.h"
#include "estimate/pattern/usage.h"

#include <stdlib.h>
#include <string.h>

/* Processes that name no GPU count where there is nothing else. */
static bool is_better(const pp_run_pattern *p, const char *gpu)
{
    return *gpu || p->usages.n == 0;
}

static void forget_those_of_no_gpu(pp_run_pattern *p)
{
    if (p->usages.n == 1 && !*p->usages.items[0].name)
        pp_workload_usages_done(&p->usages);
}

int pp_run_pattern_add(pp_run_pattern *p, const pp_activity *activity, const pp_estimates *solution,
                       const pp_ranks *ranks, pp_error *err)
{
    const pp_usage_input in = {.activity = activity, .estimates = solution, .ranks = ranks};
    if (!is_better(p, solution->gpu))
        return 0;
    forget_those_of_no_gpu(p);
    pp_workload_usage *items =
        realloc(p->usages.items, (p->usages.n + 1) * sizeof *p->usages.items);
    if (!items)
        return pp_error_nomem(err);
    p->usages.items = items;
    pp_workload_usage *u = &items[p->usages.n++];
    *u = (pp_workload_usage){.namespace_ = strdup(""),
                             .kind = strdup(""),
                             .name = strdup(*solution->gpu ? "run" : ""),
                             .session = strdup("run")};
    if (!u->namespace_ || !u->kind || !u->name || !u->session)
        return pp_error_nomem(err);
    return pp_usage_find(&in, &u->usage, err);
}

int pp_run_pattern_describe(const pp_run_pattern *p, json_t *results, pp_error *err)
{
    pp_patterns patterns = {0};
    if (pp_patterns_make(&p->usages, 0, &patterns, err) < 0)
        return -1;
    int rc = 0;
    if (patterns.n > 0 &&
        json_object_set_new(results, "pattern", pp_pattern_figures(&patterns.items[0])) < 0)
        rc = pp_error_nomem(err);
    pp_patterns_done(&patterns);
    return rc;
}

void pp_run_pattern_done(pp_run_pattern *p)
{
    pp_workload_usages_done(&p->usages);
}
