#include "sidecar/agent/outbox.h"

#include <stdlib.h>
#include <utlist.h>

typedef struct item {
    pp_outbox_item is;
    char *text;
    bool sent;    /* on this connection */
    bool counted; /* it was sent on some connection */
    struct item *prev, *next;
} item;

struct pp_outbox {
    item *items;
    size_t count;
    size_t in_flight;
    size_t bytes[2]; /* in memory, in the spool */
    size_t max[2];
    int64_t dropped;
    pp_outbox_gone gone;
    void *user;
};

pp_outbox *pp_outbox_new(size_t max_bytes, size_t max_spooled, pp_outbox_gone gone, void *user)
{
    pp_outbox *o = calloc(1, sizeof *o);
    if (o)
        *o = (pp_outbox){.max = {max_bytes, max_spooled}, .gone = gone, .user = user};
    return o;
}

static void release(pp_outbox *o, item *i)
{
    DL_DELETE(o->items, i);
    o->count--;
    o->in_flight -= i->sent;
    o->bytes[!i->text] -= i->is.length;
    free(i->text);
    free(i);
}

static void drop(pp_outbox *o, item *i)
{
    if (!i->text)
        o->gone(o->user, i->is.seq);
    release(o, i);
}

/* What is in the spool stays there. */
void pp_outbox_free(pp_outbox *o)
{
    if (!o)
        return;
    while (o->items)
        release(o, o->items);
    free(o);
}

/* Makes room for so many bytes in memory (0) or in the spool (1). */
static void make_room(pp_outbox *o, int where, size_t length)
{
    item *i, *next;
    DL_FOREACH_SAFE(o->items, i, next)
    {
        if (o->bytes[where] + length <= o->max[where])
            return;
        if ((i->text ? 0 : 1) != where)
            continue;
        o->dropped += i->is.events;
        drop(o, i);
    }
}

int pp_outbox_add(pp_outbox *o, int64_t seq, int64_t events, char *text, size_t length,
                  pp_error *err)
{
    int where = !text;
    item *i = length <= o->max[where] ? calloc(1, sizeof *i) : NULL;
    if (!i) {
        if (!text)
            o->gone(o->user, seq);
        free(text);
        o->dropped += events;
        return length > o->max[where]
                   ? pp_error_set(err, PP_ERR_TOO_LARGE, "a batch of %zu bytes", length)
                   : pp_error_nomem(err);
    }
    make_room(o, where, length);
    i->is = (pp_outbox_item){.seq = seq, .events = events, .text = text, .length = length};
    i->text = text;
    DL_APPEND(o->items, i);
    o->count++;
    o->bytes[where] += length;
    return 0;
}

/* Sent ones are in front: batches are sent in order. */
static item *first_unsent(const pp_outbox *o)
{
    if (o->in_flight >= PP_OUTBOX_IN_FLIGHT)
        return NULL;
    item *i;
    DL_FOREACH(o->items, i)
    {
        if (!i->sent)
            return i;
    }
    return NULL;
}

bool pp_outbox_next(pp_outbox *o, pp_outbox_item *ret)
{
    item *i = first_unsent(o);
    if (!i)
        return false;
    i->is.first = !i->counted;
    i->sent = i->counted = true;
    o->in_flight++;
    *ret = i->is;
    return true;
}

bool pp_outbox_remove(pp_outbox *o, int64_t seq)
{
    item *i;
    DL_FOREACH(o->items, i)
    {
        if (i->is.seq == seq) {
            drop(o, i);
            return true;
        }
    }
    return false;
}

void pp_outbox_rewind(pp_outbox *o)
{
    item *i;
    DL_FOREACH(o->items, i)
    {
        i->sent = false;
    }
    o->in_flight = 0;
}

size_t pp_outbox_count(const pp_outbox *o)
{
    return o->count;
}

int64_t pp_outbox_take_dropped(pp_outbox *o)
{
    int64_t dropped = o->dropped;
    o->dropped = 0;
    return dropped;
}
