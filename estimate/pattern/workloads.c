#include "estimate/pattern/workloads.h"

#include "common/cleanup.h"
#include "estimate/pattern/merge.h"

#include <stdlib.h>
#include <string.h>

static int compare_workloads(const pp_workload_usage *x, const pp_workload_usage *y)
{
    int by = strcmp(x->namespace_, y->namespace_);
    by = by ? by : strcmp(x->kind, y->kind);
    return by ? by : strcmp(x->name, y->name);
}

static int compare_usages(const void *a, const void *b)
{
    const pp_workload_usage *x = a, *y = b;
    const int by = compare_workloads(x, y);
    if (by)
        return by;
    if (x->finished_ns != y->finished_ns)
        return x->finished_ns < y->finished_ns ? -1 : 1;
    return strcmp(x->session, y->session);
}

void pp_workload_usages_sort(pp_workload_usages *usages)
{
    if (usages->n > 1)
        qsort(usages->items, usages->n, sizeof *usages->items, compare_usages);
}

void pp_workload_usages_done(pp_workload_usages *usages)
{
    for (size_t i = 0; i < usages->n; i++) {
        free(usages->items[i].namespace_);
        free(usages->items[i].kind);
        free(usages->items[i].name);
        free(usages->items[i].session);
        pp_usage_free(usages->items[i].usage);
    }
    free(usages->items);
    *usages = (pp_workload_usages){0};
}

/* Of one workload: the newest session is the last. */
static void describe(const pp_workload_usage *all, size_t n, pp_pattern *to)
{
    const pp_workload_usage *before = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_workload_usage *u = &all[i];
        if (u->usage->steps == 0)
            continue;
        to->gpus++;
        to->sessions += !before || strcmp(before->session, u->session) != 0;
        to->first_ns = before ? to->first_ns : u->finished_ns;
        before = u;
    }
    if (!before)
        return;
    to->namespace_ = before->namespace_;
    to->kind = before->kind;
    to->name = before->name;
    to->session = before->session;
    to->last_ns = before->finished_ns;
}

static int make_one(const pp_workload_usage *all, size_t n, int64_t now_ns, pp_patterns *ret,
                    pp_error *err)
{
    pp_pattern *to = &ret->items[ret->n];
    describe(all, n, to);
    if (to->gpus == 0)
        return 0;
    PP_CLEANUP_FREE pp_merge_input *in = calloc(n, sizeof *in);
    if (!in)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        in[i] = (pp_merge_input){all[i].session, all[i].finished_ns, all[i].usage};
    if (pp_usage_merge(in, n, now_ns, &to->usage, err) < 0)
        return -1;
    to->bound = pp_usage_bound(to->usage, &to->lead);
    ret->n++;
    return 0;
}

int pp_patterns_make(const pp_workload_usages *usages, int64_t now_ns, pp_patterns *ret,
                     pp_error *err)
{
    *ret = (pp_patterns){.items = calloc(usages->n + 1, sizeof *ret->items)};
    if (!ret->items)
        return pp_error_nomem(err);
    for (size_t i = 0, end; i < usages->n; i = end) {
        end = i + 1;
        while (end < usages->n && compare_workloads(&usages->items[i], &usages->items[end]) == 0)
            end++;
        if (make_one(&usages->items[i], end - i, now_ns, ret, err) < 0) {
            pp_patterns_done(ret);
            return -1;
        }
    }
    return 0;
}

void pp_patterns_done(pp_patterns *patterns)
{
    for (size_t i = 0; i < patterns->n; i++)
        pp_usage_free(patterns->items[i].usage);
    free(patterns->items);
    *patterns = (pp_patterns){0};
}
