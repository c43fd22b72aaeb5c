#include "cli/run/run_kernels.h"

#include "cli/results/results.h"
#include "cli/run/texts.h"
#include "common/array.h"
#include "common/cleanup.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* Kernels of one name. Texts are held once, so that equal ones have one address. */
typedef struct row {
    size_t process; /* index into processes */
    pp_wire_phase phase;
    const char *layer; /* "": the step's own phases */
    const char *name;
    double count, ns;
} row;

typedef struct process {
    int64_t id;
    double steps;
} process;

struct pp_run_kernels {
    pp_texts texts;
    void *found; /* tree of rows */
    row **rows;
    size_t n_rows, rows_room;
    process *processes;
    size_t n_processes, processes_room;
    size_t name_bytes;
};

pp_run_kernels *pp_run_kernels_new(void)
{
    return calloc(1, sizeof(pp_run_kernels));
}

static void keep(void *element)
{
    (void)element;
}

void pp_run_kernels_free(pp_run_kernels *k)
{
    if (!k)
        return;
    tdestroy(k->found, keep);
    pp_texts_done(&k->texts);
    for (size_t i = 0; i < k->n_rows; i++)
        free(k->rows[i]);
    free(k->rows);
    free(k->processes);
    free(k);
}

/* ---- sums over batches ---- */

/* "" for one more name than may be held. */
static const char *hold_name(pp_run_kernels *k, const char *name, pp_error *err)
{
    const char *held = pp_texts_find(&k->texts, name);
    if (held)
        return held;
    const size_t bytes = strlen(name) + 1;
    if (k->name_bytes + bytes > PP_RUN_KERNELS_MAX_TEXT)
        return pp_texts_hold(&k->texts, "", err);
    k->name_bytes += bytes;
    return pp_texts_hold(&k->texts, name, err);
}

static int compare_numbers(uintptr_t a, uintptr_t b)
{
    return (a > b) - (a < b);
}

/* By phase, layer and name: texts by where they are. */
static int compare_by_item(const void *a, const void *b)
{
    const row *x = a, *y = b;
    int by = compare_numbers(x->phase, y->phase);
    by = by ? by : compare_numbers((uintptr_t)x->layer, (uintptr_t)y->layer);
    return by ? by : compare_numbers((uintptr_t)x->name, (uintptr_t)y->name);
}

static int compare_rows(const void *a, const void *b)
{
    const int by = compare_numbers(((const row *)a)->process, ((const row *)b)->process);
    return by ? by : compare_by_item(a, b);
}

static row *find_row(const pp_run_kernels *k, const row *like)
{
    row *const *found = tfind(like, &k->found, compare_rows);
    return found ? *found : NULL;
}

static row *new_row(pp_run_kernels *k, const row *like, pp_error *err)
{
    PP_CLEANUP_FREE row *r = malloc(sizeof *r);
    if (!r)
        (void)pp_error_nomem(err);
    if (!r || pp_array_reserve(&k->rows, &k->rows_room, k->n_rows + 1, sizeof(row *), err) < 0)
        return NULL;
    *r = *like;
    r->count = r->ns = 0;
    if (!tsearch(r, &k->found, compare_rows)) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    return k->rows[k->n_rows++] = PP_TAKE(r);
}

/* Rows without a name are not limited: there is one for each layer and phase. */
static int add_row(pp_run_kernels *k, const row *in, pp_error *err)
{
    row like = *in;
    row *to = find_row(k, &like);
    if (!to && k->n_rows >= PP_RUN_KERNELS_MAX_ROWS && *like.name) {
        like.name = pp_texts_hold(&k->texts, "", err);
        if (!like.name)
            return -1;
        to = find_row(k, &like);
    }
    if (!to && !(to = new_row(k, &like, err)))
        return -1;
    to->count += in->count;
    to->ns += in->ns;
    return 0;
}

static int find_process(pp_run_kernels *k, int64_t id, size_t *ret, pp_error *err)
{
    for (*ret = 0; *ret < k->n_processes; (*ret)++) {
        if (k->processes[*ret].id == id)
            return 0;
    }
    if (pp_array_reserve(&k->processes, &k->processes_room, k->n_processes + 1,
                         sizeof *k->processes, err) < 0)
        return -1;
    k->processes[k->n_processes++] = (process){.id = id};
    return 0;
}

