#include "estimate/pattern/usage.h"

#include "common/cleanup.h"
#include "estimate/items/achieved.h"
#include "estimate/items/item_bounds.h"
#include "estimate/pattern/sum_error.h"
#include "estimate/pattern/usage_metrics.h"
#include "estimate/pattern/usage_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct build {
    const pp_usage_input *in;
    const pp_usage_time *time;
    pp_usage *to;
    double *factor; /* of each item */
} build;

const char *pp_usage_source_name(pp_usage_source source)
{
    return source == PP_USAGE_LAYERS ? "layers" : "windows";
}

/* ---- bounds ---- */

/* Of time in which kernels ran. Communication that runs beside others is no wait: ranks say what
 * is. Layers near the line are on one side of it together: what values are known no better than,
 * and what captures are off by, is off for all. */
static int add_busy(build *b, const double *likely, pp_error *err)
{
    const pp_usage_time *t = b->time;
    PP_CLEANUP_FREE pp_sum_chance *chances = calloc(t->n + 1, sizeof *chances);
    if (!chances)
        return pp_error_nomem(err);
    for (int k = 0; k < PP_BOUND_COUNT; k++) {
        double share = 0;
        for (size_t i = 0; i < t->n; i++) {
            const double p = likely[i * PP_BOUND_COUNT + (size_t)k];
            b->factor[i] = p;
            share += t->share[i] * p;
            chances[i] = (pp_sum_chance){t->share[i], p};
        }
        const double doubt = pp_sum_of_chances_variance(chances, t->n);
        const double of_time =
            hypot(pp_usage_time_error(t, b->factor), pp_usage_step_error(t, share));
        b->to->bounds[k] = (pp_figure){share, sqrt(doubt + of_time * of_time)};
    }
    return 0;
}

/* ---- what units do while they are the bound ---- */

typedef struct unit {
    double *value, *error; /* of items */
    pp_rate *rate;
    const double *likely; /* that the unit bounds them: of item i at i * PP_BOUND_COUNT */
} unit;

/* The mean over the time that is so bound. What it is off by: the items' own errors, how much of
 * that time each of them takes, and the clock. */
static pp_figure rate_of_unit(build *b, const unit *u)
{
    const pp_usage_time *t = b->time;
    double share = 0, sum = 0, of_values = 0, of_clocks = 0, of_job = 0;
    for (size_t i = 0; i < t->n; i++) {
        const double part = t->share[i] * u->likely[i * PP_BOUND_COUNT];
        b->factor[i] = 0;
        if (!(part > 0))
            continue;
        const pp_rate *r = &u->rate[i];
        const double of_clock = part * u->value[i] * r->error;
        share += part;
        sum += part * u->value[i] * r->value;
        of_values += pow(part * u->error[i] * r->value, 2);
        of_clocks += r->of_job ? 0 : of_clock * of_clock;
        of_job += r->of_job ? of_clock : 0;
    }
    if (!(share > 0))
        return PP_UNKNOWN;
    for (size_t i = 0; i < t->n; i++) {
        const double likely = u->likely[i * PP_BOUND_COUNT];
        if (t->share[i] * likely > 0)
            b->factor[i] = likely * (u->value[i] * u->rate[i].value - sum / share) / share;
    }
    const double of_time = pp_usage_time_error(t, b->factor);
    const double variance = of_values + of_clocks + of_job * of_job;
    return (pp_figure){sum / share, sqrt(variance / (share * share) + of_time * of_time)};
}

static int find_rates(build *b, const double *likely, pp_error *err)
{
    const size_t n = b->time->n + 1;
    PP_CLEANUP_FREE double *value = calloc(n, sizeof *value);
    PP_CLEANUP_FREE double *error = calloc(n, sizeof *error);
    PP_CLEANUP_FREE pp_rate *rate = calloc(n, sizeof *rate);
    if (!value || !error || !rate)
        return pp_error_nomem(err);
    for (int k = 0; k < PP_BOUND_UNITS; k++) {
        const pp_metric metric = pp_bound_metric((pp_bound)k);
        const unit u = {value, error, rate, &likely[k]};
        pp_item_values(b->in->estimates, b->time->busy, metric, value, error, NULL);
        pp_achieved_rates(b->in->activity, b->in->estimates, metric, rate);
        b->to->rates[k] = rate_of_unit(b, &u);
    }
    return 0;
}

