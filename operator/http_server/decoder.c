#include "operator/http_server/decoder.h"

#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>

static const int64_t TURN_NS = 5 * 1000000;

typedef struct list {
    agent_message *first;
    agent_message *last;
} list;

struct decoder {
    uv_thread_t thread;
    uv_mutex_t lock; /* of what follows, up to `stop` */
    uv_cond_t more;
    list in;
    list out;
    bool stop;
    uv_async_t async; /* something is out */
    void (*done)(void *user, agent_message *m);
    void *user;
};

static void push(list *l, agent_message *m)
{
    m->next = NULL;
    if (l->last)
        l->last->next = m;
    else
        l->first = m;
    l->last = m;
}

static agent_message *shift(list *l)
{
    agent_message *m = l->first;
    if (m) {
        l->first = m->next;
        if (!l->first)
            l->last = NULL;
    }
    return m;
}

/** The next message to decode; NULL: it is over. */
static agent_message *wait_for_one(decoder *d)
{
    uv_mutex_lock(&d->lock);
    while (!d->stop && !d->in.first)
        uv_cond_wait(&d->more, &d->lock);
    agent_message *m = d->stop ? NULL : shift(&d->in);
    uv_mutex_unlock(&d->lock);
    return m;
}

static void work(void *argument)
{
    decoder *d = argument;
    pp_thread_step_back();
    for (agent_message *m = wait_for_one(d); m; m = wait_for_one(d)) {
        agent_message_decode(m);
        uv_mutex_lock(&d->lock);
        push(&d->out, m);
        uv_mutex_unlock(&d->lock);
        (void)uv_async_send(&d->async);
    }
}

static agent_message *take_decoded(decoder *d)
{
    uv_mutex_lock(&d->lock);
    agent_message *m = shift(&d->out);
    uv_mutex_unlock(&d->lock);
    return m;
}

/* What does not fit into this turn of the loop has the next one. */
static void hand_out(uv_async_t *async)
{
    decoder *d = async->data;
    const int64_t end = pp_time_monotonic() + TURN_NS;
    for (agent_message *m = take_decoded(d); m; m = take_decoded(d)) {
        d->done(d->user, m);
        if (pp_time_monotonic() >= end) {
            (void)uv_async_send(&d->async);
            return;
        }
    }
}

decoder *decoder_new(uv_loop_t *loop, void (*done)(void *user, agent_message *m), void *user)
{
    decoder *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->done = done;
    d->user = user;
    uv_mutex_init(&d->lock);
    uv_cond_init(&d->more);
    uv_async_init(loop, &d->async, hand_out);
    d->async.data = d;
    if (uv_thread_create(&d->thread, work, d) == 0)
        return d;
    d->stop = true;
    decoder_stop(d);
    return NULL;
}

void decoder_submit(decoder *d, agent_message *m)
{
    uv_mutex_lock(&d->lock);
    push(&d->in, m);
    uv_cond_signal(&d->more);
    uv_mutex_unlock(&d->lock);
}

static void free_all(list *l)
{
    for (agent_message *m = shift(l); m; m = shift(l))
        agent_message_free(m);
}

static void on_closed(uv_handle_t *handle)
{
    decoder *d = handle->data;
    uv_cond_destroy(&d->more);
    uv_mutex_destroy(&d->lock);
    free(d);
}

void decoder_stop(decoder *d)
{
    if (!d)
        return;
    uv_mutex_lock(&d->lock);
    const bool runs = !d->stop;
    d->stop = true;
    uv_cond_signal(&d->more);
    uv_mutex_unlock(&d->lock);
    if (runs)
        (void)uv_thread_join(&d->thread);
    free_all(&d->in);
    free_all(&d->out);
    uv_close((uv_handle_t *)&d->async, on_closed);
}
