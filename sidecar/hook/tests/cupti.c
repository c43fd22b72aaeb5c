/*
 * A double of libcupti.so.13 for the tests of the hook, and the GPU behind it. A training launches
 * kernels by pp_cupti_launch(), copies and fills by pp_cupti_copy(); they run one after the other,
 * collectives beside them, and their records go the way of CUPTI's. Each thread launches on the GPU
 * that it has chosen by pp_cupti_device(), the first where it chose none. What fails is said by
 * pp_cupti_fault():
 *
 *   subscribe   another client is attached
 *   clock       a client has given the records another clock
 *   late        its clock takes long to read
 *   enable      kernels cannot be recorded
 *   stuck       nothing is handed over, so that the buffers run out
 *   dropped     every record is dropped
 *   unended     kernels have no end
 *   calls       no call is recorded, whatever is enabled
 *   dear        where calls that launch are recorded each takes long
 *   slow        what is done is handed over after a while
 *   uncopied    copies and fills cannot be recorded
 *   finalize    it cannot be left
 *
 * What runs is told to vgpu_ran(), where that is linked too (e2e/gpu/driver).
 *
 * With PP_CUPTI_OLD it is one of before CUDA 12.4, which makes no records of single calls.
 * pp_cupti_clock() gives it another clock than the system's.
 * pp_cupti_log() tells the calls since it was asked last; runs of the same call are one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, NO_MORE = 12, FAILED = 999 };
enum {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_KERNEL = 10,
    KIND_PEERS = 22,
    KINDS
};

#ifdef PP_CUPTI_OLD
enum { VERSION = 21 }; /* of CUDA 12.3 */
#else
enum { VERSION = 130000 };
#endif
enum {
    CALL_SIZE = 40,
    KERNEL_SIZE = 216,
    COPY_SIZE = 88,
    PEERS_SIZE = 96,
    BUFFERS = 64,
    DEVICES = 2,
    DOMAINS = 8,
    SPARES = 4,
    CALLS = 1024
};
/* How pp_cupti_launch() does it: by the runtime, or by the driver, with the record of the call
 * after the kernel's. */
enum { ORDINARY, OF_GRAPH, TOLD_LATE };
enum { OF_CALLS = -1, OF_NONE = -2 }; /* sources of records, beside the streams */

#define HOUR INT64_C(3600000000000)

typedef void (*wanted_fn)(uint8_t **, size_t *, size_t *);
typedef void (*filled_fn)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*callback_fn)(void *, int domain, uint32_t id, const void *data);

typedef struct buffer {
    uint8_t *data;
    size_t size, valid;
    int source;  /* a stream, or the calls */
    bool closed; /* full, or by a flush: what comes next goes into another */
} buffer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char fault[32];
static char calls[65536];

static struct {
    wanted_fn wanted;
    filled_fn filled;
    bool copies[KINDS], kernels, latency,
        calls[2][1 + CALLS]; /* of the driver and the runtime: kind, each call */
    callback_fn subscriber;
    void *user;
    bool attached; /* since a kind was asked for, until it is left */
    bool domains[DOMAINS];
    buffer buffers[BUFFERS];
    int count;
} client;

__attribute__((weak)) void vgpu_ran(int64_t begin, int64_t end);

/* By GPU, when what was launched ends: of kernels, of collectives. */
static int64_t stream_ends[DEVICES][2];
static _Thread_local int device;
static int64_t queued_last;
static uint32_t correlation;
static size_t dropped;
static _Thread_local bool leaving; /* a CUDA call of this thread that is about to return */

/* ns since 1970, where a test lets time pass; NULL: the system's. */
static const int64_t *clock_of_test;

static bool fails(const char *name)
{
    return strcmp(fault, name) == 0;
}

