/*
 * Does a process whose kernels CUPTI records go on? Two threads launch kernels, fills and copies in
 * turn, as a forward and a backward do, while a third has CUPTI hand over what has run. Needs no
 * framework; records.py builds it and runs its cases.
 *
 * records SECONDS OPTION...
 *
 *   copies       copies and fills are recorded
 *   calls        launches are told by records of calls, not by the kernels' own
 *   api          calls that copy are recorded beside kernels' own records
 *   flush=MS     between two flushes (50); 0: none
 *   buffer=BYTES of the GPU's memory for times that CUPTI is to take at once
 *   leave=N      CUPTI is left, and attached anew, each time that so many records have come
 *   at-once      it is left by the thread that says so, in no CUDA call
 *   quiet        CUPTI tells no calls any more when it is left in one
 *   late         its subscription is taken when it is to be left, not before it is attached
 *   slow         memory is given slowly to who takes it: what CUPTI's other threads see meanwhile
 *   beside       both threads launch at any time, not in turn
 *   few=N        activity buffers at most, of 128 KiB (32)
 *
 * Prints one JSON line: {"figure": "recorded", "launched", "kernels", "copies", "lost", "left",
 * "seconds", "hung"}. Where a launch takes more than 5 s the process hangs: that is told, and it
 * sleeps until it is killed, so that its threads can be looked at.
 */
#include <cuda.h>
#include <cupti.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OF_A_STEP = 800, FILLS = 8, COPIES = 4, BYTES = 1 << 20, BUFFER = 128 << 10, STUCK = 5 };

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry spin()\n{\n.reg .u64 a, b, d;\n.reg .pred p;\n"
                          "mov.u64 a, %clock64;\nagain:\nmov.u64 b, %clock64;\nsub.u64 d, b, a;\n"
                          "setp.lt.u64 p, d, 20000;\n@p bra again;\nret;\n}\n";

static struct {
    double seconds;
    bool copies, calls, api, late, slow, beside, at_once, quiet;
    long flush, few;
    size_t buffer;
    long leave;
} options = {.flush = 50, .few = 32};

static atomic_long launched, kernels, copied, lost, left, out, since;
static atomic_bool ends, detaching;
static CUpti_SubscriberHandle detacher;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void need(int result, const char *what)
{
    if (result == 0)
        return;
    (void)fprintf(stderr, "%s: %d\n", what, result);
    _exit(2);
}

/* ---- records ---- */

static void CUPTIAPI wanted(uint8_t **buffer, size_t *size, size_t *most)
{
    const bool any = atomic_fetch_add(&out, 1) < options.few;
    *buffer = any ? aligned_alloc(64, BUFFER) : NULL;
    *size = *buffer ? BUFFER : 0;
    *most = 0;
    if (!*buffer)
        atomic_fetch_sub(&out, 1);
}

static void CUPTIAPI filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                            size_t valid)
{
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    if (cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
        atomic_fetch_add(&lost, (long)dropped);
    while (valid && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        const bool kernel = record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        const bool copy = record->kind == CUPTI_ACTIVITY_KIND_MEMCPY ||
                          record->kind == CUPTI_ACTIVITY_KIND_MEMSET;
        atomic_fetch_add(&kernels, kernel);
        atomic_fetch_add(&copied, copy);
        atomic_fetch_add(&since, kernel || copy);
    }
    free(buffer);
    atomic_fetch_sub(&out, 1);
}

static const CUpti_ActivityKind of_copies[] = {
    CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY2};
static const CUpti_ActivityKind of_calls[] = {CUPTI_ACTIVITY_KIND_RUNTIME,
                                              CUPTI_ACTIVITY_KIND_DRIVER};

static void finalize(void)
{
    need(cuptiFinalize(), "cuptiFinalize");
    atomic_store(&out, 0); /* what it had then never comes back */
    atomic_fetch_add(&left, 1);
}

/* In a call that is about to return, as CUPTI asks for. */
static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                             const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    const CUpti_CallbackData *call = data;
    if (call->callbackSite != CUPTI_API_EXIT ||
        !atomic_compare_exchange_strong(&detaching, &(bool){true}, false))
        return;
    if (options.quiet)
        need(cuptiEnableDomain(0, detacher, CUPTI_CB_DOMAIN_DRIVER_API), "cuptiEnableDomain");
    finalize();
}

extern void *__libc_calloc(size_t n, size_t size);
static _Thread_local bool subscribing;

/* CUPTI's own, too: the program's comes first. */
void *calloc(size_t n, size_t size)
{
    if (subscribing)
        (void)usleep(3000);
    return __libc_calloc(n, size);
}

static void subscribe(void)
{
    subscribing = options.slow;
    need(cuptiSubscribe(&detacher, on_call, NULL), "cuptiSubscribe");
    subscribing = false;
}

static void attach(void)
{
    if (options.leave && !options.late)
        subscribe();
    need(cuptiActivityRegisterCallbacks(wanted, filled), "cuptiActivityRegisterCallbacks");
    if (!options.calls)
        need(cuptiActivityEnableLatencyTimestamps(1), "cuptiActivityEnableLatencyTimestamps");
    for (size_t i = 0; i < 2 && (options.calls || options.api); i++)
        need(cuptiActivityEnable(of_calls[i]), "cuptiActivityEnable");
    for (size_t i = 0; i < 3 && options.copies; i++)
        need(cuptiActivityEnable(of_copies[i]), "cuptiActivityEnable");
    need(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "cuptiActivityEnable");
    atomic_store(&since, 0);
}

