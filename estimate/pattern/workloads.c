#include "estimate/pattern/workloads.h"

#include "common/cleanup.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- name ---- */

/* FNV-1a (Fowler, Noll, Vo). */
static uint32_t digest(uint32_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* Names of workloads are the API server's, but for labels and for runs that were imported. */
static size_t add_clean(char *to, size_t at, size_t room, const char *text, bool *changed)
{
    for (; *text && at + 1 < room; text++) {
        const char c = (char)tolower((unsigned char)*text);
        *changed |= c != *text; /* names that differ in case are two workloads' */
        const bool fits = isalnum((unsigned char)c) || (c == '-' && at > 0) ||
                          (c == '.' && at > 0 && isalnum((unsigned char)to[at - 1]));
        *changed |= !fits;
        if (fits)
            to[at++] = c;
    }
    *changed |= *text != '\0';
    return at;
}

void pp_pattern_name(const char *kind, const char *name, char ret[PP_PATTERN_NAME])
{
    enum { DIGEST = 9 }; /* "-01234567" */
    char lower[64];      /* no two kinds differ in case alone */
    size_t n = 0;
    for (; kind[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)kind[n]);
    lower[n] = '\0';
    bool changed = kind[n] != '\0';
    size_t at = add_clean(ret, 0, sizeof lower, lower, &changed);
    at = add_clean(ret, at, PP_PATTERN_NAME - DIGEST, "-", &changed);
    at = add_clean(ret, at, PP_PATTERN_NAME - DIGEST, name, &changed);
    while (at > 0 && !isalnum((unsigned char)ret[at - 1]))
        at--;
    ret[at] = '\0';
    if (changed || at == 0)
        (void)snprintf(ret + at, PP_PATTERN_NAME - at, "%s%08x", at ? "-" : "",
                       (unsigned)digest(digest(2166136261u, kind) * 31, name));
}

/* ---- usages ---- */

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

/* ---- patterns ---- */

/* Of what one workload's is made of: the newest session is the last. */
static void describe(const pp_merge_input *all, size_t n, pp_pattern *to)
{
    const pp_merge_input *before = NULL;
    for (size_t i = 0; i < n; i++) {
        const pp_merge_input *u = &all[i];
        if (u->usage->steps == 0)
            continue;
        to->gpus++;
        to->sessions += !before || strcmp(before->session, u->session) != 0;
        to->first_ns = before ? to->first_ns : u->finished_ns;
        before = u;
    }
    if (!before)
        return;
    to->session = before->session;
    to->last_ns = before->finished_ns;
}

static int make_one(const pp_workload_usage *all, size_t n, int64_t now_ns, pp_patterns *ret,
                    pp_error *err)
{
    pp_pattern *to = &ret->items[ret->n];
    *to = (pp_pattern){.namespace_ = all->namespace_, .kind = all->kind, .name = all->name};
    pp_pattern_name(to->kind, to->name, to->object);
    PP_CLEANUP_FREE pp_merge_input *in = calloc(n, sizeof *in);
    if (!in)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        in[i] = (pp_merge_input){all[i].session, all[i].finished_ns, all[i].usage};
    if (pp_merge_select(in, &n, &to->left, err) < 0)
        return -1;
    describe(in, n, to);
    if (to->gpus == 0)
        return 0;
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
