#include "sidecar/agent/batch.h"

#include "common/cleanup.h"

#include <stdlib.h>
#include <string.h>

enum { PHASES = PP_MARK_PHASES, COLUMNS = (PP_RING_LAYERS + 1) * PHASES, CELLS_MAX = 4000000 };

typedef struct piece {
    pp_piece piece;
    int64_t step;
} piece;

struct pp_batcher {
    int64_t id;
    int64_t offset;
    int64_t start; /* of the batch, the marks' clock */
    int64_t end;
    pp_wire_step *steps;
    size_t step_count;
    int64_t dwell; /* number; 0: none */
    bool background;
    int64_t timeline; /* steps of each capture that go as intervals */
    int64_t gone;     /* steps of this capture in batches before */
    piece *pieces;
    size_t piece_count;
    size_t piece_capacity;
};

pp_batcher *pp_batcher_new(void)
{
    pp_batcher *b = calloc(1, sizeof *b);
    if (b)
        b->steps = calloc(PP_BATCH_STEPS, sizeof *b->steps);
    if (b && !b->steps) {
        free(b);
        return NULL;
    }
    return b;
}

void pp_batcher_free(pp_batcher *b)
{
    if (!b)
        return;
    free(b->steps);
    free(b->pieces);
    free(b);
}

void pp_batcher_start(pp_batcher *b, int64_t id, int64_t start, int64_t offset)
{
    b->id = id;
    b->offset = offset;
    b->start = b->end = start;
    b->gone = 0;
    b->dwell = 0;
    b->background = false;
    b->step_count = b->piece_count = 0;
}

void pp_batcher_dwell(pp_batcher *b, int64_t number, bool background)
{
    b->dwell = number;
    b->background = background;
    b->timeline = number ? 0 : b->timeline;
}

void pp_batcher_timeline(pp_batcher *b, int64_t steps)
{
    b->timeline = steps;
}

void pp_batcher_renumber(pp_batcher *b, int64_t id)
{
    b->id = id;
}

size_t pp_batcher_steps(const pp_batcher *b)
{
    return b->step_count;
}

bool pp_batcher_fits(const pp_batcher *b, size_t pieces)
{
    if (b->step_count == 0)
        return true; /* a step is never torn; one that is too large goes as a grid */
    if (b->gone + (int64_t)b->step_count == b->timeline)
        return false;
    return b->step_count < PP_BATCH_STEPS && b->piece_count + pieces <= PP_BATCH_INTERVALS;
}

static int reserve(pp_batcher *b, size_t more, pp_error *err)
{
    if (b->piece_count + more <= b->piece_capacity)
        return 0;
    size_t capacity = b->piece_count + more + 1024;
    piece *pieces = realloc(b->pieces, capacity * sizeof *pieces);
    if (!pieces)
        return pp_error_nomem(err);
    b->pieces = pieces;
    b->piece_capacity = capacity;
    return 0;
}

int pp_batcher_add(pp_batcher *b, const pp_step *step, pp_error *err)
{
    if (b->step_count >= PP_BATCH_STEPS)
        return pp_error_set(err, PP_ERR_INTERNAL, "a batch of too many steps");
    if (reserve(b, step->count, err) < 0)
        return -1;
    for (size_t i = 0; i < step->count; i++)
        b->pieces[b->piece_count++] = (piece){.piece = step->pieces[i], .step = step->number};
    b->steps[b->step_count++] = (pp_wire_step){.number = step->number,
                                               .start = step->start + b->offset,
                                               .duration = step->end - step->start,
                                               .epoch = step->epoch,
                                               .batch = step->batch,
                                               .gap = step->gap};
    b->end = step->end;
    return 0;
}

