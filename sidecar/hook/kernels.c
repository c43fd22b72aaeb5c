/*
 * When each kernel was launched and ran, copies and fills too, from CUPTI's activity records:
 * docs/timing.md. The CUPTI is the one that torch has in the process already; its few functions and
 * the places of the fields read here are declared below (CUDA 12 and later keep them).
 *
 *   start            in the training's thread, as a capture starts: 7 ms, counted as cost
 *   buffer_wanted    in the training's threads: takes one of a few buffers, never waits
 *   buffer_filled    in the thread that asks for it (poll, give_way) or CUPTI's: writes the kernels
 *                    into the ring
 *   poll             the hook's own thread: has CUPTI hand over what is done, and ends the
 *                    recording once the capture's kernels have run
 *   detach           in the next CUDA call of the training, as CUPTI asks for
 *
 * A kernel's launch is told by its own record or by the one of the call that launched it. The first
 * keeps a GPU that is behind from running kernels back to back, and kernels of graphs lack it; the
 * second slows each call of the runtime, which a training that waits for its launches feels:
 * docs/overhead.md has figures. So a capture has what those before show to be better.
 *
 * Own records do not say which thread launched. That matters where other threads launch kernels
 * than those that mark, or where a process uses several GPUs, each of which autograd has a thread
 * for. So the first steps of each capture have the calls' records as well, and where such a thread
 * or GPU is seen the capture ends, to go on with the calls' records alone.
 *
 * Copies and fills, where somebody asks for them, have no launch in their own records. So in either
 * case their calls are recorded, beside nothing or beside those that launch; where that cannot be
 * they are not recorded at all.
 *
 * A CUPTI that stays attached slows every launch, so it goes after each capture. Nothing here waits
 * for the GPU.
 */
#include "hook.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CUPTI_OK = 0,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_KERNEL = 10,
    DOMAIN_DRIVER = 1,
    DOMAIN_RUNTIME = 2,
    SITE_EXIT = 1,
    BUFFERS = 32, /* of a capture */
    RESERVE = 2 * BUFFERS,
    BUFFER_SIZE = 128 << 10, /* 600 kernels */
    BUCKETS = 1 << 14,       /* launches that are remembered, by their correlation ... */
    WAYS = 4,                /* ... and how many of a bucket: some seconds' worth */
    PENDING = 32768,         /* kernels whose launch is not known yet */
    STREAMS = 32,            /* that are told apart */
    /* ns that a kernel costs, by its own record where the training waits for its launches (less
     * where the GPU is behind), and by its call's in both cases: measured on an H200. pace.c
     * compares. */
    OWN_COST = 2400,
    CALL_COST_BEHIND = 500,
    CALL_COST_WAITING = 6500,
    BEHIND = 100000,       /* ns from launch to begin of a kernel that had to wait for others */
    DETACH_COST = 2500000, /* ns that leaving CUPTI holds up one CUDA call: the same */
    TRIES = 8,
    COPIES_UNTOLD = 16, /* one may have been launched before */
    LOOK_STEPS = 3,     /* of a capture in which threads that launch are looked for */
};

/* Records for which CUPTI stays attached where they tell their launches: of each it then keeps some
 * 100 bytes until it is left (measured on an H200). */
#define RECORDS_MAX 400000

#define VERSION_MIN 18 /* CUPTI of CUDA 12.0 */
/* CUPTI of CUDA 12.6: attached anew after it was left, an earlier one may end a training that
 * replays CUDA graphs (pytorch/pytorch issues 112507 and 150957). */
#define VERSION_ANEW 24
#define FLUSH_EVERY INT64_C(50000000)
/* Each flush has CUPTI go on in other buffers, and a buffer comes back once all in it has run: of a
 * host that is seconds ahead of its GPU each would take two. Where half of them are out, so often.
 */
#define FLUSH_FEW INT64_C(1000000000)
/* ns of launches after the capture that show it is all there, whatever streams there are; and where
 * each stream has shown one: a stream's kernels run one after the other. */
#define SETTLED INT64_C(200000000)
#define SETTLED_STREAMS INT64_C(20000000)
/* ns of launches after which one's own is known, or never: the agent lets steps go after 200 ms of
 * them. */
#define LAUNCH_WAIT INT64_C(100000000)
/* ns of launches between two looks for those of the kernels that wait. */
#define LOOK_EVERY INT64_C(20000000)
#define SILENCE INT64_C(2000000000) /* ns without a record: nothing more will come */
#define LATEST INT64_C(30000000000) /* ns after a capture: it is left, whatever comes */
#define CLOCK_LIMIT INT64_C(1000000000)