/* ---- bounds of idle time ---- */

/* An item's time in which nothing ran, of a marked step: only how these compare counts. */
static double idle_of(const pp_estimates_item *item)
{
    const double ns = (double)item->total_ns * item->idle_share;
    return item->kind != PP_ITEM_JOB && item->kind != PP_ITEM_IDLE && ns > 0 ? ns : 0;
}

static void add_part(pp_figure *to, double share, double part_error)
{
    to->value += share;
    to->standard_error = hypot(to->standard_error, part_error);
}

/* Of a marked step, ns in which the host waited by its own will (result_wait). */
static double host_wait_of_step(const build *b)
{
    double ns = 0;
    for (size_t i = 0; i < b->in->activity->n_processes; i++)
        if (pp_activity_uses(b->in->activity, (uint32_t)i, b->in->estimates->gpu))
            ns += (double)b->in->activity->processes[i].waited_ns;
    return ns / (double)b->in->estimates->step_count;
}

/*
 * Of time in which no kernel ran. A training that the host alone holds up never waits for its GPU:
 * where the host has waited, it could have launched that much sooner, so that of the idle time is
 * the synchronization's, and the rest the launches'.
 */
static void add_idle(build *b)
{
    const pp_usage_time *t = b->time;
    const pp_estimates *e = b->in->estimates;
    if (!(t->idle.value > 0))
        return;
    double all = 0, data = 0, waits = 0;
    for (size_t i = 0; i < e->n_items; i++) {
        all += idle_of(&e->items[i]);
        data += e->items[i].kind == PP_ITEM_DATA ? idle_of(&e->items[i]) : 0;
        waits += e->items[i].kind == PP_ITEM_COMMUNICATION ? idle_of(&e->items[i]) : 0;
    }
    const double idle = t->idle.value, error = t->idle.standard_error;
    const double of_data = all > 0 ? data / all : 0, of_waits = all > 0 ? waits / all : 0;
    const double host = idle * (1 - of_data - of_waits);
    add_part(&b->to->bounds[PP_BOUND_DATA], idle * of_data, error * of_data);
    add_part(&b->to->bounds[PP_BOUND_COMMUNICATION], idle * of_waits, error * of_waits);
    const double of_host = error * (1 - of_data - of_waits);
    const double waited = fmin(host_wait_of_step(b) / t->step_ns.value, host);
    const double part = host > 0 ? waited / host : 0;
    add_part(&b->to->bounds[PP_BOUND_SYNCHRONIZATION], waited, of_host * part);
    add_part(&b->to->bounds[PP_BOUND_LAUNCH], host - waited, of_host * (1 - part));
}

/* What is left of a step is nobody's: too little was measured. */
static void add_rest(pp_usage *to)
{
    double sum = 0;
    for (int k = 0; k < PP_BOUND_COUNT; k++)
        sum += to->bounds[k].value;
    for (int k = 0; sum > 1 && k < PP_BOUND_COUNT; k++) {
        to->bounds[k].value /= sum;
        to->bounds[k].standard_error /= sum;
    }
    if (sum < 1)
        to->bounds[PP_BOUND_UNKNOWN].value += 1 - sum;
    /* Which rows have no value is another session's chance. */
    add_part(&to->bounds[PP_BOUND_UNKNOWN], 0, to->bounds[PP_BOUND_UNKNOWN].value);
}

static int find_bounds(build *b, pp_error *err)
{
    PP_CLEANUP_FREE double *likely = calloc(b->time->n * PP_BOUND_COUNT + 1, sizeof *likely);
    if (!likely)
        return pp_error_nomem(err);
    if (pp_item_bounds(b->in->estimates, b->time->busy, likely, err) < 0)
        return -1;
    if (find_rates(b, likely, err) < 0 || add_busy(b, likely, err) < 0)
        return -1;
    add_idle(b);
    add_rest(b->to);
    return 0;
}

/* ---- types of layers ---- */

/* An item and the type that it is of: by its place in the list of types, once it has one. */
typedef struct member {
    const char *name;
    bool layer;
    double share;
    size_t item, type;
} member;

