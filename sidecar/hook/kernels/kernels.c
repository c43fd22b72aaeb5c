/*
 * When each kernel was launched and ran, copies and fills too, from CUPTI's activity records:
 * docs/timing.md. What this is made of stands in kernels_internal.h; here is when CUPTI is attached
 * and left:
 *
 *   start            in the training's thread, as a capture starts: 7 ms, counted as cost
 *   poll             the hook's own thread: has CUPTI hand over what is done, and ends the
 *                    recording once the capture's kernels have run
 *   detach           in the next CUDA call of the training, as CUPTI asks for
 *
 * A CUPTI that stays attached slows every launch, so it goes after each capture. Nothing here waits
 * for the GPU.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DOMAIN_DRIVER = 1,
    DOMAIN_RUNTIME = 2,
    SITE_EXIT = 1,
    DETACH_COST = 2500000, /* ns that leaving CUPTI holds up one CUDA call: measured on an H200 */
    TRIES = 8,
    LEAVES_AT_MOST = 500, /* of 0.1 ms */
};

/* Records for which CUPTI stays attached where they tell their launches: of each it then keeps some
 * 100 bytes until it is left (measured on an H200). */
#define RECORDS_MAX 400000

/* CUPTI of CUDA 12.6: attached anew after it was left, an earlier one may end a training that
 * replays CUDA graphs (pytorch/pytorch issues 112507 and 150957). */
#define VERSION_ANEW 24
#define FLUSH_EVERY INT64_C(50000000)
/* Each flush has CUPTI go on in other buffers, and a buffer comes back once all in it has run: of a
 * host that is seconds ahead of its GPU each would take two. Where half of them are out, so often.
 */
#define FLUSH_FEW INT64_C(1000000000)
#define CLOCK_LIMIT INT64_C(1000000000)
/* A kernel that is off by half of it may be told in the piece beside its own. */
#define CLOCK_WIDTH INT64_C(100000)

/* `state`: OUT -> ON (start) -> ENDING (end) -> CLOSING -> OUT (poll); ENDING -> ON (start). */
enum { OUT = 0, ON, ENDING, CLOSING };
/* `detaching`. */
enum { DETACH_NONE = 0, DETACH_WAITS, DETACH_RUNS };

static atomic_int state;
static _Atomic int64_t ended_at; /* ns: when the capture ended */
static atomic_bool ever_left;    /* CUPTI was, in this process' life */
/* CUPTI's one subscription, as long as it is attached. It is taken before CUPTI looks at the first
 * call and ends with it: of one that is half taken, or half given back, cuptiSubscribe() and
 * cuptiUnsubscribe() of CUDA 13.0 leave a table for the other threads' CUDA calls that is not there
 * (e2e/bench/records.py). */
static void *detacher;
static atomic_bool subscribed;
static atomic_int detaching;
/* Held while CUPTI is told something, so that it is not finalised under another's call. */
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER;

/* ---- leaving CUPTI ---- */

/* False: not now, since a buffer is being read. */
static bool leave(void)
{
    if (!pp_cupti_buffers_abandon())
        return false;
    atomic_store(&ever_left, true);
    if (pp_cupti.finalize() == PP_CUPTI_OK)
        atomic_store(&subscribed, false);
    else /* the next capture goes on with it, or whoever gives way tries again */
        pp_cupti_buffers_keep();
    return true;
}

/* In a CUDA call of the training that is about to return: there CUPTI can be left. */
static void on_cuda_call(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    uint32_t site;
    memcpy(&site, data, sizeof site);
    if (site != SITE_EXIT ||
        !atomic_compare_exchange_strong(&detaching, &(int){DETACH_WAITS}, DETACH_RUNS))
        return;
    atomic_store(&detaching, leave() ? DETACH_NONE : DETACH_WAITS); /* or in the next call */
}

/* Whether calls are told, or are not any more. False: the subscription is gone, since somebody else
 * has left CUPTI. */
static bool tell_calls(bool on)
{
    const bool runtime = pp_cupti.domain(on, detacher, DOMAIN_RUNTIME) == PP_CUPTI_OK;
    const bool driver = pp_cupti.domain(on, detacher, DOMAIN_DRIVER) == PP_CUPTI_OK;
    if (!runtime && !driver)
        atomic_store(&subscribed, false);
    return runtime || driver;
}

/* From here on a CUDA call may leave CUPTI at any moment. */
static void detach(void)
{
    if (tell_calls(true))
        atomic_store(&detaching, DETACH_WAITS);
}

/* Whether CUPTI is attached still, since no CUDA call came after the last capture, or could not be
 * left. Then none leaves it. */
