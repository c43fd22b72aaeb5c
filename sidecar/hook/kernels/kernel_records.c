/*
 * CUPTI's activity records of kernels, of copies and fills, and of the calls that launch them, into
 * the ring. The places of the fields read here are declared below (CUDA 12 and later keep them).
 *
 * What is behind the lock is only touched as buffers are handed over, never by a launch.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <pthread.h>
#include <string.h>

enum {
    BUCKETS = 1 << 14, /* launches that are remembered, by their correlation ... */
    WAYS = 4,          /* ... and how many of a bucket: some seconds' worth */
    PENDING = 32768,   /* kernels whose launch is not known yet */
    STREAMS = 32,      /* that are told apart */
};

/* ns of launches after the capture that show it is all there where each stream has shown one: a
 * stream's kernels run one after the other; and for which a stream that has not is waited for. */
#define SETTLED_STREAMS INT64_C(20000000)
#define SETTLED INT64_C(200000000)
/* ns of launches after which one's own is known, or never: the agent keeps steps for 200 ms of
 * them at least. */
#define LAUNCH_WAIT INT64_C(100000000)
/* ns of launches between two looks for those of the kernels that wait. */
#define LOOK_EVERY INT64_C(20000000)
#define SILENCE INT64_C(2000000000) /* ns without a record: nothing more will come */
#define LATEST INT64_C(30000000000) /* ns after a capture: it is left, whatever comes */

/* Where a record of PP_CUPTI_KERNEL has what is read, in bytes. */
enum {
    AT_START = 16,
    AT_END = 24,
    AT_DEVICE = 40,
    AT_CONTEXT = 44, /* and, of it, the stream */
    AT_SHAPE = 52,   /* three numbers of its grid, three of its blocks, two of shared memory ... */
    SHAPE_WORDS = 4, /* ... of four bytes each */
    AT_CORRELATION = 92,
    AT_NAME = 104,
    AT_QUEUED = 120,
    AT_SUBMITTED = 128, /* 0: a graph launched it, and `queued` is another's */
    /* and one of PP_CUPTI_DRIVER or PP_CUPTI_RUNTIME. */
    AT_API_ID = 4,
    AT_API_START = 8,
    AT_API_THREAD = 28, /* the lower half of its pthread_t */
    AT_API_CORRELATION = 32,
};

typedef struct pending {
    pp_kernel kernel;
    uint64_t stream;
    uint32_t correlation;
    int64_t since;    /* it was launched at that time or before */
    unsigned flushes; /* that had begun when it came */
    bool unended;     /* whether it is a loss, its launch tells */
} pending;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint32_t correlation;
    uint32_t thread;
    int64_t at; /* 0: empty */
} launches[BUCKETS][WAYS];
static struct {
    uint64_t id;
    int64_t newest; /* the latest launch on it that was seen */
} streams[STREAMS];
static size_t stream_count; /* STREAMS + 1: there are more */
static pending waiting[PENDING];
static size_t waiting_count;
static _Atomic int64_t cost;  /* ns of the records, not yet counted */
static _Atomic int64_t count; /* of kernels and copies since CUPTI was attached */
static int64_t offset;        /* from CUPTI's clock to the marks' */
static unsigned flushes;      /* that have begun */
static int64_t newest;        /* the latest launch that was seen */
static int64_t found_at;      /* what that was when those that wait were last looked through */
static int64_t news_at;       /* when a record came last */
static int64_t told_so_far;   /* up to when the agent knows that all is here */
static int64_t given_up = INT64_MAX; /* what has no end and was launched later is no loss */

/* ---- what has run, by what was launched since ---- */

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static uint32_t read_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static bool is_copy(const pp_kernel *k)
{
    return k->flags & PP_KERNEL_COPY;
}

static void see_launch(int64_t at)
{
    newest = at > newest ? at : newest;
}

static void see_stream(uint64_t id, int64_t launched)
{
    size_t i = 0;
    while (i < stream_count && i < STREAMS && streams[i].id != id)
        i++;
    if (i == STREAMS) {
        stream_count = STREAMS + 1;
        return;
    }
    if (i == stream_count) {
        streams[i].id = id;
        streams[i].newest = launched;
        stream_count++;
    }
    streams[i].newest = launched > streams[i].newest ? launched : streams[i].newest;
}

/* Those of the capture before are waited for in the next one too: their first kernel of it may
 * still run when it ends. */
static void forget_streams(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < stream_count && i < STREAMS; i++)
        if (streams[i].newest) {
            streams[kept].id = streams[i].id;
            streams[kept++].newest = 0;
        }
    stream_count = kept;
}

