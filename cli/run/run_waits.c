#include "cli/run/run_waits.h"

#include "cli/run/texts.h"
#include "common/array.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *layer; /* "": the phase is the step's */
    const char *call, *file;
    int64_t line;
    pp_wire_phase phase;
    double count, steps, ns;
} row;

struct pp_run_waits {
    pp_texts texts;
    void *found; /* tree of rows */
    row **rows;
    size_t n_rows, room;
    double steps;
};

pp_run_waits *pp_run_waits_new(void)
{
    return calloc(1, sizeof(pp_run_waits));
}

static void keep(void *element)
{
    (void)element;
}

void pp_run_waits_free(pp_run_waits *w)
{
    if (!w)
        return;
    tdestroy(w->found, keep);
    pp_texts_done(&w->texts);
    for (size_t i = 0; i < w->n_rows; i++)
        free(w->rows[i]);
    free(w->rows);
    free(w);
}

/* ---- sums over batches ---- */

static int compare_numbers(uintptr_t a, uintptr_t b)
{
    return (a > b) - (a < b);
}

/* Texts by where they are. */
static int compare_rows(const void *a, const void *b)
{
    const row *x = a, *y = b;
    const uintptr_t of[][2] = {{(uintptr_t)x->layer, (uintptr_t)y->layer},
                               {(uintptr_t)x->phase, (uintptr_t)y->phase},
                               {(uintptr_t)x->call, (uintptr_t)y->call},
                               {(uintptr_t)x->file, (uintptr_t)y->file},
                               {(uintptr_t)x->line, (uintptr_t)y->line}};
    int by = 0;
    for (size_t i = 0; i < sizeof of / sizeof *of && by == 0; i++)
        by = compare_numbers(of[i][0], of[i][1]);
    return by;
}

static row *new_row(pp_run_waits *w, const row *like, pp_error *err)
{
    PP_CLEANUP_FREE row *r = malloc(sizeof *r);
    if (!r)
        (void)pp_error_nomem(err);
    if (!r || pp_array_reserve(&w->rows, &w->room, w->n_rows + 1, sizeof(row *), err) < 0)
        return NULL;
    *r = *like;
    r->count = r->steps = r->ns = 0;
    if (!tsearch(r, &w->found, compare_rows)) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    return w->rows[w->n_rows++] = PP_TAKE(r);
}

/* Rows without a line are not limited: there is one for each layer, phase and call. */
static int add_row(pp_run_waits *w, row *in, pp_error *err)
{
    row *const *found = tfind(in, &w->found, compare_rows);
    if (!found && w->n_rows >= PP_RUN_WAITS_MAX_ROWS) {
        in->line = 0;
        in->file = pp_texts_hold(&w->texts, "", err);
        if (!in->file)
            return -1;
        found = tfind(in, &w->found, compare_rows);
    }
    row *to = found ? *found : new_row(w, in, err);
    if (!to)
        return -1;
    to->count += in->count;
    to->steps += in->steps;
    to->ns += in->ns;
    return 0;
}

int pp_run_waits_add(pp_run_waits *w, const pp_wire_batch *batch, pp_error *err)
{
    const pp_wire_waits *waits = &batch->waits;
    if (batch->capture.dwell)
        return 0;
    for (size_t i = 0; i < waits->count; i++) {
        const pp_wire_wait *in = &waits->rows[i];
        row r = {.layer = pp_texts_hold(&w->texts, pp_wire_layer_name(batch, in->layer), err),
                 .call = pp_texts_hold(&w->texts, waits->calls.items[in->call], err),
                 .file = pp_texts_hold(&w->texts, waits->files.items[in->file], err),
                 .line = in->line,
                 .phase = in->phase,
                 .count = (double)in->count,
                 .steps = (double)in->steps,
                 .ns = (double)in->duration};
        if (!r.layer || !r.call || !r.file || add_row(w, &r, err) < 0)
            return -1;
    }
    w->steps += (double)waits->steps;
    return 0;
}

/* ---- results ---- */

/* Most time first, then most calls. */
static int compare_by_time(const void *a, const void *b)
{
    const row *x = *(row *const *)a, *y = *(row *const *)b;
    int by = (y->ns > x->ns) - (y->ns < x->ns);
    by = by ? by : (y->count > x->count) - (y->count < x->count);
    by = by ? by : strcmp(x->file, y->file);
    return by ? by : compare_numbers((uintptr_t)x->line, (uintptr_t)y->line);
}

static json_t *row_object(const row *r, double steps)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:I, s:f, s:f, s:f}", "layer", pp_json_text(r->layer),
                     "phase", *r->call ? pp_wire_phase_name(r->phase) : "", "call",
                     pp_json_text(r->call), "file", pp_json_text(r->file), "line",
                     (json_int_t)r->line, "callsPerStep", r->count / steps, "shareOfSteps",
                     r->steps < steps ? r->steps / steps : 1.0, "millisecondsPerStep",
                     r->ns / steps / 1e6);
}

static json_t *calls_of(row **rows, size_t n, double steps)
{
    json_t *all = json_array();
    row rest = {.layer = "", .call = "", .file = ""};
    for (size_t i = 0; i < n; i++) {
        if (i < PP_RUN_WAITS_TOLD) {
            (void)json_array_append_new(all, row_object(rows[i], steps));
            continue;
        }
        rest.count += rows[i]->count;
        rest.ns += rows[i]->ns;
        rest.steps = rows[i]->steps > rest.steps ? rows[i]->steps : rest.steps;
    }
    if (rest.count > 0)
        (void)json_array_append_new(all, row_object(&rest, steps));
    return all;
}

int pp_run_waits_describe(const pp_run_waits *w, json_t *results, pp_error *err)
{
    if (w->n_rows == 0 || w->steps <= 0)
        return 0;
    qsort(w->rows, w->n_rows, sizeof(row *), compare_by_time);
    json_t *waits = json_pack("{s:I, s:o}", "steps", (json_int_t)w->steps, "calls",
                              calls_of(w->rows, w->n_rows, w->steps));
    return json_object_set_new(results, "hostWaits", waits) < 0 ? pp_error_nomem(err) : 0;
}