static int fill_layers(const pp_batcher *b, pp_batcher_layer layer, void *user,
                       pp_wire_batch *batch, pp_error *err)
{
    bool used[PP_RING_LAYERS + 1] = {false};
    size_t count = 0;
    for (size_t i = 0; i < b->piece_count; i++) {
        uint32_t id = b->pieces[i].piece.layer;
        count += id && !used[id];
        used[id] = true;
    }
    batch->layers = calloc(count + 1, sizeof *batch->layers);
    if (!batch->layers)
        return pp_error_nomem(err);
    for (uint32_t id = 1; id <= PP_RING_LAYERS; id++) {
        if (!used[id])
            continue;
        pp_wire_layer *to = &batch->layers[batch->layer_count++];
        to->id = id;
        if (layer(user, id, to, err) < 0)
            return -1;
    }
    return 0;
}

static int fill_steps(const pp_batcher *b, pp_wire_batch *batch, pp_error *err)
{
    batch->steps = calloc(b->step_count + 1, sizeof *batch->steps);
    if (!batch->steps)
        return pp_error_nomem(err);
    if (b->step_count)
        memcpy(batch->steps, b->steps, b->step_count * sizeof *batch->steps);
    batch->step_count = b->step_count;
    return 0;
}

static int fill_intervals(const pp_batcher *b, pp_wire_batch *batch, pp_error *err)
{
    batch->intervals = calloc(b->piece_count + 1, sizeof *batch->intervals);
    if (!batch->intervals)
        return pp_error_nomem(err);
    for (size_t i = 0; i < b->piece_count; i++) {
        const pp_piece *p = &b->pieces[i].piece;
        batch->intervals[i] = (pp_wire_interval){.layer = p->layer,
                                                 .step = b->pieces[i].step,
                                                 .start = p->start + b->offset,
                                                 .duration = p->end - p->start,
                                                 .phase = (pp_wire_phase)p->phase,
                                                 .kernels = p->busy,
                                                 .goes_on = p->goes_on};
    }
    batch->interval_count = b->piece_count;
    return 0;
}

/* Sums of one (layer, phase) in one cell. */
typedef struct sum {
    int64_t busy;
    int64_t kernels; /* -1 once a piece's is not known */
    int32_t calls;
} sum;

/* The (layer, phase) pairs in use, numbered densely. */
typedef struct columns {
    int32_t number[COLUMNS]; /* 0: not in use; else from 1 */
    uint16_t key[COLUMNS];
    size_t count;
} columns;

static size_t column_of(const pp_piece *p)
{
    return (size_t)p->layer * PHASES + p->phase;
}

static void find_columns(const pp_batcher *b, columns *c)
{
    for (size_t i = 0; i < b->piece_count; i++) {
        size_t key = column_of(&b->pieces[i].piece);
        if (c->number[key])
            continue;
        c->key[c->count] = (uint16_t)key;
        c->number[key] = (int32_t)++c->count;
    }
}

/* The kernels' time of a piece up to `until` (from its start on), spread evenly over it. */
static int64_t kernels_until(const pp_piece *p, int64_t until)
{
    int64_t length = p->end - p->start;
    return length ? (int64_t)((double)p->busy * (double)until / (double)length) : 0;
}

static int64_t at_most_a_cell(int64_t ns)
{
    return ns > PP_WIRE_CELL_MAX ? PP_WIRE_CELL_MAX : ns; /* threads at once in one layer */
}

static void add_piece(sum *sums, const columns *c, const pp_piece *p, int64_t start)
{
    size_t column = (size_t)c->number[column_of(p)] - 1;
    int64_t from = p->start - start;
    int64_t to = p->end - start;
    for (int64_t cell = from / PP_WIRE_CELL_MAX; cell <= to / PP_WIRE_CELL_MAX; cell++) {
        int64_t lower = cell * PP_WIRE_CELL_MAX;
        int64_t upper = lower + PP_WIRE_CELL_MAX;
        int64_t begin = from > lower ? from : lower;
        int64_t end = to < upper ? to : upper;
        sum *s = &sums[(size_t)cell * c->count + column];
        s->busy = at_most_a_cell(s->busy + end - begin);
        if (p->busy < 0 || s->kernels < 0)
            s->kernels = -1;
        else
            s->kernels = at_most_a_cell(s->kernels + kernels_until(p, end - from) -
                                        kernels_until(p, begin - from));
        s->calls += to < upper && !p->goes_on;
    }
}