/* Whether what was launched until `end` has run, on each stream that was seen. */
static bool streams_passed(int64_t end)
{
    if (stream_count == 0 || stream_count > STREAMS || newest <= end + SETTLED_STREAMS)
        return false;
    for (size_t i = 0; i < waiting_count; i++)
        if (waiting[i].since <= end && !is_copy(&waiting[i].kernel))
            return false;
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i].newest <= end)
            return false;
    return true;
}

/* Up to when all that was launched is written, as far as streams show; INT64_MIN: they do not. */
static int64_t passed_until(void)
{
    int64_t until = newest - SETTLED_STREAMS;
    if (stream_count == 0 || stream_count > STREAMS)
        return INT64_MIN;
    for (size_t i = 0; i < waiting_count; i++)
        if (!is_copy(&waiting[i].kernel))
            return INT64_MIN; /* it may be of any time */
    for (size_t i = 0; i < stream_count; i++)
        until = streams[i].newest < until ? streams[i].newest : until;
    return until;
}

static void tell_so_far(void)
{
    const int64_t until = passed_until();
    if (until <= told_so_far)
        return;
    told_so_far = until;
    pp_ring_push_kernel(
        &(pp_kernel){.launched = until, .flags = PP_KERNEL_COMPLETE | PP_KERNEL_SO_FAR});
}

/* One says nothing of kernels: it shows neither which are here, nor whether the GPU is behind. */
static void emit_copy(const pp_kernel *k)
{
    atomic_fetch_add(&cost, pp_launches_saw_copy(k->start - k->launched));
    pp_ring_push_kernel(k);
}

static void emit(const pp_kernel *k, uint64_t stream)
{
    if (is_copy(k)) {
        emit_copy(k);
        return;
    }
    see_launch(k->launched);
    see_stream(stream, k->launched);
    atomic_fetch_add(&cost, pp_launches_saw_kernel(k->start - k->launched));
    pp_ring_push_kernel(k);
}

/* ---- which call launched what ---- */

static unsigned bucket_of(uint32_t correlation)
{
    return (correlation * UINT32_C(2654435761)) >> 18;
}

static void take_launch(const uint8_t *r)
{
    const uint32_t thread = read_u32(r + AT_API_THREAD);
    pp_launches_saw_call((int)read_u32(r), read_u32(r + AT_API_ID), thread);
    uint32_t correlation = read_u32(r + AT_API_CORRELATION);
    unsigned bucket = bucket_of(correlation);
    unsigned oldest = 0;
    for (unsigned way = 1; way < WAYS; way++)
        oldest = launches[bucket][way].at < launches[bucket][oldest].at ? way : oldest;
    launches[bucket][oldest].correlation = correlation;
    launches[bucket][oldest].thread = thread;
    launches[bucket][oldest].at = (int64_t)read_u64(r + AT_API_START) + offset;
}

/* When a call launched it, and in which thread. */
static bool find_launch(uint32_t correlation, pp_kernel *k)
{
    unsigned bucket = bucket_of(correlation);
    for (unsigned way = 0; way < WAYS; way++)
        if (launches[bucket][way].at != 0 && launches[bucket][way].correlation == correlation) {
            k->launched = launches[bucket][way].at;
            k->flags |= (uint32_t)pp_thread_number_of(launches[bucket][way].thread)
                        << PP_KERNEL_THREAD_SHIFT;
            return true;
        }
    return false;
}

/* Emits the kernels whose launch is known by now. */
static void emit_found(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < waiting_count; i++) {
        pending *p = &waiting[i];
        if (!find_launch(p->correlation, &p->kernel))
            waiting[kept++] = *p;
        else if (!p->unended)
            emit(&p->kernel, p->stream);
        else if (p->kernel.launched <= given_up)
            pp_ring_lose_kernels(1);
    }
    waiting_count = kept;
    found_at = newest;
}

static void lose(const pending *p)
{
    if (is_copy(&p->kernel)) {
        pp_launches_lost_copy();
        return;
    }
    pp_ring_lose_kernels(1);
    see_launch(p->kernel.start - SILENCE); /* else nothing would show that time goes on */
    see_stream(p->stream, p->kernel.start - SILENCE);
    pp_launches_lost_kernel();
}

/* After a flush, which hands over all calls that had returned when it began: gives up kernels that
 * were there by then and have waited long for theirs. */
static void give_up_late(void)
{
    size_t kept = 0;
    int64_t late = pp_now() - SILENCE;
    for (size_t i = 0; i < waiting_count; i++) {
        const pending *p = &waiting[i];
        bool long_ago = newest > p->since + LAUNCH_WAIT ||
                        p->kernel.start + pp_kernel_duration(&p->kernel) < late;
        if (long_ago && p->flushes != flushes)
            lose(p);
        else
            waiting[kept++] = *p;
    }
    waiting_count = kept;
}