static void leave(void)
{
    (void)cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    for (size_t i = 0; i < 3 && options.copies; i++)
        (void)cuptiActivityDisable(of_copies[i]);
    for (size_t i = 0; i < 2 && (options.calls || options.api); i++)
        (void)cuptiActivityDisable(of_calls[i]);
    if (!options.calls)
        (void)cuptiActivityEnableLatencyTimestamps(0);
    (void)cuptiActivityFlushAll(0);
    const long before = atomic_load(&left);
    if (options.late)
        subscribe();
    if (options.at_once) {
        finalize();
        return;
    }
    need(cuptiEnableDomain(1, detacher, CUPTI_CB_DOMAIN_DRIVER_API), "cuptiEnableDomain");
    atomic_store(&detaching, true);
    while (atomic_load(&left) == before && !atomic_load(&ends))
        (void)usleep(1000);
}

static void *flush(void *unused)
{
    while (!atomic_load(&ends)) {
        (void)usleep((useconds_t)(options.flush ? options.flush : 50) * 1000);
        if (options.flush)
            (void)cuptiActivityFlushAll(0);
        if (options.leave && atomic_load(&since) > options.leave) {
            leave();
            attach();
        }
    }
    return unused;
}

/* ---- work ---- */

static CUcontext context;
static CUfunction spin;
static CUstream stream;
static CUdeviceptr here, there;
static pthread_barrier_t turn;

static void launch(int n)
{
    for (int i = 0; i < n; i++) {
        need(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
        if (i % (n / FILLS) == 0)
            need(cuMemsetD8Async(here, 0, BYTES, stream), "cuMemsetD8Async");
        if (i % (n / COPIES) == 0)
            need(cuMemcpyDtoDAsync(there, here, BYTES, stream), "cuMemcpyDtoDAsync");
        atomic_fetch_add(&launched, 1);
    }
}

static void take_turns(void)
{
    if (!options.beside)
        (void)pthread_barrier_wait(&turn);
}

static void *backward(void *unused)
{
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (;;) {
        take_turns();
        launch(OF_A_STEP / 2);
        take_turns();
    }
    return unused;
}

static void *train(void *unused)
{
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    while (!atomic_load(&ends)) {
        launch(OF_A_STEP / 2);
        take_turns();
        take_turns();
    }
    return unused;
}

static void set_up(void)
{
    CUdevice device;
    CUmodule module;
    if (options.buffer) {
        size_t size = sizeof options.buffer;
        need(cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size,
                                       &options.buffer),
             "cuptiActivitySetAttribute");
    }
    need(cuInit(0), "cuInit");
    need(cuDeviceGet(&device, 0), "cuDeviceGet");
    need(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");
    need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    need(cuMemAlloc(&here, BYTES), "cuMemAlloc");
    need(cuMemAlloc(&there, BYTES), "cuMemAlloc");
    (void)pthread_barrier_init(&turn, NULL, 2);
}

static void tell(double seconds, bool hung)
{
    (void)printf("{\"figure\": \"recorded\", \"launched\": %ld, \"kernels\": %ld, \"copies\": %ld, "
                 "\"lost\": %ld, \"left\": %ld, \"seconds\": %.1f, \"hung\": %s}\n",
                 atomic_load(&launched), atomic_load(&kernels), atomic_load(&copied),
                 atomic_load(&lost), atomic_load(&left), seconds, hung ? "true" : "false");
    (void)fflush(stdout);
}

/* Where a thread is that a signal ends: on stderr. */
static void on_fault(int number)
{
    void *frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static bool parse(int argc, char **argv)
{
    if (argc < 2)
        return false;
    options.seconds = strtod(argv[1], NULL);
    for (int i = 2; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        const long number = value ? strtol(value + 1, NULL, 10) : 0;
        options.copies |= strcmp(argv[i], "copies") == 0;
        options.calls |= strcmp(argv[i], "calls") == 0;
        options.beside |= strcmp(argv[i], "beside") == 0;
        options.slow |= strcmp(argv[i], "slow") == 0;
        options.at_once |= strcmp(argv[i], "at-once") == 0;
        options.quiet |= strcmp(argv[i], "quiet") == 0;
        options.late |= strcmp(argv[i], "late") == 0;
        options.api |= strcmp(argv[i], "api") == 0;
        if (strncmp(argv[i], "flush=", 6) == 0)
            options.flush = number;
        if (strncmp(argv[i], "buffer=", 7) == 0)
            options.buffer = (size_t)number;
        if (strncmp(argv[i], "leave=", 6) == 0)
            options.leave = number;
        if (strncmp(argv[i], "few=", 4) == 0)
            options.few = number;
    }
    return options.seconds > 0;
}

int main(int argc, char **argv)
{
    pthread_t threads[3];
    if (!parse(argc, argv)) {
        (void)fprintf(stderr, "usage: records SECONDS [copies] [calls] [api] [flush=MS] "
                              "[buffer=BYTES] [leave=N] [at-once] [quiet] [late] [slow] [beside] "
                              "[few=N]\n");
        return 2;
    }
    (void)signal(SIGSEGV, on_fault);
    (void)signal(SIGABRT, on_fault);
    set_up();
    attach();
    (void)pthread_create(&threads[0], NULL, backward, NULL);
    (void)pthread_create(&threads[1], NULL, train, NULL);
    (void)pthread_create(&threads[2], NULL, flush, NULL);
    const double begin = now();
    double moved = begin;
    for (long seen = 0; now() < begin + options.seconds;) {
        (void)usleep(100000);
        const long at = atomic_load(&launched);
        moved = at != seen ? now() : moved;
        seen = at;
        if (now() > moved + STUCK) {
            tell(moved - begin, true);
            (void)pause();
        }
    }
    atomic_store(&ends, true);
    tell(now() - begin, false);
    _exit(0); /* threads may be anywhere */
}
