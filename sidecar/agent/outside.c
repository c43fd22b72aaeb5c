#include "sidecar/agent/outside.h"

#include <string.h>

void pp_outside_clear(pp_outside *o)
{
    memset(o, 0, sizeof *o);
    o->since = o->forward_since = -1;
}

static void forget(pp_outside_kept *k)
{
    k->count = 0;
    k->too_many = false;
}

/* Ends the part that is open, and keeps it. */
static void keep(pp_outside_kept *k, int64_t *since, int64_t time)
{
    if (*since >= 0 && time > *since) {
        if (k->count == PP_OUTSIDE_KEPT) {
            k->too_many = true;
        } else {
            k->parts[k->count].start = *since;
            k->parts[k->count++].end = time;
        }
    }
    *since = -1;
}

static void tell(pp_outside *o, const pp_outside_part *part)
{
    if (part->layer && o->told_count < sizeof o->told / sizeof *o->told)
        o->told[o->told_count++] = *part;
}

/* It is the loss that was kept: one call. */
static void tell_loss(pp_outside *o, pp_outside_kept *k, uint8_t phase)
{
    for (size_t i = 0; i < k->count && !k->too_many && o->tells_loss; i++)
        tell(o, &(pp_outside_part){.start = k->parts[i].start,
                                   .end = k->parts[i].end,
                                   .layer = o->loss,
                                   .phase = phase,
                                   .goes_on = i + 1 < k->count});
    forget(k);
}

static void tell_gradients(pp_outside *o, int64_t start, int64_t end, bool goes_on)
{
    o->any = true;
    tell(o, &(pp_outside_part){start, end, o->gradients, PP_MARK_BACKWARD, goes_on});
}

/* ---- the engine ---- */

/* What runs now, and what ran since the last piece, is not known. */
static void hold(pp_outside *o)
{
    o->held = true;
    o->begun = true;
    o->since = -1;
    forget(&o->backward);
}

static void end_part(pp_outside *o, int64_t time)
{
    if (!o->begun)
        keep(&o->backward, &o->since, time);
    else if (o->since >= 0 && time > o->since)
        tell_gradients(o, o->since, time, true);
    o->since = -1;
}

static void begin_engine(pp_outside *o, const pp_mark *mark, int64_t time)
{
    if (o->engines++ > 0) {
        hold(o);
        return;
    }
    o->loss = mark->layer;
    o->gradients = (uint32_t)mark->value;
    o->tells_loss = mark->flags & PP_MARK_LOSS;
    o->begun = o->held = o->any = false;
    forget(&o->backward);
    o->since = o->busy == 0 ? time : -1;
    if (o->returned && o->thread == mark->thread) {
        keep(&o->forward, &o->forward_since, time);
        tell_loss(o, &o->forward, PP_MARK_FORWARD);
    }
    o->returned = false;
}

static void end_engine(pp_outside *o, int64_t time)
{
    if (o->engines == 0 || --o->engines > 0)
        return;
    const bool goes = o->begun && o->since >= 0 && time > o->since;
    if (goes || o->any) /* the last one of them ends the call */
        tell_gradients(o, goes ? o->since : time, time, false);
    forget(&o->backward); /* no layer's backward was in it: it may be anything */
}

void pp_outside_engine(pp_outside *o, const pp_mark *mark, int64_t time)
{
    o->told_count = 0;
    if (mark->kind == PP_MARK_BEGIN) {
        begin_engine(o, mark, time);
        return;
    }
    end_engine(o, time);
    if (o->engines == 1) {
        o->held = false;
        o->since = o->busy == 0 ? time : -1;
    }
}

/* ---- pieces ---- */

static void set_open(pp_outside *o, uint8_t thread, bool open)
{
    if (open != o->open[thread])
        o->busy = open ? o->busy + 1 : o->busy - 1;
    o->open[thread] = open;
}

void pp_outside_left(pp_outside *o, uint8_t thread)
{
    set_open(o, thread, false);
}

/* A forward that runs within backward, and not as what a checkpoint has marked: what comes before
 * it may be run again, too. */
static bool is_rerun(const pp_mark *mark)
{
    return mark->kind == PP_MARK_BEGIN && mark->phase == PP_MARK_RECOMPUTE &&
           !(mark->flags & PP_MARK_AGAIN);
}

static void mark_in_engine(pp_outside *o, const pp_mark *mark, int64_t time, unsigned before,
                           bool prolonged)
{
    if (before == 0 && is_rerun(mark))
        hold(o);
    if (before == 0 && o->busy > 0)
        end_part(o, time);
    if (mark->kind == PP_MARK_BEGIN && mark->phase == PP_MARK_BACKWARD && !o->begun &&
        !(mark->flags & PP_MARK_RANGE)) {
        tell_loss(o, &o->backward, PP_MARK_BACKWARD);
        o->begun = true;
    }
    if (o->busy == 0 && !o->held && (before > 0 || prolonged))
        o->since = time;
}

/* Whether a model's forward has begun, or one that a checkpoint may run again. */
static bool is_model(const pp_mark *mark)
{
    return (mark->flags & PP_MARK_MODEL) &&
           (mark->phase == PP_MARK_FORWARD || mark->phase == PP_MARK_INFERENCE);
}

static void mark_in_forward(pp_outside *o, const pp_mark *mark, int64_t time, bool was,
                            bool in_piece)
{
    const bool open = o->open[mark->thread];
    const bool here = o->returned && o->thread == mark->thread;
    if (!was && open && here) {
        keep(&o->forward, &o->forward_since, time);
        if (is_model(mark))
            forget(&o->forward); /* what leads from one model to another is no loss */
        if (mark->phase == PP_MARK_OPTIMIZER)
            o->returned = false; /* no backward came */
    } else if (!in_piece && mark->phase == PP_MARK_FORWARD && is_model(mark)) {
        o->returned = true;
        o->thread = mark->thread;
        o->forward_since = open ? -1 : time;
        forget(&o->forward);
    } else if (was && !open && here) {
        o->forward_since = time;
    }
}

void pp_outside_mark(pp_outside *o, const pp_mark *mark, int64_t time, pp_outside_open open,
                     bool prolonged)
{
    const bool was = o->open[mark->thread];
    const unsigned before = o->busy;
    o->told_count = 0;
    set_open(o, mark->thread, open != PP_OUTSIDE_NONE);
    if (o->engines > 0)
        mark_in_engine(o, mark, time, before, prolonged);
    else
        mark_in_forward(o, mark, time, was, open == PP_OUTSIDE_PIECE);
}
