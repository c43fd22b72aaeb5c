#include "estimate/times/item_times.h"

#include "estimate/items/item_index.h"
#include "estimate/times/pieces.h"

#include <math.h>

static int find_number(void *context, const pp_piece_name *name, uint32_t *ret, pp_error *err)
{
    (void)err;
    const char *layer = pp_wire_phase_has_layer(name->phase) ? name->layer : "";
    const size_t item = pp_item_index_find(context, layer, (pp_phase)name->phase);
    *ret = item < PP_SPREAD_REST ? (uint32_t)item : PP_SPREAD_REST;
    return 0;
}

static pp_time_error error_of(pp_spread_mean m)
{
    return (pp_time_error){m.standard_error, m.freedom};
}

static void fill_item(const pp_spread_times *t, const pp_estimates *s, pp_estimates_item *to)
{
    const double steps = (double)s->step_count;
    const pp_spread_mean total = pp_spread_shared(t->total, (double)to->total_ns / steps);
    to->step_error = error_of(to->kind == PP_ITEM_OTHER ? t->total : total);
    to->busy_error = error_of(pp_spread_shared(t->busy, (double)to->busy_ns / steps));
    to->idle_error = error_of(t->busy_share);
}

static void fill_records(pp_estimates *s)
{
    for (size_t i = 0; i < s->n_estimates; i++) {
        pp_estimate *e = &s->estimates[i];
        if (e->method == PP_METHOD_RECORDS)
            e->standard_error = 100 * s->items[e->item].idle_error.standard_error;
    }
}

static void fill(pp_spread *spread, pp_estimates *s)
{
    s->step_error = error_of(pp_spread_marked(spread));
    s->counted_error = error_of(pp_spread_counted(spread));
    for (size_t i = 0; i < s->n_items; i++) {
        pp_estimates_item *to = &s->items[i];
        const pp_time_error none = {(double)NAN, (double)NAN};
        to->step_error = to->busy_error = to->idle_error = none;
        if (to->kind == PP_ITEM_IDLE || to->kind == PP_ITEM_JOB || s->step_count <= 0)
            continue;
        const pp_spread_times t = to->kind == PP_ITEM_OTHER ? pp_spread_rest(spread)
                                                            : pp_spread_item(spread, (uint32_t)i);
        fill_item(&t, s, to);
    }
    fill_records(s);
}

int pp_item_times_fill(const pp_activity *activity, pp_estimates *s, pp_error *err)
{
    pp_item_index index;
    pp_spread *spread = NULL;
    if (pp_item_index_make(s, &index, err) < 0)
        return -1;
    const int rc = pp_pieces_collect(activity, s->gpu, find_number, &index, &spread, err);
    if (rc == 0)
        fill(spread, s);
    pp_spread_free(spread);
    pp_item_index_done(&index);
    return rc;
}
