/*
 * The clock of CUDA events: a mark records an event on torch's current stream and waits in a queue;
 * the hook's own thread turns it into host time when the GPU has passed it. Nothing is ever
 * synchronised, and no CUDA library is loaded: only the libcuda that torch has brought in is used.
 *
 * Events run on the GPU's global timer. An elapsed time is a float of ms and loses precision over
 * long spans, so each event is measured against the one resolved before it and the sums are kept
 * in ns. That timer drifts by some ppm against the host's: an event on an idle stream, bracketed by
 * two looks at the host clock, says once a second by how much, and the rate follows.
 */
#include "sidecar/hook/hook.h"

#include <dlfcn.h>
#include <string.h>

typedef struct CUevent_st *cu_event;
typedef struct CUstream_st *cu_stream;
typedef struct CUctx_st *cu_context;

enum {
    CU_OK = 0,
    CU_NOT_READY = 600,
    CU_EVENT_DEFAULT = 0,
    CU_STREAM_NON_BLOCKING = 1,
    CU_CAPTURE_NONE = 0,
    CU_CAPTURE_MODE_RELAXED = 2,
    SLOTS = 16384, /* marks that may wait for the GPU; a power of two */
    DEVICES = 16,
    TRIES = 8, /* brackets of which the narrowest counts */
    /* ns that an event costs a training that waits for its launches, beyond what is timed here:
     * measured on an H200 (0.7 us of it are the call, 2 us pass between two kernels on the GPU). */
    EVENT_COST = 3300,
};

#define CALIBRATE_EVERY INT64_C(1000000000) /* ns */
#define RESET_AFTER INT64_C(5000000000)     /* ns without marks: set the clock anew */
#define BRACKET_LIMIT INT64_C(2000000)      /* ns to wait for one calibration event */
#define RATE_LIMIT 200e-6                   /* a timer this far off is not a timer */
#define ELAPSED_LIMIT 3.6e6F                /* ms: no two marks are further apart */
#define POLL_BUSY INT64_C(2000000)          /* ns between looks while marks wait */
#define POLL_IDLE INT64_C(50000000)

static struct {
    int (*event_create)(cu_event *, unsigned);
    int (*event_record)(cu_event, cu_stream);
    int (*event_query)(cu_event);
    int (*event_elapsed)(float *, cu_event, cu_event);
    int (*context_current)(cu_context *);
    int (*context_set)(cu_context);
    int (*context_device)(int *);
    int (*stream_create)(cu_stream *, unsigned);
    int (*stream_capturing)(cu_stream, int *);
    int (*capture_mode)(int *);
} cu;

static const struct {
    const char *name;
    void **slot;
} symbols[] = {
    {"cuEventCreate", (void **)&cu.event_create},
    {"cuEventRecord", (void **)&cu.event_record},
    {"cuEventQuery", (void **)&cu.event_query},
    {"cuEventElapsedTime", (void **)&cu.event_elapsed},
    {"cuCtxGetCurrent", (void **)&cu.context_current},
    {"cuCtxSetCurrent", (void **)&cu.context_set},
    {"cuCtxGetDevice", (void **)&cu.context_device},
    {"cuStreamCreate", (void **)&cu.stream_create},
    {"cuStreamIsCapturing", (void **)&cu.stream_capturing},
    {"cuThreadExchangeStreamCaptureMode", (void **)&cu.capture_mode},
};

/* One GPU: made by the first mark on it, served by the hook's thread. */
typedef struct device {
    cu_context context;
    PyObject *ordinal; /* argument for torch's "current stream" */
    /* The rest belongs to the hook's thread. */
    cu_stream stream;   /* idle, for calibration */
    cu_event probe;     /* for calibration */
    cu_event anchor;    /* the event resolved last, at `host` */
    double host;        /* ns, CLOCK_MONOTONIC */
    double rate;        /* host ns per GPU ns */
    int64_t calibrated; /* when, ns; 0: never */
    bool broken;
} device;

typedef struct slot {
    pp_mark mark;
    cu_event event[DEVICES]; /* made when first needed on that device */
    uint32_t device;
    uint64_t lost_before; /* marks that are not in a slot, since the one before it */
} slot;

