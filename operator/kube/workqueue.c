#include "operator/kube/workqueue.h"

#include "common/time.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum {
    DEFAULT_MAX_KEYS = 100 * 1000,
    FIRST_BACKOFF_MS = 5,
    MAX_BACKOFF_MS = 1000 * 1000,
    MAX_STARTS_PER_TURN = 32, /* then the loop serves its descriptors before the next ones */
};
static const int64_t NS_PER_MS = 1000000;
/* The same where one look takes long, or the process does not get the processor. */
static const int64_t MAX_TURN_NS = 5 * 1000000;

typedef struct work_item {
    bool queued;
    bool again; /**< added while it was worked on */
    bool processing;
    bool in_call; /**< process is on the stack with its key */
    unsigned failures;
    size_t heap_at; /**< place in the heap of delayed items + 1; 0: not in it */
    int64_t due_ns;
    int64_t queued_ns; /**< monotonic, since when it waits */
    struct work_item *prev, *next;
    UT_hash_handle hh;
    char key[];
} work_item;

struct pp_workqueue {
    pp_workqueue_options options;
    uv_timer_t timer; /**< for the first delayed item */
    /** Runs while items are ready, once in a turn of the loop. A timer of 0 ms would not do: before
     * libuv 1.45 one that is started anew by its callback is run again in the same turn. */
    uv_idle_t ready;
    unsigned handles; /**< of both, that are not closed */
    work_item *items; /**< by key: all that is known */
    work_item *queue; /**< in the order added */
    size_t depth;
    unsigned processing;
    work_item **heap; /**< delayed items, the earliest first */
    size_t heap_count, heap_capacity;
    bool closing;
    bool dispatching;
};

int64_t pp_workqueue_backoff_ms(unsigned failures)
{
    if (failures >= 18) /* 5 ms << 18 is beyond the maximum, and shifts stay defined */
        return MAX_BACKOFF_MS;
    int64_t delay = (int64_t)FIRST_BACKOFF_MS << failures;
    return delay < MAX_BACKOFF_MS ? delay : MAX_BACKOFF_MS;
}

/* ---- the heap of delayed items ---- */

static void heap_put(pp_workqueue *q, size_t at, work_item *item)
{
    q->heap[at] = item;
    item->heap_at = at + 1;
}