/* The first call behind `end` that was told; false: none. CUPTI numbers calls as they come. */
static bool find_first_behind(int64_t end, uint32_t *ret_correlation)
{
    int64_t first = INT64_MAX;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (unsigned way = 0; way < WAYS; way++)
            if (launches[bucket][way].at > end && launches[bucket][way].at < first) {
                first = launches[bucket][way].at;
                *ret_correlation = launches[bucket][way].correlation;
            }
    return first != INT64_MAX;
}

/* Those that have not begun: one is none of the capture's where a call before its own was behind
 * that already. The training may be in the call that launches it, which is not told so far. */
static void give_up_unended(int64_t end)
{
    uint64_t lost = 0;
    uint32_t behind = 0;
    bool looked = false, any = false;
    for (size_t i = 0; i < waiting_count; i++) {
        if (!waiting[i].unended)
            continue;
        if (!looked)
            any = find_first_behind(end, &behind);
        looked = true;
        lost += !any || (int32_t)(waiting[i].correlation - behind) < 0;
    }
    if (lost > 0)
        pp_ring_lose_kernels(lost);
}

/* Gives all up, of which those that began by `end` were the capture's. */
static void give_up_all(int64_t end)
{
    give_up_unended(end);
    for (size_t i = 0; i < waiting_count; i++)
        if (!waiting[i].unended && waiting[i].kernel.start <= end)
            lose(&waiting[i]);
    waiting_count = 0;
}

/* ---- records ---- */

/* NCCL's kernels, by the name that the compiler has mangled: _Z, its length, the name. */
static bool is_collective(const char *name)
{
    if (!name)
        return false;
    if (strncmp(name, "_Z", 2) == 0)
        name += 2 + strspn(name + 2, "0123456789");
    return strncmp(name, "nccl", 4) == 0;
}

/* When it was launched; 0: that is not known yet; -1: it never will be. */
static void set_launch(const uint8_t *r, pp_kernel *k)
{
    int64_t queued = (int64_t)read_u64(r + AT_QUEUED);
    if (pp_kernels_by_calls()) {
        (void)find_launch(read_u32(r + AT_CORRELATION), k);
        return;
    }
    k->launched = queued == 0 ? -1 : queued + offset;
    if (queued != 0 && read_u64(r + AT_SUBMITTED) == 0) {
        pp_launches_saw_graph();
        see_launch(queued + offset);
        k->launched = -1;
    }
}

static void emit_launched(const pp_kernel *k, uint64_t stream)
{
    see_launch(k->launched);
    if (waiting_count && newest > found_at + LOOK_EVERY)
        emit_found(); /* before what was launched so much later */
    emit(k, stream);
}

static uint64_t shape_of(const uint8_t *r)
{
    uint64_t shape = 0;
    for (int i = 0; i < SHAPE_WORDS; i++) {
        shape = (shape ^ read_u64(r + AT_SHAPE + i * 8)) * UINT64_C(0x9e3779b97f4a7c15);
        shape ^= shape >> 32;
    }
    return shape;
}

/* False: there is no room. */
static bool await_launch(const uint8_t *r, const pp_kernel *k, bool unended)
{
    if (waiting_count == PENDING)
        return false;
    waiting[waiting_count++] = (pending){.kernel = *k,
                                         .stream = read_u64(r + AT_CONTEXT),
                                         .correlation = read_u32(r + AT_CORRELATION),
                                         .since = k->start < newest ? k->start : newest,
                                         .flushes = flushes,
                                         .unended = unended};
    return true;
}

/* Of a record without an end, by its call where calls tell launches: that may come behind it. */
static bool is_loss(const uint8_t *r)
{
    pp_kernel k = {0};
    const int64_t begin = (int64_t)read_u64(r + AT_START);
    const int64_t queued = (int64_t)read_u64(r + AT_QUEUED);
    if (given_up == INT64_MAX || (begin > 0 && begin + offset <= given_up))
        return true;
    if (!pp_kernels_by_calls())
        return queued > 0 && queued + offset <= given_up;
    if (find_launch(read_u32(r + AT_CORRELATION), &k))
        return k.launched <= given_up;
    return !await_launch(r, &k, true);
}