/* Where a record of KIND_KERNEL has what is read, in bytes. */
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
    /* and one of KIND_DRIVER or KIND_RUNTIME. */
    AT_API_ID = 4,
    AT_API_START = 8,
    AT_API_THREAD = 28, /* the lower half of its pthread_t */
    AT_API_CORRELATION = 32,
};

typedef void (*callback)(void *, int domain, uint32_t id, const void *data);

static struct {
    int (*version)(uint32_t *);
    int (*timestamp)(uint64_t *);
    int (*callbacks)(void (*)(uint8_t **, size_t *, size_t *),
                     void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*enable)(int);
    int (*disable)(int);
    int (*latency)(uint8_t);
    int (*next)(uint8_t *, size_t, void **);
    int (*flush)(uint32_t);
    int (*dropped)(void *, uint32_t, size_t *);
    int (*subscribe)(void **, callback, void *);
    int (*unsubscribe)(void *);
    int (*domain)(uint32_t, void *, int);
    int (*finalize)(void);
    /* NULL before CUDA 12.4. */
    int (*driver_api)(uint32_t, uint8_t);
    int (*runtime_api)(uint32_t, uint8_t);
} cupti;

/* Numbers of calls, from the first to the last. */
typedef struct call_range {
    uint32_t first, last;
} call_range;

/* The calls that launch, of which alone CUPTI makes records: a runtime's call has one for both.
 * Each is there for the legacy stream and for one of each thread. */
static const call_range driver_calls[] = {
    {307, 307},
    {442, 442}, /* cuLaunchKernel */
    {652, 653}, /* cuLaunchKernelEx */
    {477, 478}, /* cuLaunchCooperativeKernel */
};
static const call_range runtime_calls[] = {
    {211, 211}, {214, 214}, /* cudaLaunchKernel */
    {505, 506},             /* __cudaLaunchKernel: of CUDA 13 */
    {430, 431},             /* cudaLaunchKernelExC */
    {269, 270},             /* cudaLaunchCooperativeKernel */
};
/* And those that copy or fill, cu.../cuda...Memcpy... and Memset..., or may launch some. */
static const call_range driver_copies[] = {
    {43, 95},   {216, 227}, {232, 234}, {248, 254}, {276, 293}, {305, 306}, {318, 321},
    {397, 416}, {418, 433}, {776, 779}, {796, 799}, {837, 840}, {514, 515}, /* cuGraphLaunch */
};
static const call_range runtime_copies[] = {
    {31, 52},   {142, 145}, {160, 163}, {215, 236}, {243, 246},
    {249, 250}, {482, 485}, {509, 512}, {554, 557}, {311, 312}, /* cudaGraphLaunch */
};

static const struct {
    const char *name;
    void **slot;
} symbols[] = {
    {"cuptiGetVersion", (void **)&cupti.version},
    {"cuptiGetTimestamp", (void **)&cupti.timestamp},
    {"cuptiActivityRegisterCallbacks", (void **)&cupti.callbacks},
    {"cuptiActivityEnable", (void **)&cupti.enable},
    {"cuptiActivityDisable", (void **)&cupti.disable},
    {"cuptiActivityEnableLatencyTimestamps", (void **)&cupti.latency},
    {"cuptiActivityGetNextRecord", (void **)&cupti.next},
    {"cuptiActivityFlushAll", (void **)&cupti.flush},
    {"cuptiActivityGetNumDroppedRecords", (void **)&cupti.dropped},
    {"cuptiSubscribe", (void **)&cupti.subscribe},
    {"cuptiUnsubscribe", (void **)&cupti.unsubscribe},
    {"cuptiEnableDomain", (void **)&cupti.domain},
    {"cuptiFinalize", (void **)&cupti.finalize},
};

typedef struct pending {
    pp_kernel kernel;
    uint64_t stream;
    uint32_t correlation;
    int64_t since;    /* it was launched at that time or before */
    unsigned flushes; /* that had begun when it came */
} pending;

/* Chosen as CUPTI is attached, by what the captures before have shown. */
static atomic_bool by_calls;                     /* launches are told by records of the calls */
static atomic_bool calls_fail;                   /* they were asked for, and told nothing */
static atomic_bool graphs;                       /* the training launches some */
static atomic_uint devices;                      /* that kernels of it ran on, as bits */
static atomic_bool strangers;                    /* threads that make no marks launch some */
static atomic_bool looking;                      /* for such threads, beside own records ... */
static _Atomic int64_t looks_until;              /* ... until so many steps were counted */
static atomic_bool copies;                       /* are recorded, and fills */
static atomic_bool copies_fail;                  /* they were, and their calls were not told */
static _Atomic int64_t copies_told, copies_lost; /* in this process' life */
static _Atomic int64_t waited, ran; /* kernels of the capture that had to wait for others; all */