static int64_t now(void)
{
    struct timespec t;
    if (clock_of_test)
        return *clock_of_test;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void note(const char *call)
{
    static char last[32];
    size_t length = strlen(calls);
    if (length == 0 || strcmp(last, call) != 0)
        (void)snprintf(calls + length, sizeof calls - length, "%s ", call);
    (void)snprintf(last, sizeof last, "%s", call);
}

/* ---- for the tests ---- */

#define TEST(type, name, parameters)                                                               \
    type name parameters;                                                                          \
    type name parameters

TEST(void, pp_cupti_fault, (const char *name))
{
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(fault, sizeof fault, "%s", name);
    (void)pthread_mutex_unlock(&lock);
}

TEST(void, pp_cupti_clock, (const int64_t *time))
{
    clock_of_test = time;
}

TEST(void, pp_cupti_note, (const char *what))
{
    (void)pthread_mutex_lock(&lock);
    note(what);
    (void)pthread_mutex_unlock(&lock);
}

TEST(void, pp_cupti_log, (char *out, size_t size))
{
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(out, size, "%s", calls);
    calls[0] = '\0';
    (void)pthread_mutex_unlock(&lock);
}

/* Whether anything of CUPTI is in use. */
TEST(int, pp_cupti_attached, (void))
{
    (void)pthread_mutex_lock(&lock);
    bool is = client.wanted || client.kernels || client.subscriber;
    (void)pthread_mutex_unlock(&lock);
    return is;
}

static void wait_until(int64_t end)
{
    struct timespec t = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue; /* whoever halts the training */
}

TEST(void, pp_cupti_device, (int number))
{
    device = number;
}

/* Waits for the GPU, as what reads a loss does; for its collectives too. */
TEST(void, pp_cupti_wait, (int collectives))
{
    const int64_t *ends = stream_ends[device];
    wait_until(collectives && ends[1] > ends[0] ? ends[1] : ends[0]);
}

/* Until no more than so much is left for the kernels' stream: a queue is full. */
TEST(void, pp_cupti_wait_until, (int64_t left))
{
    wait_until(stream_ends[device][0] - left);
}

/* ---- records ---- */

static void put(uint8_t *record, size_t at, const void *value, size_t size)
{
    memcpy(record + at, value, size);
}

#define PUT(record, at, type, value) put(record, at, &(type){value}, sizeof(type))

/* The buffer that a source fills now, with room for so much; NULL: there is none. Each has its own,
 * so that what one stream did late comes after all of another. */
static buffer *buffer_of(int source, size_t size)
{
    for (int i = client.count; i-- > 0;)
        if (client.buffers[i].source == source) {
            buffer *last = &client.buffers[i];
            if (!last->closed && last->size - last->valid >= size)
                return last;
            last->closed = true; /* it is full */
            break;
        }
    buffer *b = client.count < BUFFERS ? &client.buffers[client.count] : NULL;
    size_t records = 0;
    if (!b || !client.wanted)
        return NULL;
    *b = (buffer){.source = source};
    client.wanted(&b->data, &b->size, &records);
    if (!b->data || b->size < size)
        return NULL;
    client.count++;
    return b;
}

/* Room for a record, zeroed; NULL: it is dropped. */
static uint8_t *append(int source, size_t size)
{
    buffer *b = buffer_of(source, size);
    if (!b)
        return NULL;
    uint8_t *record = b->data + b->valid;
    memset(record, 0, size);
    b->valid += size;
    return record;
}

static uint8_t *record_of(uint32_t kind, int source, size_t size)
{
    uint8_t *record = fails("dropped") ? NULL : append(source, size);
    if (record)
        PUT(record, 0, uint32_t, kind);
    else
        dropped++;
    return record;
}

static void record_call(int64_t at, uint32_t kind, uint32_t call)
{
    const bool *enabled = client.calls[kind == KIND_RUNTIME];
    uint8_t *r = enabled[0] && enabled[call] ? record_of(kind, OF_CALLS, CALL_SIZE) : NULL;
    if (!r)
        return;
    PUT(r, 4, uint32_t, call);
    PUT(r, 8, int64_t, at);
    PUT(r, 16, int64_t, at + 1);
    PUT(r, 28, uint32_t, (uint32_t)(uintptr_t)pthread_self());
    PUT(r, 32, uint32_t, correlation);
}

static void record_launch(int64_t at, int how)
{
    /* cuLaunchKernel; else the runtime's cudaLaunchKernel or cudaGraphLaunch, whose call of the
     * driver is not recorded besides. */
    uint32_t kind = how == TOLD_LATE ? KIND_DRIVER : KIND_RUNTIME;
    uint32_t call = how == TOLD_LATE ? 307 : how == OF_GRAPH ? 311 : 211;
    record_call(at, kind, call);
}

static void record_kernel(const char *name, int64_t at, int64_t begin, int64_t end, int how)
{
    int stream = (strstr(name, "nccl") ? 9 : 7) + 10 * device;
    uint8_t *r = client.kernels ? record_of(KIND_KERNEL, stream, KERNEL_SIZE) : NULL;
    if (!r)
        return;
    PUT(r, 16, int64_t, begin);
    PUT(r, 24, int64_t, fails("unended") ? 0 : end);
    PUT(r, 40, uint32_t, (uint32_t)device);
    PUT(r, 44, uint32_t, 1 + (uint32_t)device);
    PUT(r, 48, uint32_t, (uint32_t)stream);
    PUT(r, 92, uint32_t, correlation);
    PUT(r, 104, const char *, name);
    /* What a graph launches has no times of its own launch but another's. */
    int64_t queued = how == OF_GRAPH ? queued_last : at;
    PUT(r, 120, int64_t, client.latency ? queued : 0);
    PUT(r, 128, int64_t, client.latency && how != OF_GRAPH ? at + 1 : 0);
}

/* Launches a kernel of a duration in ns, in a CUDA call of this thread. `name` is kept. */
TEST(void, pp_cupti_launch, (const char *name, int64_t duration, int how))
{
    (void)pthread_mutex_lock(&lock);
    int64_t at = now();
    int64_t *ends = &stream_ends[device][strstr(name, "nccl") != NULL];
    int64_t begin = *ends > at ? *ends : at;
    *ends = begin + duration;
    if (vgpu_ran && device == 0)
        vgpu_ran(begin, *ends);
    correlation++;
    if (how != TOLD_LATE)
        record_launch(at, how);
    record_kernel(name, at, begin, *ends, how);
    if (how != OF_GRAPH)
        queued_last = at;
    if (how == TOLD_LATE)
        record_launch(at, how);
    bool dear = fails("dear") && client.calls[1][0] && client.calls[1][211];
    bool listens = client.domains[1] || client.domains[2];
    callback_fn subscriber = listens ? client.subscriber : NULL;
    void *user = client.user;
    (void)pthread_mutex_unlock(&lock);
    if (dear)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    for (uint32_t site = 0; subscriber && site < 2; site++) {
        leaving = site == 1;
        subscriber(user, 1, 0, &site);
    }
    leaving = false;
}

/* `how`: a CUpti_ActivityMemcpyKind; `host`: the CUpti_ActivityMemoryKind of the host's part. */
static void record_copy(int kind, int how, int host, int64_t bytes, int64_t begin, int64_t end)
{
    const size_t size = kind == KIND_PEERS ? PEERS_SIZE : COPY_SIZE;
    uint8_t *r = client.copies[kind] ? record_of((uint32_t)kind, 7 + 10 * device, size) : NULL;
    if (!r)
        return;
    if (kind != KIND_MEMSET) {
        PUT(r, 4, uint8_t, (uint8_t)how);
        PUT(r, 5, uint8_t, (uint8_t)(how == 1 ? host : 3));
        PUT(r, 6, uint8_t, (uint8_t)(how == 2 ? host : 3));
    }
    PUT(r, 8, int64_t, bytes);
    PUT(r, 16, int64_t, begin);
    PUT(r, 24, int64_t, end);
    PUT(r, 32, uint32_t, (uint32_t)device);
    PUT(r, 36, uint32_t, 1 + (uint32_t)device);
    PUT(r, 40, uint32_t, 7 + 10 * (uint32_t)device);
    PUT(r, kind == KIND_PEERS ? 60 : 44, uint32_t, correlation);
}

/* A copy or a fill, in the stream of the kernels, by the runtime. */
TEST(void, pp_cupti_copy, (int kind, int how, int host, int64_t bytes, int64_t duration))
{
    (void)pthread_mutex_lock(&lock);
    const int64_t at = now();
    int64_t *end = &stream_ends[device][0];
    const int64_t begin = *end > at ? *end : at;
    *end = begin + duration;
    if (vgpu_ran && device == 0)
        vgpu_ran(begin, *end);
    correlation++;
    /* cudaMemsetAsync, cudaMemcpyPeerAsync, cudaMemcpyAsync. */
    record_call(at, KIND_RUNTIME, kind == KIND_MEMSET ? 51 : kind == KIND_PEERS ? 161 : 41);
    record_copy(kind, how, host, bytes, begin, *end);
    (void)pthread_mutex_unlock(&lock);
}

/* ---- CUPTI ---- */

#define CUPTI(name, parameters)                                                                    \
    int name parameters;                                                                           \
    int name parameters

static int done(const char *call, bool failed)
{
    note(call);
    (void)pthread_mutex_unlock(&lock);
    return failed ? FAILED : OK;
}

CUPTI(cuptiGetVersion, (uint32_t * ret))
{
    *ret = VERSION;
    return OK;
}

CUPTI(cuptiGetTimestamp, (uint64_t * ret))
{
    if (fails("late"))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    *ret = (uint64_t)(now() - (fails("clock") ? HOUR : 0));
    return OK;
}

CUPTI(cuptiActivityRegisterCallbacks, (wanted_fn wanted, filled_fn filled))
{
    (void)pthread_mutex_lock(&lock);
    client.wanted = wanted;
    client.filled = filled;
    return done("register", false);
}

static bool *enabled_calls(int kind)
{
    return kind == KIND_DRIVER || kind == KIND_RUNTIME ? client.calls[kind == KIND_RUNTIME] : NULL;
}

/* Some that are at hand and never get a record, as many as a CUPTI was seen to have on an H200. */
static void take_spares(void)
{
    for (int i = 0; i < SPARES && client.count < BUFFERS && client.wanted; i++) {
        buffer *b = &client.buffers[client.count];
        size_t records = 0;
        *b = (buffer){.source = OF_NONE};
        client.wanted(&b->data, &b->size, &records);
        client.count += b->data != NULL;
    }
}

static bool is_of_copy(int kind)
{
    return kind == KIND_MEMCPY || kind == KIND_MEMSET || kind == KIND_PEERS;
}

CUPTI(cuptiActivityEnable, (int kind))
{
    (void)pthread_mutex_lock(&lock);
    if (kind == KIND_KERNEL)
        take_spares();
    bool *of_kind = enabled_calls(kind);
    const bool copies = is_of_copy(kind);
    bool failed = fails("enable") || (kind != KIND_KERNEL && !of_kind && !copies) ||
                  (copies && fails("uncopied"));
    if (copies)
        client.copies[kind] = !failed;
    for (int call = 0; of_kind && call <= CALLS; call++)
        of_kind[call] = !failed;
    client.kernels = client.kernels || (kind == KIND_KERNEL && !failed);
    client.attached = true;
    return done(copies ? "copies" : "enable", failed);
}

CUPTI(cuptiActivityDisable, (int kind))
{
    (void)pthread_mutex_lock(&lock);
    client.kernels = client.kernels && kind != KIND_KERNEL;
    if (enabled_calls(kind))
        enabled_calls(kind)[0] = false;
    if (is_of_copy(kind))
        client.copies[kind] = false;
    return done("disable", false);
}

CUPTI(cuptiActivityEnableLatencyTimestamps, (uint8_t on))
{
    (void)pthread_mutex_lock(&lock);
    client.latency = on;
    return done("latency", false);
}

#ifndef PP_CUPTI_OLD
static int enable_call(const char *what, int kind, uint32_t id, uint8_t on)
{
    (void)pthread_mutex_lock(&lock);
    bool *of_kind = enabled_calls(kind);
    bool failed = id == 0 || id > CALLS;
    if (!failed && of_kind[0] && !fails("calls")) /* else it is not heeded */
        of_kind[id] = on;
    if (fails("calls"))
        of_kind[0] = false;
    return done(what, failed);
}

CUPTI(cuptiActivityEnableDriverApi, (uint32_t id, uint8_t on))
{
    return enable_call("driver", KIND_DRIVER, id, on);
}

CUPTI(cuptiActivityEnableRuntimeApi, (uint32_t id, uint8_t on))
{
    return enable_call("runtime", KIND_RUNTIME, id, on);
}
#endif

static size_t size_of(uint32_t kind)
{
    return kind == KIND_KERNEL     ? KERNEL_SIZE
           : kind == KIND_PEERS    ? PEERS_SIZE
           : is_of_copy((int)kind) ? COPY_SIZE
                                   : CALL_SIZE;
}

/* Whether a record is of what runs, and does so still. */
static bool is_running(const uint8_t *r)
{
    int64_t end;
    memcpy(&end, r + 24, sizeof end);
    return (*r == KIND_KERNEL || is_of_copy(*r)) && end > now();
}

CUPTI(cuptiActivityGetNextRecord, (uint8_t * data, size_t valid, void **record))
{
    uint8_t *at = data;
    uint32_t kind;
    if (*record) {
        memcpy(&kind, *record, sizeof kind);
        at = (uint8_t *)*record + size_of(kind);
    }
    if (at >= data + valid)
        return NO_MORE;
    *record = at;
    return OK;
}

/* Bytes of the records that have ended, from the first on. */
static size_t ended_part(const buffer *b)
{
    void *r = NULL;
    while (cuptiActivityGetNextRecord(b->data, b->valid, &r) == OK) {
        if (is_running(r))
            return (size_t)((uint8_t *)r - b->data);
    }
    return b->valid;
}

/* A flush has what comes next go into other buffers, which their sources keep, empty or not, until
 * CUPTI is left: then nobody is handed them any more. */
static void close_buffers(void)
{
    const int count = client.count;
    for (int i = 0; i < count && client.count < BUFFERS; i++) {
        buffer *b = &client.buffers[i];
        if (b->closed || b->valid == 0)
            continue;
        b->closed = true;
        buffer *next = &client.buffers[client.count];
        size_t records = 0;
        *next = (buffer){.source = b->source};
        client.wanted(&next->data, &next->size, &records);
        client.count += next->data ? 1 : 0;
    }
}

/* Whether a buffer is handed over: all in it has ended, and nothing comes into it any more. */
static bool is_over(const buffer *b)
{
    return b->closed && ended_part(b) == b->valid;
}

/* Has no end where it runs still, and no begin where it has not begun. */
static void cut_off(uint8_t *r)
{
    int64_t begin;
    memcpy(&begin, r + 16, sizeof begin);
    if (begin > now())
        PUT(r, 16, int64_t, 0);
    PUT(r, 24, int64_t, 0);
}

/* Hands over what has ended; `force`: all, and what still runs has no end. */
CUPTI(cuptiActivityFlushAll, (uint32_t force))
{
    buffer full[BUFFERS];
    int count = 0, kept = 0;
    if (fails("slow"))
        (void)nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    (void)pthread_mutex_lock(&lock);
    filled_fn filled = client.filled;
    if (!fails("stuck"))
        close_buffers();
    for (int i = 0; i < client.count && !fails("stuck"); i++) {
        const buffer b = client.buffers[i];
        if (b.valid && (force || is_over(&b)))
            full[count++] = b;
        else
            client.buffers[kept++] = b;
    }
    client.count = fails("stuck") ? client.count : kept;
    (void)done(force ? "flush-all" : "flush", false);
    for (int i = 0; i < count; i++) {
        void *r = NULL;
        while (force && cuptiActivityGetNextRecord(full[i].data, full[i].valid, &r) == OK) {
            if (is_running(r))
                cut_off(r);
        }
        filled(NULL, 0, full[i].data, full[i].size, full[i].valid);
    }
    return OK;
}

CUPTI(cuptiActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *ret))
{
    (void)context;
    (void)stream;
    (void)pthread_mutex_lock(&lock);
    *ret = dropped;
    dropped = 0;
    (void)pthread_mutex_unlock(&lock);
    return OK;
}