static int fill_cells(const sum *sums, size_t cells, const columns *c, pp_wire_grid *grid,
                      pp_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < cells * c->count; i++)
        count += sums[i].busy || sums[i].calls;
    if (count > PP_BATCH_CELLS)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a batch of %zu cells", count);
    grid->cells = calloc(count + 1, sizeof *grid->cells);
    if (!grid->cells)
        return pp_error_nomem(err);
    for (size_t i = 0; i < cells * c->count; i++) {
        if (!sums[i].busy && !sums[i].calls)
            continue;
        uint16_t key = c->key[i % c->count];
        grid->cells[grid->count++] = (pp_wire_cell){.cell = (int64_t)(i / c->count),
                                                    .layer = key / PHASES,
                                                    .busy = sums[i].busy,
                                                    .calls = sums[i].calls,
                                                    .phase = (pp_wire_phase)(key % PHASES),
                                                    .kernels = sums[i].kernels};
    }
    return 0;
}

static int fill_grid(const pp_batcher *b, pp_wire_batch *batch, pp_error *err)
{
    PP_CLEANUP_FREE columns *c = calloc(1, sizeof *c);
    if (!c)
        return pp_error_nomem(err);
    find_columns(b, c);
    size_t cells = (size_t)((b->end - b->start) / PP_WIRE_CELL_MAX) + 1;
    if (cells > CELLS_MAX / (c->count + 1))
        return pp_error_set(err, PP_ERR_TOO_LARGE, "a grid of %zu cells", cells);
    PP_CLEANUP_FREE sum *sums = calloc(cells * c->count + 1, sizeof *sums);
    if (!sums)
        return pp_error_nomem(err);
    for (size_t i = 0; i < b->piece_count; i++)
        add_piece(sums, c, &b->pieces[i].piece, b->start);
    batch->grid.start = b->start + b->offset;
    batch->grid.cell = PP_WIRE_CELL_MAX;
    return fill_cells(sums, cells, c, &batch->grid, err);
}

/* Exact intervals as long as they are few, or a timeline's. */
static bool wants_grid(const pp_batcher *b)
{
    double seconds = (double)(b->end - b->start) / 1e9;
    bool timeline = b->gone + (int64_t)b->step_count <= b->timeline;
    return b->piece_count > PP_BATCH_INTERVALS ||
           (!timeline && b->piece_count > PP_BATCH_RATE / 4 &&
            (double)b->piece_count > (double)PP_BATCH_RATE * seconds);
}

static int fill(const pp_batcher *b, pp_batcher_layer layer, void *user, pp_wire_batch *batch,
                pp_error *err)
{
    if (fill_layers(b, layer, user, batch, err) < 0 || fill_steps(b, batch, err) < 0)
        return -1;
    return wants_grid(b) ? fill_grid(b, batch, err) : fill_intervals(b, batch, err);
}

int pp_batcher_cut(pp_batcher *b, bool last, pp_batcher_layer layer, void *user,
                   pp_wire_batch *batch, int64_t *ret_events, pp_error *err)
{
    batch->capture = (pp_wire_capture){.id = b->id,
                                       .start = b->start + b->offset,
                                       .end = b->end + b->offset,
                                       .last = last,
                                       .dwell = b->dwell,
                                       .background = b->background,
                                       .monotonic = b->offset ? b->start : 0};
    int rc = fill(b, layer, user, batch, err);
    *ret_events = 0;
    for (size_t i = 0; i < b->piece_count; i++)
        *ret_events += !b->pieces[i].piece.goes_on;
    b->start = b->end;
    b->gone += (int64_t)b->step_count;
    b->step_count = b->piece_count = 0;
    return rc;
}