/* `state`: OUT -> ON (start) -> ENDING (end) -> CLOSING -> OUT (poll); ENDING -> ON (start). */
enum { OUT = 0, ON, ENDING, CLOSING };
/* `detaching`. */
enum { DETACH_NONE = 0, DETACH_WAITS, DETACH_RUNS };

static atomic_int state;
static _Atomic int64_t ended_at; /* ns: when the capture ended */
static atomic_uint free_buffers; /* a bit for each of this capture's */
static atomic_bool ran_out;      /* of them */
static uint8_t *buffers;         /* two captures' in turn, and one in reserve */
static atomic_int pool;          /* which of the two */
static atomic_bool left;         /* CUPTI was: those that it had are nobody's */
static atomic_bool ever_left;    /* in this process' life */
static int64_t offset;           /* from CUPTI's clock to the marks' */
static void *detacher;           /* subscription that waits for the next CUDA call */
static atomic_int detaching;
/* Held while CUPTI is told something, so that it is not finalised under another's call. */
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER;

/* What is behind the lock is only touched as buffers are handed over, never by a launch. */
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
static _Atomic int64_t cost;     /* ns of the records, not yet counted */
static _Atomic int64_t attached; /* since CUPTI was attached */
static unsigned flushes;         /* that have begun */
static int64_t newest;           /* the latest launch that was seen */
static int64_t found_at;         /* what that was when those that wait were last looked through */
static int64_t news_at;          /* when a record came last */

/* ---- the library ---- */

typedef struct wish {
    const char *name;
    char *path;
} wish;

static int look(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const wish *w = user;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name + 1, w->name, strlen(w->name)) != 0)
        return 0;
    pp_copy_text(w->path, PATH_MAX, info->dlpi_name);
    return 1;
}

bool pp_find_library(const char *name, char *path)
{
    wish w = {name, path};
    return dl_iterate_phdr(look, &w) != 0;
}

/* Both functions or neither. */
static void load_call_records(void *library)
{
    void *driver = dlsym(library, "cuptiActivityEnableDriverApi");
    void *runtime = dlsym(library, "cuptiActivityEnableRuntimeApi");
    if (!driver || !runtime)
        return;
    memcpy(&cupti.driver_api, &driver, sizeof driver);
    memcpy(&cupti.runtime_api, &runtime, sizeof runtime);
}

static uint32_t version;

static const char *load(void)
{
    static bool loaded;
    static char path[PATH_MAX];
    if (loaded)
        return NULL;
    if (!pp_find_library("libcupti.so", path))
        return "no CUPTI is loaded";
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return "no CUPTI is loaded";
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return "CUPTI lacks a function";
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    load_call_records(library);
    if (cupti.version(&version) != CUPTI_OK || version < VERSION_MIN)
        return "CUPTI is older than that of CUDA 12";
    loaded = true;
    return NULL;
}

/* Whether CUPTI can tell launches by the calls. */
static bool have_calls(void)
{
    return cupti.driver_api && !atomic_load(&calls_fail);
}

/* ---- records ---- */

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

/* One says nothing of kernels: it shows neither which are here, nor whether the GPU is behind. */
static void emit_copy(const pp_kernel *k)
{
    atomic_fetch_add(&copies_told, 1);
    atomic_fetch_add(&cost, k->start - k->launched > BEHIND ? CALL_COST_BEHIND : CALL_COST_WAITING);
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
    bool behind = k->start - k->launched > BEHIND;
    atomic_fetch_add(&ran, 1);
    atomic_fetch_add(&waited, behind);
    const int call = behind ? CALL_COST_BEHIND : CALL_COST_WAITING;
    atomic_fetch_add(&cost, (atomic_load(&by_calls) ? 0 : OWN_COST) +
                                (atomic_load(&by_calls) || atomic_load(&looking) ? call : 0));
    pp_ring_push_kernel(k);
}

static unsigned bucket_of(uint32_t correlation)
{
    return (correlation * UINT32_C(2654435761)) >> 18;
}

static bool is_among(const call_range *some, size_t n, uint32_t id)
{
    bool is = false;
    for (size_t i = 0; i < n; i++)
        is = is || (id >= some[i].first && id <= some[i].last);
    return is;
}

/* Beside own records: what was told so far may be in layers that it is not of. */
static void look_at_thread(const uint8_t *r)
{
    const uint32_t id = read_u32(r + AT_API_ID);
    const bool a_launch =
        read_u32(r) == KIND_DRIVER
            ? is_among(driver_calls, sizeof driver_calls / sizeof *driver_calls, id)
            : is_among(runtime_calls, sizeof runtime_calls / sizeof *runtime_calls, id);
    if (a_launch && pp_thread_number_of(read_u32(r + AT_API_THREAD)) == PP_THREAD_STRANGER &&
        !atomic_exchange(&strangers, true))
        pp_ring_lose_kernels(1);
}