static bool stay(void)
{
    (void)atomic_compare_exchange_strong(&detaching, &(int){DETACH_WAITS}, DETACH_NONE);
    return atomic_load(&detaching) == DETACH_NONE && atomic_load(&subscribed) && tell_calls(false);
}

static bool subscribe(void)
{
    if (pp_cupti.subscribe(&detacher, on_cuda_call, NULL) != PP_CUPTI_OK)
        return false;
    atomic_store(&subscribed, true);
    return true;
}

static void unsubscribe(void)
{
    (void)pp_cupti.unsubscribe(detacher);
    atomic_store(&subscribed, false);
}

/* ---- start and end ---- */

/* The offset of CUPTI's clock, from the narrowest of some readings. It is the system's unless a
 * profiler has given it another. NULL, or why it is not known. */
static const char *read_clock(int64_t *ret_offset)
{
    static const char changed[] = "a profiler has changed CUPTI's clock";
    int64_t width = INT64_MAX;
    uint64_t theirs = 0;
    struct timespec real;
    for (int i = 0; i < TRIES; i++) {
        int64_t before = pp_now();
        if (pp_cupti.timestamp(&theirs) != PP_CUPTI_OK)
            return changed;
        int64_t after = pp_now();
        if (after - before < width) {
            width = after - before;
            *ret_offset = before + width / 2 - (int64_t)theirs;
        }
    }
    (void)clock_gettime(CLOCK_REALTIME, &real);
    int64_t off = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - (int64_t)theirs;
    if (off <= -CLOCK_LIMIT || off >= CLOCK_LIMIT)
        return changed;
    if (width > CLOCK_WIDTH)
        return "the machine is too busy for CUPTI's clock to be read";
    if (pp_ring())
        __atomic_store_n(&pp_ring()->clock_error, width / 2, __ATOMIC_RELAXED);
    return NULL;
}

static bool enable(bool several)
{
    pp_launches_choose(several);
    return pp_cupti_buffers_register() && pp_launches_enable() &&
           pp_cupti.enable(PP_CUPTI_KERNEL) == PP_CUPTI_OK;
}

static void disable(void)
{
    (void)pp_cupti.disable(PP_CUPTI_KERNEL);
    pp_launches_disable();
}

bool pp_kernels_full(void)
{
    if (atomic_load(&state) == OUT)
        return false;
    return pp_cupti_buffers_ran_out() || pp_launches_change() ||
           (!pp_kernels_by_calls() && pp_records_count() >= RECORDS_MAX);
}

bool pp_kernels_closing(void)
{
    return pp_kernels_full() || atomic_load(&state) == CLOSING ||
           atomic_load(&detaching) == DETACH_RUNS;
}

/* Why this CUPTI must not be attached, now or ever; NULL: it may. torch's own profiler leaves its
 * CUPTI attached where TEARDOWN_CUPTI=0 says so, and so says that leaving it does harm. */
static const char *refusal_of_version(void)
{
    const char *teardown = getenv("TEARDOWN_CUPTI");
    if (pp_cupti_version() >= VERSION_ANEW)
        return NULL;
    if (teardown && strcmp(teardown, "0") == 0)
        return "TEARDOWN_CUPTI=0: CUPTI before CUDA 12.6 is not to be left";
    return atomic_load(&ever_left) ? "CUPTI before CUDA 12.6 is attached once in a process" : NULL;
}

/* Takes the subscription, and what else a capture needs before CUPTI is attached. Why it cannot:
 * then all is as before. */
static const char *prepare(int64_t *ret_offset)
{
    const bool attached = stay();
    if (!attached && (atomic_load(&detaching) != DETACH_NONE || /* it is being left this moment */
                      !subscribe()))
        return "another CUPTI client is attached";
    const char *why = pp_cupti_buffers_take_back() ? read_clock(ret_offset) : "out of memory";
    if (why && attached)
        detach();
    else if (why)
        unsubscribe();
    return why;
}