static void heap_up(pp_workqueue *q, size_t at)
{
    work_item *item = q->heap[at];
    while (at > 0 && q->heap[(at - 1) / 2]->due_ns > item->due_ns) {
        heap_put(q, at, q->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(q, at, item);
}

static void heap_down(pp_workqueue *q, size_t at)
{
    work_item *item = q->heap[at];
    for (size_t child; (child = 2 * at + 1) < q->heap_count; at = child) {
        if (child + 1 < q->heap_count && q->heap[child + 1]->due_ns < q->heap[child]->due_ns)
            child++;
        if (q->heap[child]->due_ns >= item->due_ns)
            break;
        heap_put(q, at, q->heap[child]);
    }
    heap_put(q, at, item);
}

static int heap_add(pp_workqueue *q, work_item *item, pp_error *err)
{
    if (q->heap_count == q->heap_capacity) {
        size_t capacity = q->heap_capacity ? 2 * q->heap_capacity : 64;
        work_item **heap = realloc(q->heap, capacity * sizeof(work_item *));
        if (!heap)
            return pp_error_nomem(err);
        q->heap = heap;
        q->heap_capacity = capacity;
    }
    q->heap[q->heap_count++] = item;
    heap_up(q, q->heap_count - 1);
    return 0;
}

static work_item *heap_pop(pp_workqueue *q)
{
    work_item *first = q->heap[0];
    work_item *last = q->heap[--q->heap_count];
    first->heap_at = 0;
    if (first != last) {
        q->heap[0] = last;
        heap_down(q, 0);
    }
    return first;
}

/* ---- items ---- */

static work_item *find(const pp_workqueue *q, const char *key)
{
    work_item *item = NULL;
    HASH_FIND_STR(q->items, key, item);
    return item;
}

static work_item *find_or_add(pp_workqueue *q, const char *key, pp_error *err)
{
    work_item *item = find(q, key);
    if (item)
        return item;
    if (HASH_COUNT(q->items) >= q->options.max_keys) {
        (void)pp_error_set(err, PP_ERR_TOO_LARGE, "the work queue holds %zu keys already",
                           q->options.max_keys);
        return NULL;
    }
    size_t n = strlen(key);
    item = calloc(1, sizeof *item + n + 1);
    if (!item) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    memcpy(item->key, key, n + 1);
    HASH_ADD_STR(q->items, key, item);
    return item;
}

/** Frees an item about which nothing is left to know. */
static void maybe_forget(pp_workqueue *q, work_item *item)
{
    if (item->in_call || item->queued || item->processing || item->heap_at || item->failures)
        return;
    HASH_DEL(q->items, item);
    free(item);
}

static void make_ready(pp_workqueue *q, work_item *item)
{
    if (item->processing) {
        item->again = true;
    } else if (!item->queued) {
        item->queued = true;
        item->queued_ns = pp_time_monotonic();
        q->depth++;
        DL_APPEND(q->queue, item);
    }
}

/* ---- the loop ---- */

static void on_timer(uv_timer_t *timer);
static void on_ready(uv_idle_t *ready);

static void arm_timer(pp_workqueue *q)
{
    if (!q->heap_count) {
        uv_timer_stop(&q->timer);
        return;
    }
    int64_t wait_ns = q->heap[0]->due_ns - pp_time_monotonic();
    /* Rounded up: a timer that fires early would spin. */
    uint64_t wait_ms = wait_ns > 0 ? (uint64_t)((wait_ns + NS_PER_MS - 1) / NS_PER_MS) : 0;
    uv_update_time(q->timer.loop);
    uv_timer_start(&q->timer, on_timer, wait_ms, 0);
}

static void arm(pp_workqueue *q)
{
    if (q->closing || q->dispatching)
        return;
    if (q->queue && q->processing < q->options.concurrency)
        uv_idle_start(&q->ready, on_ready);
    else
        uv_idle_stop(&q->ready);
    arm_timer(q);
}

static void take_due(pp_workqueue *q)
{
    int64_t now = pp_time_monotonic();
    while (q->heap_count > 0 && q->heap[0]->due_ns <= now)
        make_ready(q, heap_pop(q));
}

static void on_timer(uv_timer_t *timer)
{
    pp_workqueue *q = timer->data;
    take_due(q);
    arm(q);
}

static void on_ready(uv_idle_t *ready)
{
    pp_workqueue *q = ready->data;
    q->dispatching = true;
    take_due(q);
    const int64_t end = pp_time_monotonic() + MAX_TURN_NS;
    for (int i = 0; i < MAX_STARTS_PER_TURN && q->queue && !q->closing &&
                    q->processing < q->options.concurrency && (!i || pp_time_monotonic() < end);
         i++) {
        work_item *item = q->queue;
        DL_DELETE(q->queue, item);
        q->depth--;
        item->queued = false;
        item->processing = true;
        q->processing++;
        item->in_call = true;
        q->options.process(q->options.user, item->key);
        item->in_call = false;
        maybe_forget(q, item);
    }
    q->dispatching = false;
    arm(q);
}

pp_workqueue *pp_workqueue_new(uv_loop_t *loop, const pp_workqueue_options *options, pp_error *err)
{
    pp_workqueue *q = calloc(1, sizeof *q);
    if (!q) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    q->options = *options;
    if (!q->options.concurrency)
        q->options.concurrency = 1;
    if (!q->options.max_keys)
        q->options.max_keys = DEFAULT_MAX_KEYS;
    uv_timer_init(loop, &q->timer);
    uv_idle_init(loop, &q->ready);
    q->timer.data = q;
    q->ready.data = q;
    q->handles = 2;
    return q;
}

static void on_closed(uv_handle_t *handle)
{
    pp_workqueue *q = handle->data;
    work_item *item, *tmp;
    if (--q->handles)
        return;
    HASH_ITER(hh, q->items, item, tmp)
    {
        HASH_DEL(q->items, item);
        free(item);
    }
    free(q->heap);
    free(q);
}

void pp_workqueue_free(pp_workqueue *q)
{
    if (!q || q->closing)
        return;
    q->closing = true;
    uv_close((uv_handle_t *)&q->timer, on_closed);
    uv_close((uv_handle_t *)&q->ready, on_closed);
}

/* ---- verbs ---- */

int pp_workqueue_add(pp_workqueue *q, const char *key, pp_error *err)
{
    work_item *item = find_or_add(q, key, err);
    if (!item)
        return -1;
    make_ready(q, item);
    arm(q);
    return 0;
}

static int add_later(pp_workqueue *q, work_item *item, int64_t delay_ms, pp_error *err)
{
    int64_t due_ns = pp_time_monotonic() + delay_ms * NS_PER_MS;
    if (item->heap_at) {
        if (due_ns < item->due_ns) {
            item->due_ns = due_ns;
            heap_up(q, item->heap_at - 1);
        }
    } else {
        item->due_ns = due_ns;
        if (heap_add(q, item, err) < 0)
            return -1;
    }
    arm(q);
    return 0;
}

int pp_workqueue_add_after(pp_workqueue *q, const char *key, int64_t delay_ms, pp_error *err)
{
    if (delay_ms <= 0)
        return pp_workqueue_add(q, key, err);
    work_item *item = find_or_add(q, key, err);
    if (!item)
        return -1;
    if (add_later(q, item, delay_ms, err) == 0)
        return 0;
    maybe_forget(q, item);
    return -1;
}

int pp_workqueue_retry(pp_workqueue *q, const char *key, pp_error *err)
{
    work_item *item = find_or_add(q, key, err);
    if (!item)
        return -1;
    int64_t delay_ms = pp_workqueue_backoff_ms(item->failures);
    if (item->failures < 64)
        item->failures++;
    return add_later(q, item, delay_ms, err);
}

void pp_workqueue_forget(pp_workqueue *q, const char *key)
{
    work_item *item = find(q, key);
    if (!item)
        return;
    item->failures = 0;
    maybe_forget(q, item);
}

void pp_workqueue_done(pp_workqueue *q, const char *key)
{
    work_item *item = find(q, key);
    if (!item || !item->processing)
        return;
    item->processing = false;
    q->processing--;
    if (item->again) {
        item->again = false;
        make_ready(q, item);
    } else {
        maybe_forget(q, item);
    }
    arm(q);
}

size_t pp_workqueue_depth(const pp_workqueue *q)
{
    return q->depth;
}

int64_t pp_workqueue_oldest_ns(const pp_workqueue *q)
{
    return q->queue ? pp_time_monotonic() - q->queue->queued_ns : 0;
}