static void take_launch(const uint8_t *r)
{
    if (!atomic_load(&by_calls))
        look_at_thread(r);
    uint32_t correlation = read_u32(r + AT_API_CORRELATION);
    unsigned bucket = bucket_of(correlation);
    unsigned oldest = 0;
    for (unsigned way = 1; way < WAYS; way++)
        oldest = launches[bucket][way].at < launches[bucket][oldest].at ? way : oldest;
    launches[bucket][oldest].correlation = correlation;
    launches[bucket][oldest].thread = read_u32(r + AT_API_THREAD);
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
        if (find_launch(p->correlation, &p->kernel))
            emit(&p->kernel, p->stream);
        else
            waiting[kept++] = *p;
    }
    waiting_count = kept;
    found_at = newest;
}

static void lose(const pending *p)
{
    if (is_copy(&p->kernel)) {
        if (atomic_fetch_add(&copies_lost, 1) >= COPIES_UNTOLD && atomic_load(&copies_told) == 0)
            atomic_store(&copies_fail, true);
        return;
    }
    pp_ring_lose_kernels(1);
    see_launch(p->kernel.start - SILENCE); /* else nothing would show that time goes on */
    if (atomic_load(&ran) == 0)
        atomic_store(&calls_fail, true);
}

/* After a flush, which hands over all calls that had returned when it began: gives up kernels that
 * were there by then and have waited long for theirs. */
static void give_up_late(void)
{
    size_t kept = 0;
    int64_t late = pp_now() - SILENCE;
    for (size_t i = 0; i < waiting_count; i++) {
        const pending *p = &waiting[i];
        bool long_ago =
            newest > p->since + LAUNCH_WAIT || p->kernel.start + p->kernel.duration < late;
        if (long_ago && p->flushes != flushes)
            lose(p);
        else
            waiting[kept++] = *p;
    }
    waiting_count = kept;
}