static void take_kernel(const uint8_t *r)
{
    int64_t begin = (int64_t)read_u64(r + AT_START);
    int64_t end = (int64_t)read_u64(r + AT_END);
    const uint32_t device = read_u32(r + AT_DEVICE);
    pp_kernel k = {0};
    const bool ended = begin > 0 && end >= begin;
    if (!ended)
        see_stream(read_u64(r + AT_CONTEXT), 1); /* to be waited for in the next capture */
    if (!ended && !is_loss(r))
        return;
    set_launch(r, &k);
    bool known = k.launched > 0;
    if (!ended || k.launched < 0 || (!known && waiting_count == PENDING) ||
        device >= PP_RING_DEVICES) {
        pp_ring_lose_kernels(1); /* or it did not run to its end */
        return;
    }
    const char *name = NULL;
    memcpy(&name, r + AT_NAME, sizeof name);
    pp_launches_saw_device(device);
    k.start = begin + offset;
    k.flags |= (is_collective(name) ? PP_KERNEL_COLLECTIVE : 0) | device << PP_KERNEL_DEVICE_SHIFT |
               pp_names_number(name) << PP_KERNEL_NAME_SHIFT;
    pp_kernel_set_duration(&k, end - begin);
    k.shape = shape_of(r);
    if (known)
        emit_launched(&k, read_u64(r + AT_CONTEXT));
    else
        (void)await_launch(r, &k, false);
}

static void take_copy(const uint8_t *r, int kind)
{
    pp_kernel k;
    uint32_t correlation;
    if (!pp_copy_read(r, kind, &k, &correlation))
        return;
    k.start += offset;
    if (find_launch(correlation, &k))
        emit(&k, 0);
    else if (waiting_count < PENDING)
        waiting[waiting_count++] = (pending){.kernel = k,
                                             .correlation = correlation,
                                             .since = k.start < newest ? k.start : newest,
                                             .flushes = flushes};
}

static bool is_of_copy(int kind)
{
    return kind == PP_CUPTI_MEMCPY || kind == PP_CUPTI_MEMSET || kind == PP_CUPTI_MEMCPY_PEERS;
}

void pp_records_take(void *context, uint32_t stream, uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    (void)pthread_mutex_lock(&lock);
    news_at = pp_now();
    /* Before its records: the agent is to see the loss before it takes them for all. */
    size_t dropped = 0;
    if (pp_cupti.dropped(context, stream, &dropped) == PP_CUPTI_OK && dropped)
        pp_ring_lose_kernels(dropped);
    while (valid > 0 && pp_cupti.next(buffer, valid, &record) == PP_CUPTI_OK) {
        int kind = (int)read_u32(record);
        if (kind == PP_CUPTI_KERNEL) {
            atomic_fetch_add(&count, 1);
            take_kernel(record);
        }
        if (kind == PP_CUPTI_DRIVER || kind == PP_CUPTI_RUNTIME)
            take_launch(record);
        if (is_of_copy(kind)) {
            atomic_fetch_add(&count, 1);
            take_copy(record, kind);
        }
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- captures ---- */

void pp_records_begin(int64_t to_marks)
{
    (void)pthread_mutex_lock(&lock);
    offset = to_marks;
    waiting_count = 0;
    forget_streams();
    memset(launches, 0, sizeof launches);
    atomic_store(&count, 0);
    newest = news_at = found_at = told_so_far = pp_now();
    (void)pthread_mutex_unlock(&lock);
}

void pp_records_flush(bool lost)
{
    (void)pthread_mutex_lock(&lock);
    flushes++;
    if (lost)
        pp_ring_lose_kernels(1);
    (void)pthread_mutex_unlock(&lock);
}

bool pp_records_await(int64_t end)
{
    (void)pthread_mutex_lock(&lock);
    emit_found();
    give_up_late();
    tell_so_far();
    int64_t now = pp_now();
    const bool here = streams_passed(end);
    const bool settled = newest > end + SETTLED; /* though not on every stream */
    bool silent = now - (news_at > end ? news_at : end) > SILENCE || now > end + LATEST;
    (void)pthread_mutex_unlock(&lock);
    return here || settled || silent;
}

void pp_records_give_up(int64_t end)
{
    (void)pthread_mutex_lock(&lock);
    given_up = end;
    (void)pthread_mutex_unlock(&lock);
}

void pp_records_complete(int64_t end)
{
    (void)pthread_mutex_lock(&lock);
    emit_found();
    give_up_all(end);
    given_up = INT64_MAX;
    pp_ring_push_kernel(&(pp_kernel){.launched = pp_now(),
                                     .start = (int64_t)pp_ring_kernels_lost(),
                                     .flags = PP_KERNEL_COMPLETE});
    (void)pthread_mutex_unlock(&lock);
}

int64_t pp_records_count(void)
{
    return atomic_load(&count);
}

int64_t pp_kernels_cost(void)
{
    return atomic_exchange(&cost, 0);
}

void pp_records_forget(void)
{
    (void)pthread_mutex_init(&lock, NULL); /* another thread may have held it, which is not here */
}