static int compare_members(const void *a, const void *b)
{
    const member *x = a, *y = b;
    const int by = strcmp(x->name, y->name);
    return by ? by : (int)x->layer - (int)y->layer;
}

static int compare_types(const void *a, const void *b)
{
    const member *x = a, *y = b;
    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return compare_members(a, b);
}

/* Items that take time, by their type. */
static size_t list_members(const build *b, member *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < b->time->n; i++) {
        const pp_estimates_item *item = &b->in->estimates->items[i];
        const bool layer = item->kind == PP_ITEM_LAYER;
        if (b->time->share[i] > 0)
            ret[n++] = (member){.name = layer ? item->type : pp_item_kind_name(item->kind),
                                .layer = layer,
                                .share = b->time->share[i],
                                .item = i};
    }
    qsort(ret, n, sizeof *ret, compare_members);
    return n;
}

/* Types with their shares, most first; returns how many. `item` is one of the members. */
static size_t list_types(const member *members, size_t n, member *ret)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || compare_members(&members[i - 1], &members[i]) != 0)
            ret[found++] = (member){.name = members[i].name, .layer = members[i].layer};
        ret[found - 1].share += members[i].share;
    }
    qsort(ret, found, sizeof *ret, compare_types);
    return found;
}

/* The rest of the types, if there are too many, is the last one. */
static void sort_into_types(member *members, size_t n, const member *types, size_t n_types)
{
    for (size_t i = 0; i < n; i++) {
        const size_t told = n_types < PP_USAGE_TYPES ? n_types : PP_USAGE_TYPES;
        members[i].type = PP_USAGE_TYPES;
        for (size_t k = 0; k < told && members[i].type == PP_USAGE_TYPES; k++)
            if (compare_members(&members[i], &types[k]) == 0)
                members[i].type = k;
    }
}

static int find_types(build *b, pp_error *err)
{
    PP_CLEANUP_FREE member *members = calloc(b->time->n + 1, sizeof *members);
    PP_CLEANUP_FREE member *types = calloc(b->time->n + 1, sizeof *types);
    if (!members || !types)
        return pp_error_nomem(err);
    const size_t n = list_members(b, members);
    const size_t n_types = list_types(members, n, types);
    sort_into_types(members, n, types, n_types);
    pp_usage *to = b->to;
    const size_t told = n_types > PP_USAGE_TYPES ? PP_USAGE_TYPES + 1 : n_types;
    for (size_t k = 0; k < told; k++) {
        pp_figure share = {0, (double)NAN};
        memset(b->factor, 0, b->time->n * sizeof *b->factor);
        for (size_t i = 0; i < n; i++)
            if (members[i].type == k) {
                b->factor[members[i].item] = 1;
                share.value += members[i].share;
            }
        share.standard_error = hypot(pp_usage_time_error(b->time, b->factor),
                                     pp_usage_step_error(b->time, share.value));
        const bool rest = k == PP_USAGE_TYPES;
        if (pp_usage_add_type(to, rest ? "" : types[k].name, rest || types[k].layer, share, err) <
            0)
            return -1;
    }
    return 0;
}

/* ---- models ---- */

/* Where a process of the GPU's says what it trains, one that does not is none of the training's. */
static int find_models(const pp_usage_input *in, pp_models *to, pp_error *err)
{
    for (size_t i = 0; i < in->activity->n_processes; i++) {
        const pp_activity_process *p = &in->activity->processes[i];
        const char *name = p->model && strcmp(p->model, "?") != 0 ? p->model : "";
        const bool known = *name || (p->digest && *p->digest) || (p->batch && *p->batch);
        if (known && pp_activity_uses(in->activity, (uint32_t)i, in->estimates->gpu) &&
            pp_models_add(to, name, p->digest, p->batch, err) < 0)
            return -1;
    }
    return to->n > 0 ? 0 : pp_models_add(to, "", "", "", err);
}

/* ---- the GPU ---- */

static void find_gpu(const pp_usage_input *in, pp_usage_gpu *to)
{
    const pp_activity *a = in->activity;
    const char *gpu = in->estimates->gpu;
    to->chip = *pp_activity_chip(a, gpu);
    (void)snprintf(to->model, sizeof to->model, "%s", pp_activity_gpu_model(a, gpu));
}