/* CUDA 13.0's exchanges under the other threads' CUDA calls what these look at, once it looks at
 * calls at all. */
static void need_calls_alone(const char *name)
{
    if (!client.attached)
        return;
    (void)fprintf(stderr, "%s while CUPTI looks at calls\n", name);
    abort();
}

CUPTI(cuptiSubscribe, (void **ret, callback_fn subscriber, void *user))
{
    (void)pthread_mutex_lock(&lock);
    need_calls_alone("cuptiSubscribe");
    bool failed = fails("subscribe") || client.subscriber;
    if (!failed) {
        client.subscriber = subscriber;
        client.user = user;
        *ret = &client;
    }
    return done("subscribe", failed);
}

CUPTI(cuptiUnsubscribe, (void *subscriber))
{
    (void)pthread_mutex_lock(&lock);
    need_calls_alone("cuptiUnsubscribe");
    bool failed = subscriber != &client || !client.subscriber;
    client.subscriber = NULL;
    memset(client.domains, 0, sizeof client.domains);
    return done("unsubscribe", failed);
}

CUPTI(cuptiEnableDomain, (uint32_t on, void *subscriber, int domain))
{
    (void)pthread_mutex_lock(&lock);
    bool failed = subscriber != &client || !client.subscriber || domain < 0 || domain >= DOMAINS;
    if (!failed)
        client.domains[domain] = on;
    return done("domain", failed);
}

CUPTI(cuptiFinalize, (void))
{
    (void)pthread_mutex_lock(&lock);
    const bool failed = fails("finalize");
    if (!failed) {
        memset(&client, 0, sizeof client);
        dropped = 0;
    }
    return done(leaving ? "finalize" : "finalize-at-once", failed);
}