/* Gives all up, of which those that began by `end` were the capture's. */
static void give_up_all(int64_t end)
{
    for (size_t i = 0; i < waiting_count; i++)
        if (waiting[i].kernel.start <= end)
            lose(&waiting[i]);
    waiting_count = 0;
}

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
    if (atomic_load(&by_calls)) {
        (void)find_launch(read_u32(r + AT_CORRELATION), k);
        return;
    }
    k->launched = queued == 0 ? -1 : queued + offset;
    if (queued != 0 && read_u64(r + AT_SUBMITTED) == 0 && have_calls()) {
        atomic_store(&graphs, true);
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

static void take_kernel(const uint8_t *r)
{
    int64_t begin = (int64_t)read_u64(r + AT_START);
    int64_t end = (int64_t)read_u64(r + AT_END);
    const uint32_t device = read_u32(r + AT_DEVICE);
    pp_kernel k = {0};
    set_launch(r, &k);
    bool known = k.launched > 0;
    if (begin <= 0 || end < begin || k.launched < 0 || (!known && waiting_count == PENDING) ||
        device >= PP_RING_DEVICES) {
        pp_ring_lose_kernels(1); /* or it did not run to its end */
        return;
    }
    const char *name = NULL;
    memcpy(&name, r + AT_NAME, sizeof name);
    atomic_fetch_or(&devices, 1U << device);
    k.start = begin + offset;
    k.duration = (uint32_t)(end - begin > UINT32_MAX ? UINT32_MAX : end - begin);
    k.flags |= (is_collective(name) ? PP_KERNEL_COLLECTIVE : 0) | device << PP_KERNEL_DEVICE_SHIFT |
               pp_names_number(name) << PP_KERNEL_NAME_SHIFT;
    k.shape = shape_of(r);
    uint64_t stream = read_u64(r + AT_CONTEXT);
    if (known)
        emit_launched(&k, stream);
    else
        waiting[waiting_count++] = (pending){.kernel = k,
                                             .stream = stream,
                                             .correlation = read_u32(r + AT_CORRELATION),
                                             .since = k.start < newest ? k.start : newest,
                                             .flushes = flushes};
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

static void buffer_wanted(uint8_t **buffer, size_t *size, size_t *max_records)
{
    unsigned mask = atomic_load(&free_buffers);
    size_t at = RESERVE;
    *max_records = 0;
    while (mask && at == RESERVE) {
        unsigned bit = mask & -mask;
        if (atomic_compare_exchange_weak(&free_buffers, &mask, mask & ~bit))
            at = (size_t)atomic_load(&pool) * BUFFERS + (size_t)__builtin_ctz(bit);
    }
    /* None at all would end the process: a CUPTI before CUDA 12.9 writes to it all the same. What
     * comes into the one in reserve, from several threads maybe, is lost, and CUPTI may never hand
     * over what comes behind it. */
    if (at == RESERVE)
        atomic_store(&ran_out, true);
    *buffer = buffers + at * BUFFER_SIZE;
    *size = BUFFER_SIZE;
}

static void take_records(void *context, uint32_t stream, uint8_t *buffer, size_t valid)
{
    void *record = NULL;
    news_at = pp_now();
    /* Before its records: the agent is to see the loss before it takes them for all. */
    size_t dropped = 0;
    if (cupti.dropped(context, stream, &dropped) == CUPTI_OK && dropped)
        pp_ring_lose_kernels(dropped);
    while (valid > 0 && cupti.next(buffer, valid, &record) == CUPTI_OK) {
        int kind = (int)read_u32(record);
        if (kind == KIND_KERNEL) {
            atomic_fetch_add(&attached, 1);
            take_kernel(record);
        }
        if (kind == KIND_DRIVER || kind == KIND_RUNTIME)
            take_launch(record);
        if (is_of_copy(kind)) {
            atomic_fetch_add(&attached, 1);
            take_copy(record, kind);
        }
    }
}

/* One of the capture before, which a thread of CUPTI's may still hand over, is nobody's. */
static void buffer_filled(void *context, uint32_t stream, uint8_t *buffer, size_t size,
                          size_t valid)
{
    (void)size;
    if (!buffer)
        return;
    const size_t at = (size_t)(buffer - buffers) / BUFFER_SIZE;
    (void)pthread_mutex_lock(&lock);
    if (at / BUFFERS == (size_t)atomic_load(&pool)) {
        take_records(context, stream, buffer, valid);
        atomic_fetch_or(&free_buffers, 1U << at % BUFFERS);
    }
    (void)pthread_mutex_unlock(&lock);
}

/* ---- start and end ---- */

static void leave(void)
{
    atomic_store(&ever_left, true);
    if (cupti.finalize() == CUPTI_OK)
        atomic_store(&left, true);
}

/* CUPTI keeps buffers that hold nothing yet, some for each thread that calls CUDA, and does not
 * hand them over when it is left: after some captures none would be free. Those of the next
 * capture are others, so that nothing that still comes of this one is taken for theirs. */
static bool take_buffers_back(void)
{
    if (!buffers)
        buffers = aligned_alloc(64, (size_t)(RESERVE + 1) * BUFFER_SIZE);
    else if (!atomic_exchange(&left, false))
        return true;
    (void)pthread_mutex_lock(&lock);
    atomic_store(&pool, !atomic_load(&pool));
    atomic_store(&free_buffers, buffers ? UINT_MAX : 0);
    atomic_store(&ran_out, false);
    (void)pthread_mutex_unlock(&lock);
    return buffers != NULL;
}

/* In a CUDA call of the training that is about to return: there CUPTI can be left. */
static void on_cuda_call(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    if (read_u32(data) != SITE_EXIT ||
        !atomic_compare_exchange_strong(&detaching, &(int){DETACH_WAITS}, DETACH_RUNS))
        return;
    leave();
    atomic_store(&detaching, DETACH_NONE);
}

static void detach(void)
{
    if (cupti.subscribe(&detacher, on_cuda_call, NULL) != CUPTI_OK)
        return; /* somebody else's by now: theirs to leave */
    (void)cupti.domain(1, detacher, DOMAIN_RUNTIME);
    (void)cupti.domain(1, detacher, DOMAIN_DRIVER);
    atomic_store(&detaching, DETACH_WAITS); /* from here on a call may leave CUPTI at any moment */
}

/* Whether nobody else uses CUPTI; at most one can subscribe. */
static bool alone(void)
{
    void *subscriber = NULL;
    if (atomic_compare_exchange_strong(&detaching, &(int){DETACH_WAITS}, DETACH_NONE))
        (void)cupti.unsubscribe(detacher); /* no CUDA call came since the last capture */
    if (atomic_load(&detaching) != DETACH_NONE)
        return false; /* one is leaving it this moment */
    if (cupti.subscribe(&subscriber, on_cuda_call, NULL) != CUPTI_OK)
        return false;
    (void)cupti.unsubscribe(subscriber);
    return true;
}

/* The offset of CUPTI's clock. It is the system's unless a profiler has given it another. */
static bool set_clock(void)
{
    int64_t width = INT64_MAX;
    uint64_t theirs = 0;
    struct timespec real;
    for (int i = 0; i < TRIES; i++) {
        int64_t before = pp_now();
        if (cupti.timestamp(&theirs) != CUPTI_OK)
            return false;
        int64_t after = pp_now();
        if (after - before < width) {
            width = after - before;
            offset = before + width / 2 - (int64_t)theirs;
        }
    }
    (void)clock_gettime(CLOCK_REALTIME, &real);
    int64_t off = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - (int64_t)theirs;
    if (pp_ring())
        __atomic_store_n(&pp_ring()->clock_error, width / 2, __ATOMIC_RELAXED);
    return off > -CLOCK_LIMIT && off < CLOCK_LIMIT;
}

/* One of them that this CUPTI does not know is never made. */
static void record_them(int (*set)(uint32_t, uint8_t), const call_range *some, size_t n, uint8_t on)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t id = some[i].first; id <= some[i].last; id++)
            (void)set(id, on);
}

