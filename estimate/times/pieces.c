#include "estimate/times/pieces.h"

#include "estimate/activity/marked_steps.h"
#include "estimate/activity/pauses.h"

#include <stdlib.h>

enum { PHASES = PP_PHASE_IDLE };

/* Numbers of items that were not asked for yet. */
#define UNASKED (PP_SPREAD_REST - 1)

typedef struct source {
    const pp_activity *activity;
    bool *uses;
    const pp_marked_step *steps; /* sorted by process, capture and time; numbered as the spread's */
    size_t n_steps;
    pp_piece_number *number;
    void *context;
    uint32_t *items; /* PHASES of each layer, and of the steps themselves in the end */
    pp_spread *spread;
} source;

static int add_steps(const source *s, pp_error *err)
{
    size_t number;
    double limit;
    for (size_t i = 0; i < s->n_steps; i++) {
        const pp_marked_step *m = &s->steps[i];
        if (pp_spread_step(s->spread, m->process, m->capture, m->span.end_ns - m->span.start_ns,
                           &number, err) < 0)
            return -1;
    }
    if (pp_pauses_limit(s->activity, s->uses, &limit, err) < 0)
        return -1;
    for (size_t i = 0; i < s->activity->n_runs; i++) {
        const pp_activity_run *r = &s->activity->runs[i];
        const pp_spread_run run = {r->process, r->start_ns, r->steps, r->duration_ns};
        if (s->uses[r->process] && r->steps > 0 && r->duration_ns > 0 &&
            pp_run_step_ns(r) <= limit && pp_spread_count(s->spread, &run, err) < 0)
            return -1;
    }
    return 0;
}

/* Whether a step begins at or before a time of its process and capture. */
static bool begins_by(const pp_marked_step *step, const pp_activity_batch *b, int64_t at)
{
    if (step->process != b->process)
        return step->process < b->process;
    if (step->capture != b->capture)
        return step->capture < b->capture;
    return step->span.start_ns <= at;
}

/* The step of a batch's process and capture that a time lies in; n_steps: none. */
static size_t step_at(const source *s, const pp_activity_batch *b, int64_t at)
{
    size_t low = 0, high = s->n_steps;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (begins_by(&s->steps[middle], b, at))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return s->n_steps;
    const pp_marked_step *found = &s->steps[low - 1];
    return found->process == b->process && found->capture == b->capture && at < found->span.end_ns
               ? low - 1
               : s->n_steps;
}

static int number_of(const source *s, const pp_activity_layer *of, uint8_t phase, uint32_t *ret,
                     pp_error *err)
{
    const size_t row = of ? (size_t)(of - s->activity->layers) : s->activity->n_layers;
    uint32_t *known = &s->items[row * PHASES + phase];
    const pp_piece_name name = {.layer = of && of->name ? of->name : "",
                                .type = of && of->type ? of->type : "",
                                .phase = (pp_wire_phase)phase};
    if (*known == UNASKED && s->number(s->context, &name, known, err) < 0)
        return -1;
    *ret = *known;
    return 0;
}

/* What a piece is of, and when it began. */
typedef struct place {
    uint32_t batch;
    int32_t layer;
    uint8_t phase;
    int64_t start_ns;
} place;

static int add_piece(const source *s, const place *at, pp_spread_piece *p, pp_error *err)
{
    const pp_activity_batch *b = &s->activity->batches[at->batch];
    if (!s->uses[b->process] || b->dwell != 0 || at->phase >= PHASES)
        return 0;
    const pp_activity_layer *of =
        at->layer ? pp_activity_find_layer(s->activity, b->process, at->layer) : NULL;
    p->step = step_at(s, b, at->start_ns);
    p->item = PP_SPREAD_REST;
    if (p->step == s->n_steps || (at->layer && !of))
        return 0;
    if (pp_phase_of_item(at->phase) && number_of(s, of, at->phase, &p->item, err) < 0)
        return -1;
    return pp_spread_add(s->spread, p, err);
}

static int add_pieces(const source *s, pp_error *err)
{
    const pp_activity *a = s->activity;
    for (size_t i = 0; i < a->n_intervals; i++) {
        const pp_activity_interval *one = &a->intervals[i];
        const place at = {one->batch, one->layer, one->phase, one->start_ns};
        pp_spread_piece p = {.ns = one->duration_ns, .busy_ns = one->kernels_ns};
        if (add_piece(s, &at, &p, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < a->n_cells; i++) {
        const pp_activity_cell *one = &a->cells[i];
        const place at = {one->batch, one->layer, one->phase, one->start_ns};
        pp_spread_piece p = {.ns = one->busy_ns, .busy_ns = one->kernels_ns, .coarse = true};
        if (add_piece(s, &at, &p, err) < 0)
            return -1;
    }
    return 0;
}

static int prepare(source *s, pp_error *err)
{
    const size_t n = (s->activity->n_layers + 1) * PHASES;
    s->uses = calloc(s->activity->n_processes + 1, sizeof *s->uses);
    s->items = malloc(n * sizeof *s->items);
    s->spread = pp_spread_new();
    if (!s->uses || !s->items || !s->spread)
        return pp_error_nomem(err);
    for (size_t i = 0; i < n; i++)
        s->items[i] = UNASKED;
    return 0;
}

int pp_pieces_collect(const pp_activity *activity, const char *gpu, pp_piece_number *number,
                      void *context, pp_spread **ret, pp_error *err)
{
    pp_marked_step *steps = NULL;
    source s = {.activity = activity, .number = number, .context = context};
    int rc = prepare(&s, err);
    for (size_t i = 0; rc == 0 && i < activity->n_processes; i++)
        s.uses[i] = pp_activity_uses(activity, (uint32_t)i, gpu);
    if (rc == 0)
        rc = pp_marked_steps_collect(activity, s.uses, &steps, &s.n_steps, err);
    s.steps = steps;
    if (rc == 0 &&
        (add_steps(&s, err) < 0 || add_pieces(&s, err) < 0 || pp_spread_settle(s.spread, err) < 0))
        rc = -1;
    free(steps);
    free(s.uses);
    free(s.items);
    if (rc < 0)
        pp_spread_free(s.spread);
    else
        *ret = s.spread;
    return rc;
}