/* A batch's layer numbers, and its names' places, as held texts. */
typedef struct layer {
    int64_t id;
    const char *name;
} layer;

typedef struct batch_texts {
    layer *layers;
    size_t n_layers;
    const char **names;
} batch_texts;

static int compare_layers(const void *a, const void *b)
{
    const int64_t x = ((const layer *)a)->id, y = ((const layer *)b)->id;
    return (x > y) - (x < y);
}

/* Layer 0 is the step itself. */
static int hold_layers(pp_run_kernels *k, const pp_wire_batch *batch, batch_texts *to,
                       pp_error *err)
{
    to->layers = calloc(batch->layer_count + 1, sizeof *to->layers);
    if (!to->layers)
        return pp_error_nomem(err);
    for (size_t i = 0; i <= batch->layer_count; i++) {
        const pp_wire_layer *in = i ? &batch->layers[i - 1] : NULL;
        layer *l = &to->layers[to->n_layers++];
        *l = (layer){in ? in->id : 0, pp_texts_hold(&k->texts, in ? in->name : "", err)};
        if (!l->name)
            return -1;
    }
    qsort(to->layers, to->n_layers, sizeof *to->layers, compare_layers);
    return 0;
}

static int hold_names(pp_run_kernels *k, const pp_strings *names, batch_texts *to, pp_error *err)
{
    to->names = calloc(names->count + 1, sizeof *to->names);
    if (!to->names)
        return pp_error_nomem(err);
    for (size_t i = 0; i < names->count; i++) {
        to->names[i] = hold_name(k, names->items[i], err);
        if (!to->names[i])
            return -1;
    }
    return 0;
}

static int add_all(pp_run_kernels *k, const pp_wire_kernels *kernels, size_t of,
                   const batch_texts *held, pp_error *err)
{
    for (size_t i = 0; i < kernels->count; i++) {
        const pp_wire_kernel *in = &kernels->rows[i];
        const layer *l = bsearch(&(layer){.id = in->layer}, held->layers, held->n_layers,
                                 sizeof *held->layers, compare_layers);
        const row r = {of,
                       in->phase,
                       l ? l->name : NULL,
                       held->names[in->name],
                       (double)in->count,
                       (double)in->duration};
        if (l && add_row(k, &r, err) < 0)
            return -1;
    }
    return 0;
}

int pp_run_kernels_add(pp_run_kernels *k, const pp_wire_batch *batch, pp_error *err)
{
    size_t of;
    batch_texts held = {0};
    if (batch->capture.dwell || batch->kernels.count == 0)
        return 0;
    if (find_process(k, batch->process.id, &of, err) < 0)
        return -1;
    int rc = hold_layers(k, batch, &held, err);
    if (rc == 0)
        rc = hold_names(k, &batch->kernels.names, &held, err);
    if (rc == 0)
        rc = add_all(k, &batch->kernels, of, &held, err);
    if (rc == 0)
        k->processes[of].steps += (double)batch->kernels.steps;
    free(held.layers);
    free(held.names);
    return rc;
}

/* ---- results ---- */

/* The kernels of one GPU: what all its processes ran is added up. */
typedef struct told {
    row *rows;
    size_t n;
    double steps;
} told;

/* Makes one of rows that are alike but for their process; they are ordered by item then. */
static size_t merge(row *rows, size_t n)
{
    size_t to = 0;
    if (n == 0)
        return 0;
    qsort(rows, n, sizeof *rows, compare_by_item);
    for (size_t i = 1; i < n; i++) {
        if (compare_by_item(&rows[to], &rows[i]) != 0) {
            rows[++to] = rows[i];
            continue;
        }
        rows[to].count += rows[i].count;
        rows[to].ns += rows[i].ns;
    }
    return to + 1;
}

static bool uses(const pp_activity *a, int64_t id, const char *gpu)
{
    for (size_t i = 0; i < a->n_processes; i++) {
        if (a->processes[i].process == id && pp_activity_uses(a, (uint32_t)i, gpu))
            return true;
    }
    return false;
}