static PyObject *stream_of;
static device devices[DEVICES];
static atomic_uint device_count;
static slot slots[SLOTS];
static _Atomic uint64_t queued;   /* written by the producers, under the GIL */
static _Atomic uint64_t resolved; /* written by the hook's thread */
static _Atomic uint64_t overflow; /* marks without a slot or event since the last that has */

/* Also finds GPUs that come into use later. NULL: this thread has no context, or too many. */
static device *current_device(void)
{
    cu_context context = NULL;
    if (cu.context_current(&context) != CU_OK || !context)
        return NULL;
    unsigned n = atomic_load(&device_count);
    for (unsigned i = 0; i < n; i++)
        if (devices[i].context == context)
            return &devices[i];
    int ordinal = 0;
    if (n == DEVICES || cu.context_device(&ordinal) != CU_OK)
        return NULL;
    device *d = &devices[n];
    d->context = context;
    d->ordinal = PyLong_FromLong(ordinal);
    if (!d->ordinal) {
        PyErr_Clear();
        return NULL;
    }
    atomic_store(&device_count, n + 1);
    return d;
}

/* torch's current stream there; false where it cannot be told or is being captured into a graph. */
static bool current_stream(const device *d, cu_stream *ret)
{
    PyObject *raw = PyObject_CallFunctionObjArgs(stream_of, d->ordinal, NULL);
    void *stream = raw ? PyLong_AsVoidPtr(raw) : NULL;
    Py_XDECREF(raw);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    int capturing = CU_CAPTURE_NONE;
    if (cu.stream_capturing(stream, &capturing) != CU_OK || capturing != CU_CAPTURE_NONE)
        return false;
    *ret = stream;
    return true;
}

static bool record(slot *s, const device *d)
{
    cu_stream stream = NULL;
    cu_event *event = &s->event[d - devices];
    if (!current_stream(d, &stream))
        return false;
    if (!*event && cu.event_create(event, CU_EVENT_DEFAULT) != CU_OK)
        return false;
    return cu.event_record(*event, stream) == CU_OK;
}

static bool cuda_stamp(pp_mark *mark)
{
    uint64_t at = atomic_load_explicit(&queued, memory_order_relaxed);
    slot *s = &slots[at & (SLOTS - 1)];
    const bool known = mark->time != 0; /* it only has to stay behind those before it */
    const device *d = known ? devices : current_device();
    bool full = at - atomic_load_explicit(&resolved, memory_order_acquire) >= SLOTS;
    if (!d || full || (!known && !record(s, d))) {
        atomic_fetch_add(&overflow, 1);
        pp_ring_count_lost(1);
        return false;
    }
    pp_ring_cost(known ? 0 : EVENT_COST);
    s->mark = *mark;
    s->device = (uint32_t)(d - devices);
    s->lost_before = atomic_exchange(&overflow, 0);
    atomic_store_explicit(&queued, at + 1, memory_order_release);
    return false;
}

/* Host time of an event on an idle stream, and half of the bracket around it. */
static bool bracket(const device *d, double *ret_host, int64_t *ret_error)
{
    *ret_error = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t before = pp_now();
        if (cu.event_record(d->probe, d->stream) != CU_OK)
            return false;
        int64_t after;
        int rc;
        do {
            rc = cu.event_query(d->probe);
            after = pp_now();
        } while (rc == CU_NOT_READY && after - before < BRACKET_LIMIT);
        if (rc != CU_OK)
            return false;
        *ret_host = ((double)before + (double)after) / 2;
        *ret_error = (after - before) / 2;
        if (*ret_error < 5000)
            break; /* narrow enough */
    }
    return true;
}

/* Between two events, in ms; what a broken driver says, also NaN, is no time. */
static bool elapsed(cu_event from, cu_event to, float *ret_ms)
{
    return cu.event_elapsed(ret_ms, from, to) == CU_OK &&
           *ret_ms<ELAPSED_LIMIT && * ret_ms> - ELAPSED_LIMIT;
}