static void record_none(int (*set)(uint32_t, uint8_t))
{
    enum { CALLS_MAX = 1200 }; /* more than either has; 0.25 ms for all */
    for (uint32_t id = 1; id < CALLS_MAX; id++)
        (void)set(id, 0);
}

#define COUNT(some) (sizeof(some) / sizeof *(some))

/* Has CUPTI record the calls that launch or copy, as it is to, and no others. It heeds what it is
 * told of single calls only while their kind is enabled, which enables them all (measured with CUDA
 * 13.0). */
static bool record_calls(bool launch, bool copy)
{
    if (cupti.enable(KIND_RUNTIME) != CUPTI_OK || cupti.enable(KIND_DRIVER) != CUPTI_OK)
        return false;
    record_none(cupti.runtime_api);
    if (launch)
        record_them(cupti.runtime_api, runtime_calls, COUNT(runtime_calls), 1);
    if (copy)
        record_them(cupti.runtime_api, runtime_copies, COUNT(runtime_copies), 1);
    record_none(cupti.driver_api);
    if (launch)
        record_them(cupti.driver_api, driver_calls, COUNT(driver_calls), 1);
    if (copy)
        record_them(cupti.driver_api, driver_copies, COUNT(driver_copies), 1);
    return true;
}

static int64_t steps_now(void)
{
    return pp_ring() ? __atomic_load_n(&pp_ring()->steps, __ATOMIC_RELAXED) : 0;
}

/* Beside own records: enough was seen, calls that launch are recorded no more. */
static void stop_looking(void)
{
    if (!atomic_load(&looking) || steps_now() < atomic_load(&looks_until))
        return;
    atomic_store(&looking, false);
    record_them(cupti.runtime_api, runtime_calls, COUNT(runtime_calls), 0);
    record_them(cupti.driver_api, driver_calls, COUNT(driver_calls), 0);
}

static void disable_calls(void)
{
    (void)cupti.disable(KIND_RUNTIME);
    (void)cupti.disable(KIND_DRIVER);
}

static void disable_copies(void)
{
    (void)cupti.disable(PP_CUPTI_MEMCPY);
    (void)cupti.disable(PP_CUPTI_MEMSET);
    (void)cupti.disable(PP_CUPTI_MEMCPY_PEERS);
}

/* Why copies and fills are not to be recorded; NULL: they are. On an H200 with CUPTI 13.0 a launch
 * and the thread by which CUPTI reads what has run then came to wait for each other for ever,
 * within 100,000 records: docs/timing.md. So somebody has to ask for them. */
static const char *refusal_of_copies(void)
{
    const char *asked = getenv("PRECISIONPROBE_COPIES");
    if (!asked || strcmp(asked, "1") != 0)
        return "CUPTI may stop a training that it records copies of: PRECISIONPROBE_COPIES=1 has "
               "it do so";
    if (!cupti.driver_api)
        return "CUPTI before CUDA 12.4 tells no launches of copies";
    return atomic_load(&copies_fail) || atomic_load(&calls_fail)
               ? "CUPTI tells no launches of copies"
               : NULL;
}

/* Beside kernels' own records, those of calls: of the ones that launch, for some steps, where
 * `look` says so, and of the ones that copy. Whether there are any. */
static bool enable_calls(bool look, bool copy)
{
    if (atomic_load(&by_calls))
        return true;
    look = look && have_calls();
    if (!look && !copy)
        return false;
    atomic_store(&looks_until, steps_now() + LOOK_STEPS);
    atomic_store(&looking, look);
    if (record_calls(look, copy))
        return true;
    atomic_store(&looking, false);
    disable_calls();
    return false;
}