static bool is_same_chip(const pp_chip *a, const pp_chip *b)
{
    return a->capability == b->capability && a->multiprocessors == b->multiprocessors &&
           a->sm_khz == b->sm_khz && a->memory_khz == b->memory_khz &&
           a->memory_bits == b->memory_bits;
}

bool pp_usage_gpu_alike(const pp_usage_gpu *a, const pp_usage_gpu *b)
{
    const bool untold = a->chip.capability > 0 && (!*a->model || !*b->model);
    return is_same_chip(&a->chip, &b->chip) && (untold || strcmp(a->model, b->model) == 0);
}

const pp_usage_metric *pp_usage_metric_find(const pp_usage *usage, pp_metric metric)
{
    for (size_t i = 0; i < usage->n_metrics; i++)
        if (usage->metrics[i].metric == metric)
            return &usage->metrics[i];
    return NULL;
}

/* ---- in and out ---- */

static int find(build *b, pp_error *err)
{
    pp_usage *to = b->to;
    to->steps = b->time->steps;
    to->undisturbed = b->time->undisturbed;
    to->busy = b->time->busy;
    to->step_ns = b->time->step_ns;
    to->step_sd_ns = b->time->step_sd_ns;
    to->idle = b->time->idle;
    find_gpu(b->in, &to->gpu);
    if (to->steps == 0)
        return 0;
    return find_models(b->in, &to->models, err) < 0 || find_bounds(b, err) < 0 ||
                   find_types(b, err) < 0 ||
                   pp_usage_metrics_find(b->in->activity, b->in->estimates, b->time, to, err) < 0
               ? -1
               : 0;
}

static int find_with(const pp_usage_input *in, const pp_usage_time *time, pp_usage *to,
                     pp_error *err)
{
    PP_CLEANUP_FREE double *factor = calloc(time->n + 1, sizeof *factor);
    if (!factor)
        return pp_error_nomem(err);
    build b = {.in = in, .time = time, .to = to, .factor = factor};
    return find(&b, err);
}

int pp_usage_find(const pp_usage_input *in, pp_usage **ret, pp_error *err)
{
    pp_usage_time time;
    *ret = NULL;
    pp_usage *to = calloc(1, sizeof *to);
    if (!to)
        return pp_error_nomem(err);
    int rc = pp_usage_time_find(in, &time, err);
    if (rc == 0)
        rc = find_with(in, &time, to, err);
    pp_usage_time_done(&time);
    if (rc < 0)
        pp_usage_free(to);
    else
        *ret = to;
    return rc;
}

int pp_usage_add_type(pp_usage *usage, const char *name, bool layer, pp_figure share, pp_error *err)
{
    if (pp_strings_add(&usage->names, name, err) < 0)
        return -1;
    usage->types[usage->n_types++] = (pp_usage_type){
        .name = usage->names.items[usage->names.count - 1], .layer = layer, .share = share};
    return 0;
}

void pp_usage_leaders(const pp_usage *usage, pp_bound *ret_first, pp_bound *ret_second)
{
    pp_bound first = PP_BOUND_UNKNOWN, second = PP_BOUND_COUNT;
    for (int k = 0; k < PP_BOUND_COUNT; k++)
        if (usage->bounds[k].value > usage->bounds[first].value)
            first = (pp_bound)k;
    for (int k = 0; k < PP_BOUND_COUNT; k++)
        if (k != (int)first &&
            (second == PP_BOUND_COUNT || usage->bounds[k].value > usage->bounds[second].value))
            second = (pp_bound)k;
    *ret_first = first;
    *ret_second = second;
}

pp_bound pp_usage_bound(const pp_usage *usage, pp_figure *ret_lead)
{
    pp_bound first, second;
    pp_usage_leaders(usage, &first, &second);
    const pp_figure *x = &usage->bounds[first], *y = &usage->bounds[second];
    *ret_lead =
        (pp_figure){x->value - y->value,
                    usage->merged ? usage->lead_error : x->standard_error + y->standard_error};
    return first;
}

void pp_usage_free(pp_usage *usage)
{
    if (!usage)
        return;
    free(usage->metrics);
    pp_strings_free(&usage->names);
    pp_models_done(&usage->models);
    free(usage);
}