static bool prepare(device *d)
{
    if (d->stream)
        return true;
    d->rate = 1;
    return cu.stream_create(&d->stream, CU_STREAM_NON_BLOCKING) == CU_OK &&
           cu.event_create(&d->probe, CU_EVENT_DEFAULT) == CU_OK &&
           cu.event_create(&d->anchor, CU_EVENT_DEFAULT) == CU_OK;
}

static void swap(cu_event *a, cu_event *b)
{
    cu_event t = *a;
    *a = *b;
    *b = t;
}

/* Sets the GPU's clock at first and after a gap; else steers its rate so that a second takes the
 * error away. */
static bool calibrate(device *d)
{
    double host = 0;
    int64_t error = 0;
    float ms = 0;
    if (!prepare(d) || !bracket(d, &host, &error))
        return false;
    if (d->calibrated == 0 || pp_now() - d->calibrated > RESET_AFTER) {
        swap(&d->anchor, &d->probe);
        d->host = host;
    } else if (elapsed(d->anchor, d->probe, &ms)) {
        double expected = d->host + (double)ms * 1e6 * d->rate;
        double rate = d->rate + (host - expected) / (double)CALIBRATE_EVERY;
        if (rate > 1 + RATE_LIMIT)
            rate = 1 + RATE_LIMIT;
        if (rate < 1 - RATE_LIMIT)
            rate = 1 - RATE_LIMIT;
        /* A wide bracket says less than the rate that is known. */
        if (error < 50000)
            d->rate = rate;
    }
    d->calibrated = pp_now();
    pp_ring_header *h = pp_ring();
    if (h)
        __atomic_store_n(&h->clock_error, error, __ATOMIC_RELAXED);
    return true;
}

/* Gives the mark its time; 0: the GPU is not there yet; -1: it never will be. */
static int resolve(slot *s, device *d)
{
    float ms = 0;
    cu_event *event = &s->event[s->device];
    int rc = cu.event_query(*event);
    if (rc == CU_NOT_READY)
        return 0;
    if (rc != CU_OK || !elapsed(d->anchor, *event, &ms))
        return -1;
    d->host += (double)ms * 1e6 * d->rate;
    swap(&d->anchor, event);
    s->mark.time = (int64_t)d->host;
    return 1;
}

static bool ready(device *d)
{
    if (d->broken || cu.context_set(d->context) != CU_OK)
        return false;
    if (d->calibrated == 0 || pp_now() - d->calibrated > CALIBRATE_EVERY)
        d->broken = !calibrate(d) && d->calibrated == 0;
    return !d->broken;
}

static int64_t cuda_poll(void)
{
    static _Thread_local bool relaxed;
    if (!pp_ring())
        return POLL_IDLE;
    if (!relaxed) {
        /* Else a look at an event would spoil a capture that another thread is making. */
        int mode = CU_CAPTURE_MODE_RELAXED;
        relaxed = cu.capture_mode(&mode) == CU_OK;
    }
    uint64_t at = atomic_load_explicit(&resolved, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&queued, memory_order_acquire);
    for (; at < end; at++) {
        slot *s = &slots[at & (SLOTS - 1)];
        device *d = &devices[s->device];
        int rc = s->mark.time != 0 ? 1 : ready(d) ? resolve(s, d) : -1;
        if (rc == 0)
            break;
        pp_ring_lost_here(s->lost_before + (rc < 0));
        if (rc > 0)
            pp_ring_push(&s->mark);
        else
            pp_ring_count_lost(1);
        atomic_store_explicit(&resolved, at + 1, memory_order_release);
    }
    return at < end ? POLL_BUSY : pp_ring_mode_now() == PP_RING_SAMPLE ? POLL_BUSY : POLL_IDLE;
}

bool pp_clock_cuda_behind(void)
{
    return atomic_load(&resolved) != atomic_load(&queued);
}

static const pp_clock clock_cuda = {"cuda", cuda_stamp, cuda_poll};

const pp_clock *pp_clock_cuda(PyObject *get_stream)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return NULL;
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    Py_INCREF(get_stream);
    Py_XDECREF(stream_of);
    stream_of = get_stream;
    return &clock_cuda;
}