/* Why copies and fills are not recorded beside kernels; NULL: they are. */
static const char *enable_copies(bool look)
{
    const char *why = refusal_of_copies();
    const bool told = enable_calls(look, !why);
    if (why)
        return why;
    if (told && cupti.enable(PP_CUPTI_MEMCPY) == CUPTI_OK &&
        cupti.enable(PP_CUPTI_MEMSET) == CUPTI_OK &&
        cupti.enable(PP_CUPTI_MEMCPY_PEERS) == CUPTI_OK)
        return NULL;
    disable_copies();
    return "CUPTI refuses to record copies";
}

/* What costs a marked step less, as far as both are known; else calls are tried where the GPU is
 * behind. */
static bool calls_are_better(void)
{
    bool behind = atomic_exchange(&waited, 0) > atomic_exchange(&ran, 0) / 2;
    int64_t own, calls;
    if (pp_pace_extra(false, &own) && pp_pace_extra(true, &calls))
        return calls < own;
    return behind;
}

/* What a session chose says nothing about the next one's layers. */
static void forget_session(void)
{
    static uint32_t session;
    if (session == pp_ring_session())
        return;
    session = pp_ring_session();
    pp_pace_forget();
    atomic_store(&graphs, false);
    atomic_store(&devices, 0);
    atomic_store(&strangers, false);
}

bool pp_kernels_several(void)
{
    return __builtin_popcount(atomic_load(&devices)) > 1;
}

/* Own records have no thread: they do where all that is open is one thread's. */
static void choose_records(bool several)
{
    forget_session();
    bool better = calls_are_better();
    atomic_store(&by_calls, have_calls() && (better || several || pp_kernels_several() ||
                                             atomic_load(&strangers) || atomic_load(&graphs)));
}

static bool enable(bool several)
{
    choose_records(several);
    return cupti.callbacks(buffer_wanted, buffer_filled) == CUPTI_OK &&
           (atomic_load(&by_calls) ? record_calls(true, !refusal_of_copies())
                                   : cupti.latency(1) == CUPTI_OK) &&
           cupti.enable(KIND_KERNEL) == CUPTI_OK;
}

static void disable(void)
{
    (void)cupti.disable(KIND_KERNEL);
    atomic_store(&looking, false);
    if (atomic_exchange(&copies, false))
        disable_copies();
    disable_calls();
    if (!atomic_load(&by_calls))
        (void)cupti.latency(0);
}

bool pp_kernels_full(void)
{
    if (atomic_load(&state) == OUT)
        return false;
    if (atomic_load(&ran_out))
        return true;
    if (atomic_load(&by_calls))
        return atomic_load(&calls_fail);
    return atomic_load(&attached) >= RECORDS_MAX ||
           (have_calls() &&
            (atomic_load(&graphs) || atomic_load(&strangers) || pp_kernels_several()));
}

bool pp_kernels_closing(void)
{
    return pp_kernels_full() || atomic_load(&state) == CLOSING ||
           atomic_load(&detaching) == DETACH_RUNS;
}

/* A thread of CUPTI's may still hand over what nobody wants any more. */
static void reset(void)
{
    (void)pthread_mutex_lock(&lock);
    waiting_count = 0;
    forget_streams();
    memset(launches, 0, sizeof launches);
    atomic_store(&attached, 0);
    newest = news_at = found_at = pp_now();
    (void)pthread_mutex_unlock(&lock);
}

/* Why this CUPTI must not be attached, now or ever; NULL: it may. torch's own profiler leaves its
 * CUPTI attached where TEARDOWN_CUPTI=0 says so, and so says that leaving it does harm. */
static const char *refusal_of_version(void)
{
    const char *teardown = getenv("TEARDOWN_CUPTI");
    if (version >= VERSION_ANEW)
        return NULL;
    if (teardown && strcmp(teardown, "0") == 0)
        return "TEARDOWN_CUPTI=0: CUPTI before CUDA 12.6 is not to be left";
    return atomic_load(&ever_left) ? "CUPTI before CUDA 12.6 is attached once in a process" : NULL;
}

