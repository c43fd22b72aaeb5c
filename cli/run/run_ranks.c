#include "cli/run/run_ranks.h"

#include "common/json.h"
#include "estimate/items/estimates.h"
#include "estimate/times/ranks.h"

#include <math.h>

static json_t *milliseconds(double ns)
{
    return isfinite(ns) ? json_real(ns / 1e6) : json_null();
}

static json_t *item_object(const pp_rank_item *i)
{
    return json_pack("{s:o, s:s, s:f, s:o}", "layer", pp_json_text(i->layer), "phase",
                     pp_phase_name(i->phase), "callsPerStep", i->calls, "millisecondsPerStep",
                     milliseconds(i->ns));
}

static json_t *rank_object(const pp_rank *r)
{
    json_t *items = json_array();
    for (size_t i = 0; i < r->n_items; i++)
        (void)json_array_append_new(items, item_object(&r->items[i]));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "process", (json_int_t)r->process, "rank",
        (json_int_t)r->rank, "worldSize", (json_int_t)r->world_size, "steps", (json_int_t)r->steps,
        "stepMs", milliseconds(r->step_ns), "waitMs", milliseconds(r->wait_ns), "ownMs",
        milliseconds(r->own_ns), "ownStandardErrorMs", milliseconds(r->own_stderr), "items", items);
}

static json_t *slowest_object(const pp_ranks *r)
{
    json_t *items = json_array();
    for (size_t i = 0; i < r->n_excesses; i++) {
        json_t *item = item_object(r->excesses[i].item);
        (void)json_object_set_new(item, "othersMillisecondsPerStep",
                                  milliseconds(r->excesses[i].others_ns));
        (void)json_array_append_new(items, item);
    }
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:o, s:o}", "process",
                     (json_int_t)r->slowest->process, "rank", (json_int_t)r->slowest->rank,
                     "behindMs", milliseconds(r->behind_ns), "behindStandardErrorMs",
                     milliseconds(r->behind_stderr), "toldSteps", (json_int_t)r->told_steps,
                     "lateSteps", (json_int_t)r->late_steps, "worstStep", (json_int_t)r->worst_step,
                     "worstMs", milliseconds(r->worst_ns), "items", items);
}

static size_t count_told(const pp_ranks *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->ranks[i].steps > 0;
    return n;
}

int pp_run_ranks_describe(const pp_ranks *r, json_t *results, pp_error *err)
{
    json_t *all = json_array();
    if (count_told(r) < 2) {
        json_decref(all);
        return 0;
    }
    for (size_t i = 0; i < r->n; i++)
        (void)json_array_append_new(all, rank_object(&r->ranks[i]));
    if (json_object_set_new(results, "ranks", all) < 0 ||
        (r->slowest && json_object_set_new(results, "slowest", slowest_object(r)) < 0))
        return pp_error_nomem(err);
    return 0;
}
