#include "cli/run/run_copies.h"

#include "cli/run/texts.h"
#include "common/array.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *layer; /* "": the phase is the step's */
    pp_wire_phase phase;
    int64_t type, memory; /* type -1: all that are not told apart */
    double count, bytes, ns;
} row;

struct pp_run_copies {
    pp_texts texts;
    void *found; /* tree of rows */
    row **rows;
    size_t n_rows, room;
    double steps;
    int64_t further;      /* number of a GPU's that is not its process' first ... */
    double further_steps; /* ... and the steps of that */
};

pp_run_copies *pp_run_copies_new(void)
{
    return calloc(1, sizeof(pp_run_copies));
}

static void keep(void *element)
{
    (void)element;
}

void pp_run_copies_free(pp_run_copies *c)
{
    if (!c)
        return;
    tdestroy(c->found, keep);
    pp_texts_done(&c->texts);
    for (size_t i = 0; i < c->n_rows; i++)
        free(c->rows[i]);
    free(c->rows);
    free(c);
}

/* ---- sums over batches ---- */

/* Texts by where they are. */
static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;
    const uintptr_t of[][2] = {{(uintptr_t)x->layer, (uintptr_t)y->layer},
                               {(uintptr_t)x->phase, (uintptr_t)y->phase},
                               {(uintptr_t)x->type, (uintptr_t)y->type},
                               {(uintptr_t)x->memory, (uintptr_t)y->memory}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i][0] != of[i][1])
            return of[i][0] < of[i][1] ? -1 : 1;
    return 0;
}

static row *new_row(pp_run_copies *c, const row *like, pp_error *err)
{
    PP_CLEANUP_FREE row *r = malloc(sizeof *r);
    if (!r)
        (void)pp_error_nomem(err);
    if (!r || pp_array_reserve(&c->rows, &c->room, c->n_rows + 1, sizeof(row *), err) < 0)
        return NULL;
    *r = *like;
    r->count = r->bytes = r->ns = 0;
    if (!tsearch(r, &c->found, compare_rows)) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    return c->rows[c->n_rows++] = PP_TAKE(r);
}

/* Rows of no layer are not limited: there is one for each type. */
static int add_row(pp_run_copies *c, row *in, pp_error *err)
{
    row *const *found = tfind(in, &c->found, compare_rows);
    if (!found && c->n_rows >= PP_RUN_COPIES_MAX_ROWS) {
        in->layer = pp_texts_hold(&c->texts, "", err);
        in->phase = PP_WIRE_OTHER;
        if (!in->layer)
            return -1;
        found = tfind(in, &c->found, compare_rows);
    }
    row *to = found ? *found : new_row(c, in, err);
    if (!to)
        return -1;
    to->count += in->count;
    to->bytes += in->bytes;
    to->ns += in->ns;
    return 0;
}

/* Each GPU of a process has all of its steps: those of one count, the first where it had copies. */
static void add_steps(pp_run_copies *c, const pp_wire_process *process, double steps)
{
    if (!process->further) {
        c->steps += steps;
        return;
    }
    if (c->further_steps == 0)
        c->further = process->id;
    c->further_steps += process->id == c->further ? steps : 0;
}

int pp_run_copies_add(pp_run_copies *c, const pp_wire_batch *batch, pp_error *err)
{
    const pp_wire_copies *copies = &batch->copies;
    if (batch->capture.dwell)
        return 0;
    for (size_t i = 0; i < copies->count; i++) {
        const pp_wire_copy *in = &copies->rows[i];
        row r = {.layer = pp_texts_hold(&c->texts, pp_wire_layer_name(batch, in->layer), err),
                 .phase = in->phase,
                 .type = in->type,
                 .memory = in->memory,
                 .count = (double)in->count,
                 .bytes = (double)in->bytes,
                 .ns = (double)in->duration};
        if (!r.layer || add_row(c, &r, err) < 0)
            return -1;
    }
    add_steps(c, &batch->process, (double)copies->steps);
    return 0;
}

/* ---- results ---- */

/* Most time first, then most bytes. */
static int compare_by_time(const void *a, const void *b)
{
    const row *x = *(row *const *)a, *y = *(row *const *)b;
    int by = (y->ns > x->ns) - (y->ns < x->ns);
    by = by ? by : (y->bytes > x->bytes) - (y->bytes < x->bytes);
    by = by ? by : strcmp(x->layer, y->layer);
    by = by ? by : (x->phase > y->phase) - (x->phase < y->phase);
    by = by ? by : (x->type > y->type) - (x->type < y->type);
    return by ? by : (x->memory > y->memory) - (x->memory < y->memory);
}

/* One that took no time has no bandwidth. */
static json_t *row_object(const row *r, double steps)
{
    json_t *object = json_pack(
        "{s:o, s:s, s:s, s:s, s:f, s:f, s:f}", "layer", pp_json_text(r->layer), "phase",
        r->type < 0 ? "" : pp_wire_phase_name(r->phase), "type", pp_wire_copy_type_name(r->type),
        "memory", pp_wire_copy_memory_name(r->memory), "perStep", r->count / steps, "bytesPerStep",
        r->bytes / steps, "millisecondsPerStep", r->ns / steps / 1e6);
    if (object && r->ns > 0)
        (void)json_object_set_new(object, "gigabytesPerSecond", json_real(r->bytes / r->ns));
    return object;
}

static json_t *items_of(row **rows, size_t n, double steps)
{
    json_t *all = json_array();
    row rest = {.layer = "", .type = -1};
    for (size_t i = 0; i < n; i++) {
        if (i < PP_RUN_COPIES_TOLD) {
            (void)json_array_append_new(all, row_object(rows[i], steps));
            continue;
        }
        rest.count += rows[i]->count;
        rest.bytes += rows[i]->bytes;
        rest.ns += rows[i]->ns;
    }
    if (rest.count > 0)
        (void)json_array_append_new(all, row_object(&rest, steps));
    return all;
}

int pp_run_copies_describe(const pp_run_copies *c, json_t *results, pp_error *err)
{
    const double steps = c->steps > 0 ? c->steps : c->further_steps;
    if (c->n_rows == 0 || steps <= 0)
        return 0;
    qsort(c->rows, c->n_rows, sizeof(row *), compare_by_time);
    json_t *copies = json_pack("{s:I, s:o}", "steps", (json_int_t)steps, "items",
                               items_of(c->rows, c->n_rows, steps));
    return json_object_set_new(results, "copies", copies) < 0 ? pp_error_nomem(err) : 0;
}