const char *pp_kernels_start(bool several, bool look)
{
    if (getenv("CUDA_INJECTION64_PATH"))
        return "a profiler is injected (CUDA_INJECTION64_PATH)";
    const char *why = load();
    if (why)
        return why;
    if (several && !have_calls())
        return "CUPTI tells no threads of launches";
    if (!pp_kernels_full() && (!several || atomic_load(&by_calls)) &&
        atomic_compare_exchange_strong(&state, &(int){ENDING}, ON))
        return NULL; /* the capture before has just ended: it goes on */
    if (atomic_load(&state) != OUT || atomic_load(&detaching) == DETACH_RUNS)
        return "the capture before is not read yet";
    why = refusal_of_version();
    if (why)
        return why;
    if (!pp_cupti_rate_left(pp_ring_session()))
        return "CUPTI was attached as often as it should be";
    if (!alone())
        return "another CUPTI client is attached";
    if (!take_buffers_back())
        return "out of memory";
    if (!set_clock())
        return "a profiler has changed CUPTI's clock";
    reset();
    pp_cupti_rate_use();
    if (!enable(several)) {
        if (atomic_load(&by_calls))
            atomic_store(&calls_fail, true);
        disable();
        detach();
        pp_ring_cost(DETACH_COST);
        return "CUPTI refuses to record kernels";
    }
    why = enable_copies(look);
    atomic_store(&copies, !why);
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

/* All that was launched until now is written, or never will be. `end`: of the capture. */
static void complete(int64_t end)
{
    (void)pthread_mutex_lock(&lock);
    emit_found();
    give_up_all(end);
    pp_ring_push_kernel(&(pp_kernel){.launched = pp_now(),
                                     .start = (int64_t)pp_ring_kernels_lost(),
                                     .flags = PP_KERNEL_COMPLETE});
    (void)pthread_mutex_unlock(&lock);
}

void pp_kernels_give_way(void)
{
    (void)pthread_mutex_lock(&api);
    if (atomic_exchange(&state, OUT) != OUT) {
        disable();
        (void)cupti.flush(1);
        complete(INT64_MAX);
        leave();
    } else if (atomic_compare_exchange_strong(&detaching, &(int){DETACH_WAITS}, DETACH_NONE)) {
        (void)cupti.unsubscribe(detacher); /* else it would end under the other's hands */
        leave();
    }
    (void)pthread_mutex_unlock(&api);
}

bool pp_kernels_by_calls(void)
{
    return atomic_load(&by_calls);
}

bool pp_kernels_active(void)
{
    return atomic_load(&state) != OUT || atomic_load(&detaching) != DETACH_NONE;
}

int64_t pp_kernels_cost(void)
{
    return atomic_exchange(&cost, 0);
}

void pp_kernels_forget(void)
{
    /* Another thread may have held them, which is not here. */
    pp_names_forget();
    (void)pthread_mutex_init(&api, NULL);
    (void)pthread_mutex_init(&lock, NULL);
    atomic_store(&state, OUT);
    atomic_store(&detaching, DETACH_NONE);
    atomic_store(&left, true); /* the parent's buffers: nobody here has them */
}

/* Whether kernels of the capture that has ended may still come. */
typedef enum news { AWAITED, ALL_HERE, SILENT } news;

static news await_kernels(void)
{
    (void)pthread_mutex_lock(&lock);
    emit_found();
    give_up_late();
    int64_t end = atomic_load(&ended_at);
    int64_t now = pp_now();
    bool here = streams_passed(end) || newest > end + SETTLED;
    bool silent = now - (news_at > end ? news_at : end) > SILENCE || now > end + LATEST;
    (void)pthread_mutex_unlock(&lock);
    return here ? ALL_HERE : silent ? SILENT : AWAITED;
}

/* What is done. `last`: and what is not. */
static void flush(bool last)
{
    static int64_t flushed_at;
    static bool told_loss;
    const int64_t now = pp_now();
    const bool few = __builtin_popcount(atomic_load(&free_buffers)) < BUFFERS / 2;
    if (few && !last && now - flushed_at < FLUSH_FEW)
        return;
    flushed_at = now;
    (void)pthread_mutex_lock(&lock);
    flushes++;
    if (atomic_load(&ran_out) && !told_loss)
        pp_ring_lose_kernels(1);
    told_loss = atomic_load(&ran_out);
    (void)pthread_mutex_unlock(&lock);
    (void)cupti.flush(last);
}

int64_t pp_kernels_poll(bool last)
{
    if (atomic_load(&state) == OUT || !pp_ring())
        return INT64_MAX;
    (void)pthread_mutex_lock(&api);
    int now = atomic_load(&state);
    if (now != OUT) {
        stop_looking();
        flush(last);
    }
    news came = await_kernels();
    if (last && now != OUT) {
        complete(INT64_MAX); /* the process ends, and CUPTI with it */
    } else if (came != AWAITED && atomic_compare_exchange_strong(&state, &(int){ENDING}, CLOSING)) {
        disable();
        (void)cupti.flush(came == SILENT); /* those that still run are lost, and told as that */
        complete(atomic_load(&ended_at));
        detach();
        atomic_store(&state, OUT);
    }
    (void)pthread_mutex_unlock(&api);
    return FLUSH_EVERY;
}