const char *pp_kernels_start(bool several, bool look)
{
    int64_t offset = 0;
    if (getenv("CUDA_INJECTION64_PATH"))
        return "a profiler is injected (CUDA_INJECTION64_PATH)";
    const char *why = pp_cupti_load();
    if (why)
        return why;
    if (several && !pp_launches_have_calls())
        return "CUPTI tells no threads of launches";
    if (!pp_kernels_full() && (!several || pp_kernels_by_calls()) &&
        atomic_compare_exchange_strong(&state, &(int){ENDING}, ON))
        return NULL; /* the capture before has just ended: it goes on */
    if (atomic_load(&state) != OUT || atomic_load(&detaching) == DETACH_RUNS)
        return "the capture before is not read yet";
    why = pp_launches_refusal();
    if (!why)
        why = refusal_of_version();
    if (why)
        return why;
    if (!pp_cupti_rate_left(pp_ring_session()))
        return "CUPTI was attached as often as it should be";
    why = prepare(&offset);
    if (why)
        return why;
    pp_records_begin(offset);
    pp_cupti_rate_use();
    if (!enable(several)) {
        pp_launches_refused();
        disable();
        detach();
        pp_ring_cost(DETACH_COST);
        return "CUPTI refuses to record kernels";
    }
    why = pp_launches_enable_more(look);
    if (pp_ring())
        pp_copy_text(pp_ring()->copies, sizeof pp_ring()->copies, why ? why : "");
    atomic_store(&state, ON);
    pp_ring_cost(DETACH_COST);
    return NULL;
}

void pp_kernels_end(void)
{
    if (atomic_load(&state) != ON)
        return;
    atomic_store(&ended_at, pp_now());
    if (atomic_compare_exchange_strong(&state, &(int){ON}, ENDING))
        pp_ring_wake(false);
}

/* A CUDA call leaves CUPTI in some 2.5 ms, under which nobody else can subscribe. It waits for
 * nobody. */
static void await_detached(void)
{
    for (int i = 0; i < LEAVES_AT_MOST && atomic_load(&detaching) == DETACH_RUNS; i++)
        pp_sleep(100000);
}

/* When the capture ended, by the state that was read before: until it is ENDING `ended_at` is that
 * of another. INT64_MAX: it has not. */
static int64_t end_by(int state_read)
{
    return state_read == ENDING ? atomic_load(&ended_at) : INT64_MAX;
}

/* At once, but for a buffer that CUPTI's own thread hands over just now. */
static void leave_soon(void)
{
    for (int i = 0; i < LEAVES_AT_MOST && !leave(); i++)
        pp_sleep(100000);
}

/* Takes all that CUPTI has. What still runs is lost, as far as it is the capture's. */
static void take_rest(int64_t end)
{
    pp_records_give_up(end);
    (void)pp_cupti.flush(1);
    pp_records_complete(end);
}

void pp_kernels_give_way(void)
{
    (void)pthread_mutex_lock(&api);
    await_detached();
    const int was = atomic_exchange(&state, OUT);
    if (was != OUT) {
        disable();
        take_rest(end_by(was));
        leave_soon();
    } else if (stay()) {
        leave_soon(); /* else it would end under the other's hands */
    }
    (void)pthread_mutex_unlock(&api);
}

bool pp_kernels_active(void)
{
    return atomic_load(&state) != OUT || atomic_load(&detaching) != DETACH_NONE ||
           atomic_load(&subscribed);
}

void pp_kernels_forget(void)
{
    pp_names_forget();
    pp_records_forget();
    pp_cupti_buffers_forget();
    (void)pthread_mutex_init(&api, NULL); /* another thread may have held it, which is not here */
    atomic_store(&state, OUT);
    atomic_store(&detaching, DETACH_NONE);
    atomic_store(&subscribed, false);
}

/* What is done. `last`: and what is not. */
static void flush(bool last)
{
    static int64_t flushed_at;
    static bool told_loss;
    const int64_t now = pp_now();
    if (pp_cupti_buffers_few() && !last && now - flushed_at < FLUSH_FEW)
        return;
    flushed_at = now;
    const bool lost = pp_cupti_buffers_ran_out();
    pp_records_flush(lost && !told_loss);
    told_loss = lost;
    (void)pp_cupti.flush(last);
}

/* False: a capture that had ended by then has gone on meanwhile. */
static bool close_capture(int64_t end)
{
    if (!atomic_compare_exchange_strong(&state, &(int){ENDING}, CLOSING))
        return false;
    const bool same = atomic_load(&ended_at) == end;
    if (!same)
        atomic_store(&state, ENDING);
    return same;
}

int64_t pp_kernels_poll(bool last)
{
    if (atomic_load(&state) == OUT || !pp_ring())
        return INT64_MAX;
    (void)pthread_mutex_lock(&api);
    const int now = atomic_load(&state);
    const int64_t end = end_by(now);
    if (now != OUT && last) { /* the process ends, and CUPTI with it */
        pp_records_give_up(end);
        flush(true);
        pp_records_complete(end);
    } else if (now != OUT) {
        pp_launches_end_look();
        flush(false);
        if (pp_records_await(now == ENDING ? end : pp_now()) && now == ENDING &&
            close_capture(end)) {
            disable();
            take_rest(end);
            detach();
            atomic_store(&state, OUT);
        }
    }
    (void)pthread_mutex_unlock(&api);
    return FLUSH_EVERY;
}