static int gather(const pp_run_kernels *k, const pp_activity *a, const char *gpu, told *ret,
                  pp_error *err)
{
    PP_CLEANUP_FREE bool *used = calloc(k->n_processes + 1, sizeof *used);
    ret->rows = calloc(k->n_rows + 1, sizeof *ret->rows);
    if (!used || !ret->rows)
        return pp_error_nomem(err);
    for (size_t i = 0; i < k->n_processes; i++) {
        used[i] = uses(a, k->processes[i].id, gpu);
        ret->steps += used[i] ? k->processes[i].steps : 0;
    }
    for (size_t i = 0; i < k->n_rows; i++) {
        if (used[k->rows[i]->process])
            ret->rows[ret->n++] = *k->rows[i];
    }
    ret->n = merge(ret->rows, ret->n);
    return 0;
}

/* Most time first; those not told apart last. */
static int compare_by_time(const void *a, const void *b)
{
    const row *x = a, *y = b;
    if (!*x->name != !*y->name)
        return *x->name ? -1 : 1;
    const int by = (y->ns > x->ns) - (y->ns < x->ns);
    return by ? by : strcmp(x->name, y->name);
}

static json_t *kernel_object(const row *r, double steps)
{
    return json_pack("{s:o, s:f, s:f}", "name", pp_json_text(r->name), "callsPerStep",
                     r->count / steps, "millisecondsPerStep", r->ns / steps / 1e6);
}

/* Orders the rows by time; names of more than an item may have are given up. */
static json_t *kernels_of(row *rows, size_t n, double steps)
{
    json_t *all = json_array();
    row rest = {.name = ""};
    if (n > 0)
        qsort(rows, n, sizeof *rows, compare_by_time);
    for (size_t i = 0; i < n; i++) {
        if (*rows[i].name && i < PP_RUN_KERNELS_OF_ITEM) {
            (void)json_array_append_new(all, kernel_object(&rows[i], steps));
            continue;
        }
        rest.count += rows[i].count;
        rest.ns += rows[i].ns;
    }
    if (rest.count > 0)
        (void)json_array_append_new(all, kernel_object(&rest, steps));
    return all;
}

static int compare_items(const void *a, const void *b)
{
    const row *x = a, *y = b;
    const int by = compare_numbers(x->phase, y->phase);
    return by ? by : compare_numbers((uintptr_t)x->layer, (uintptr_t)y->layer);
}

static json_t *kernels_of_item(const pp_run_kernels *k, const told *t, const json_t *item)
{
    row like = {.layer = pp_texts_find(&k->texts, pp_results_text(item, "layer"))};
    row *from = NULL;
    if (like.layer && pp_wire_phase_from_name(pp_results_text(item, "phase"), &like.phase) == 0)
        from = bsearch(&like, t->rows, t->n, sizeof *t->rows, compare_items);
    if (!from)
        return json_array();
    row *end = from + 1;
    while (from > t->rows && compare_items(from - 1, &like) == 0)
        from--;
    while (end < t->rows + t->n && compare_items(end, &like) == 0)
        end++;
    return kernels_of(from, (size_t)(end - from), t->steps);
}

/* Of all items. NULL where memory is out. */
static json_t *kernels_of_job(const told *t)
{
    PP_CLEANUP_FREE row *rows = calloc(t->n + 1, sizeof *rows);
    for (size_t i = 0; rows && i < t->n; i++) {
        rows[i] = t->rows[i];
        rows[i].layer = NULL;
        rows[i].phase = PP_WIRE_FORWARD;
    }
    return rows ? kernels_of(rows, merge(rows, t->n), t->steps) : NULL;
}

static int describe_items(const pp_run_kernels *k, const told *t, json_t *gpu, pp_error *err)
{
    size_t i;
    json_t *item;
    if (json_object_set_new(gpu, "kernelSteps", json_integer((json_int_t)t->steps)) < 0)
        return pp_error_nomem(err);
    json_array_foreach(json_object_get(gpu, "items"), i, item)
    {
        const char *kind = pp_results_text(item, "kind");
        if (strcmp(kind, "idle") == 0)
            continue;
        json_t *all = strcmp(kind, "job") == 0 ? kernels_of_job(t) : kernels_of_item(k, t, item);
        if (json_object_set_new(item, "kernels", all) < 0)
            return pp_error_nomem(err);
    }
    return 0;
}

int pp_run_kernels_describe(const pp_run_kernels *k, const pp_activity *activity, json_t *gpu,
                            pp_error *err)
{
    told t = {0};
    int rc = gather(k, activity, pp_results_text(gpu, "gpu"), &t, err);
    if (rc == 0 && t.n > 0)
        rc = describe_items(k, &t, gpu, err);
    free(t.rows);
    return rc;
}
