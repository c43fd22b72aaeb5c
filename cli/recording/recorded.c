#include "cli/recording/recorded.h"

#include "cli/recording/recording.h"
#include "common/wire.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS = 8,
    CALLS_MAX = 256, /* of a work in a step; later ones are taken for the last */
};

/* A call of a work while its places are gathered. */
typedef struct place {
    pp_training_work work;
    double sum;
    double n;
    size_t steps; /* that have it */
    int64_t step; /* the latest of them */
    int done;     /* of the first call: how many calls that step has made so far */
    size_t first; /* place of the first call */
} place;

typedef struct reading {
    pp_training_recorded *to;
    place *places;
    size_t n, room;
    size_t steps;    /* that were looked at */
    int64_t process; /* of whose steps; -1: none yet */
    bool hosts_differ, chips_differ;
} reading;

static place *find(reading *r, const char *layer, pp_wire_phase phase, int call)
{
    for (size_t i = 0; i < r->n; i++) {
        const pp_training_work *w = &r->places[i].work;
        if (w->call == call && w->phase == pp_wire_phase_name(phase) &&
            strcmp(w->layer, layer) == 0)
            return &r->places[i];
    }
    return NULL;
}

/* Made where it is new; NULL: out of memory. */
static place *find_or_make(reading *r, const char *layer, pp_wire_phase phase, int call,
                           size_t first, pp_error *err)
{
    place *p = find(r, layer, phase, call);
    if (p)
        return p;
    if (pp_activity_grow(&r->places, &r->room, r->n, 1, sizeof *r->places, err) < 0)
        return NULL;
    p = &r->places[r->n];
    *p = (place){.work = {.layer = strdup(layer), .phase = pp_wire_phase_name(phase), .call = call},
                 .step = -1,
                 .first = call ? first : r->n};
    if (!p->work.layer) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    r->n++;
    return p;
}

/* A piece of a call, ns from its step's begin; layers in it cut a call into several. */
static int add(reading *r, const char *layer, const pp_wire_interval *v, double ns, pp_error *err)
{
    place *first = find_or_make(r, layer, v->phase, 0, 0, err);
    if (!first)
        return -1;
    if (first->step != v->step)
        first->done = 0;
    const int call = first->done < CALLS_MAX ? first->done : CALLS_MAX - 1;
    first->done += v->goes_on ? 0 : 1;
    const size_t at = (size_t)(first - r->places);
    place *p = call ? find_or_make(r, layer, v->phase, call, at, err) : first;
    if (!p)
        return -1;
    p->steps += p->step != v->step;
    p->step = v->step;
    p->sum += ns;
    p->n++;
    return 0;
}

/* A step that begins or ends in another batch is left out. */
static const pp_wire_step *step_of(const pp_wire_batch *b, int64_t number)
{
    for (size_t i = 0; i < b->step_count; i++) {
        if (b->steps[i].number == number)
            return b->steps[i].start >= b->capture.start ? &b->steps[i] : NULL;
    }
    return NULL;
}

static int take_order(reading *r, const pp_wire_batch *b, pp_error *err)
{
    if (!pp_wire_has_order(b) || r->steps >= STEPS || b->step_count == 0)
        return 0;
    if (r->process < 0)
        r->process = b->process.id;
    if (r->process != b->process.id)
        return 0;
    r->steps += b->step_count;
    for (size_t i = 0; i < b->interval_count; i++) {
        const pp_wire_interval *v = &b->intervals[i];
        const pp_wire_step *step = step_of(b, v->step);
        const pp_wire_layer *layer = pp_wire_find_layer(b, v->layer);
        if (step && (layer || v->layer == 0) &&
            add(r, layer ? layer->name : "", v, (double)(v->start - step->start), err) < 0)
            return -1;
    }
    return 0;
}

static int take_process(reading *r, const pp_wire_process *p, pp_error *err)
{
    pp_training_recorded *to = r->to;
    if (p->chip.multiprocessors > 0) {
        r->chips_differ |= to->multiprocessors && to->multiprocessors != p->chip.multiprocessors;
        to->multiprocessors = p->chip.multiprocessors;
    }
    if (!to->host && !(to->host = strdup(p->hostname)))
        return pp_error_nomem(err);
    r->hosts_differ |= strcmp(to->host, p->hostname) != 0;
    return 0;
}

static int take_batch(void *user, const pp_wire_batch *b, pp_error *err)
{
    reading *r = user;
    return take_process(r, &b->process, err) < 0 ? -1 : take_order(r, b, err);
}

static int compare(const void *a, const void *b)
{
    const double x = ((const pp_training_work *)a)->place, y = ((const pp_training_work *)b)->place;
    return (x > y) - (x < y);
}

/* Calls that half of the work's steps make, and more. */
static bool is_made(const reading *r, const place *p)
{
    return 2 * p->steps >= r->places[p->first].steps;
}

/* Takes the places' names. */
static int take_works(reading *r, pp_error *err)
{
    pp_training_recorded *to = r->to;
    to->order = calloc(r->n + 1, sizeof *to->order);
    if (!to->order)
        return pp_error_nomem(err);
    for (size_t i = 0; i < r->n; i++)
        r->places[r->places[i].first].work.calls += is_made(r, &r->places[i]);
    for (size_t i = 0; i < r->n; i++) {
        place *p = &r->places[i];
        if (!is_made(r, p))
            continue;
        pp_training_work *work = &to->order[to->n_order++];
        *work = p->work;
        work->calls = r->places[p->first].work.calls;
        work->place = p->sum / p->n;
        p->work.layer = NULL;
    }
    qsort(to->order, to->n_order, sizeof *to->order, compare);
    return 0;
}

/* What is not of all processes is not known. */
static int finish(reading *r, pp_error *err)
{
    pp_training_recorded *to = r->to;
    if (r->chips_differ)
        to->multiprocessors = 0;
    if (to->host && (r->hosts_differ || !*to->host)) {
        free(to->host);
        to->host = NULL;
    }
    return take_works(r, err);
}

int pp_recorded_read(const char *folder, pp_training_recorded *ret, pp_error *err)
{
    *ret = (pp_training_recorded){0};
    reading r = {.to = ret, .process = -1};
    int rc = pp_recording_batches(folder, take_batch, &r, err);
    if (rc == 0)
        rc = finish(&r, err);
    for (size_t i = 0; i < r.n; i++)
        free(r.places[i].work.layer);
    free(r.places);
    if (rc < 0)
        pp_recorded_done(ret);
    return rc;
}

void pp_recorded_done(pp_training_recorded *recorded)
{
    for (size_t i = 0; i < recorded->n_order; i++)
        free(recorded->order[i].layer);
    free(recorded->order);
    free(recorded->host);
    *recorded = (pp_training_recorded){0};
}
