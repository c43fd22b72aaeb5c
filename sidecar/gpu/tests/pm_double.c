/*
 * A libcuda.so.1 and a libcupti.so.13 for tests, with what sidecar/gpu/pm_sampling.c uses. They
 * behave as was seen on an H200 (CUDA 13.0), as is reported of an H100 (CUDA 13.3), and as CUPTI's
 * headers have it. What they are to show lies in the file that PP_PM_TABLE names, else in
 * "pm-table" beside the library:
 *
 *   gpu GPU-... GH100       one line for each; a chip other than GH100 has no metric ".Triage..."
 *   timeline /dev/shm/...   its only GPU is the one of that file, see below
 *   at 2000000 sm=80 ...    what runs from so many ns after the beginning on: percent of counters,
 *                           and the SMs' clock, mhz=1980
 *   offset_ns -1400000      a setting, see below
 *   fault NAME CODE [N]     each call of that function fails with that code, but for the first N
 *
 * Time passes with the calls, not by the host's clock: `step_ns` before each decode while sampling
 * and before a stop, and in a decode `decode_ns` for each sample. So what is sampled is the same
 * each time. Evaluating takes no such time: it goes on while pm_double_allow lets it, and after a
 * stop. What `slow_ns` says a decode takes of a real processor for each sample; `beside_ns` of both
 * more, once an image of the capture is full, which is evaluated from then on.
 * With a timeline (e2e/gpu/driver, linked too) time is the host's, and samples are means of what
 * runs there, with noise; `late_ns` after its end at the latest one can be decoded.
 *
 * As the real ones:
 * - the first sample's start and values are no period's; after a stop each decode gives two samples
 *   of no length, from when sampling began;
 * - decoding ends with OTHER while it samples, and leaves what came in the meantime to the next;
 * - a sample's time is the GPU's own clock, in steps of 32 ns; its value is the mean over it;
 * - where an image is full the samples that would follow are lost; what is decoded later has no
 *   times;
 * - where the hardware's buffer is full the newest samples are lost.
 * Evaluating may run in another thread than the rest. The double takes no lock and orders nothing
 * between the two, or ThreadSanitizer would not see what the caller fails to order.
 *
 * The configuration is read again at each start, since nothing says that it is copied. What no
 * caller may do ends the process.
 */
#include "e2e/gpu/driver/timeline.h"
#include "sidecar/gpu/pm_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

#pragma weak vgpu_timeline_open
#pragma weak vgpu_timeline_uuid
#pragma weak vgpu_timeline_monitored
#pragma weak vgpu_timeline_sample

enum { GPUS = 4, FAULTS = 4, MOMENTS = 16, CLOCK_STEP = 32 };

typedef enum setting {
    OFFSET_NS,  /* of the GPU's clock to the host's, when the library is initialised */
    PPM,        /* by which the GPU's clock is faster */
    STEP_NS,    /* see above ... */
    DECODE_NS,  /* ... */
    LATE,       /* so many samples are not whole yet when they are decoded ... */
    PIECES,     /* 1: ... and come again, in part, in the next image; 0: they are lost then */
    MOST,       /* samples that one decode takes; 0: all */
    TELLS_FULL, /* 1: a decode that fills the image says so */
    TELLS_END,  /* 0: a decode after a stop does not say that it was the last */
    GROWTH,     /* bytes by which images are larger with each session */
    RECORD,     /* bytes of a sample in the hardware's buffer */
    OVERFLOW,   /* code of a decode after the buffer was full; 0: the flag alone */
    SLOW_NS,    /* see above */
    LATE_NS,    /* with a timeline, as the rest: after its end a sample can be decoded */
    ENABLE_NS,  /* that enabling takes */
    START_NS,   /* and a start */
    NOISE,      /* standard deviation of a value, thousandths of a point */
    SKIP,       /* each so manieth sample is lost; 0: none is */
    BLANK,      /* each so manieth has no value of one counter; 0: none */
    BESIDE_NS,  /* see above */
    PATIENT,    /* 1: while sampling, no decode before the images filled so far are evaluated */
    SETTINGS,
} setting;

/* A timeline has those up to FMA, and the clock. */
typedef enum counter { SM, WARPS, DRAM, FMA, TENSOR, MHZ, COUNTERS } counter;

typedef struct moment {
    double at; /* ns after the beginning */
    double values[COUNTERS];
} moment;

typedef struct fault {
    char name[64];
    int code, spared;
} fault;

static struct {
    vgpu_timeline *timeline; /* NULL: moments */
    struct {
        char uuid[64], chip[16];
    } gpus[GPUS];
    fault faults[FAULTS];
    moment moments[MOMENTS];
    long long settings[SETTINGS];
    int n_gpus, n_faults, n_moments;
} table;

/* ---- the table ---- */

static void read_moment(moment *m, char *text)
{
    static const char *const names[COUNTERS] = {"sm", "warps", "dram", "fma", "tensor", "mhz"};
    char *rest = NULL;
    m->at = strtod(strtok_r(text, " \n", &rest), NULL);
    for (char *word; (word = strtok_r(NULL, " \n", &rest));)
        for (int c = 0; c < COUNTERS; c++)
            if (strncmp(word, names[c], strlen(names[c])) == 0 && word[strlen(names[c])] == '=')
                m->values[c] = strtod(word + strlen(names[c]) + 1, NULL);
}

static void open_timeline(char *path)
{
    path[strcspn(path, "\n")] = '\0';
    if (!vgpu_timeline_open || !(table.timeline = vgpu_timeline_open(path, NULL)))
        return;
    (void)snprintf(table.gpus[0].uuid, sizeof table.gpus[0].uuid, "%s",
                   vgpu_timeline_uuid(table.timeline));
    (void)snprintf(table.gpus[0].chip, sizeof table.gpus[0].chip, "GH100");
    table.n_gpus = 1;
}

static void read_line(char *line)
{
    static const char *const names[SETTINGS] = {
        "offset_ns",  "ppm",       "step_ns", "decode_ns", "late",     "pieces",    "most",
        "tells_full", "tells_end", "growth",  "record",    "overflow", "slow_ns",   "late_ns",
        "enable_ns",  "start_ns",  "noise",   "skip",      "blank",    "beside_ns", "patient"};
    fault *f = &table.faults[table.n_faults % FAULTS];
    const int gpu = table.n_gpus % GPUS;
    char *value = strchr(line, ' ');
    if (!value)
        return;
    *value++ = '\0';
    if (strcmp(line, "timeline") == 0)
        open_timeline(value);
    else if (strcmp(line, "at") == 0)
        read_moment(&table.moments[table.n_moments++ % MOMENTS], value);
    else if (strcmp(line, "gpu") == 0)
        table.n_gpus += sscanf(value, "%63s %15s", table.gpus[gpu].uuid, table.gpus[gpu].chip) == 2;
    else if (strcmp(line, "fault") == 0)
        table.n_faults += sscanf(value, "%63s %d %d", f->name, &f->code, &f->spared) >= 2;
    for (int s = 0; s < SETTINGS; s++)
        if (strcmp(line, names[s]) == 0)
            table.settings[s] = strtoll(value, NULL, 10);
}

static void read_table(void)
{
    const char *path = getenv("PP_PM_TABLE");
    char beside[4096];
    Dl_info own;
    if (!path && dladdr(&table, &own) && strrchr(own.dli_fname, '/')) {
        int n = (int)(strrchr(own.dli_fname, '/') - own.dli_fname);
        (void)snprintf(beside, sizeof beside, "%.*s/pm-table", n, own.dli_fname);
        path = beside;
    }
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[1024];
    memset(&table, 0, sizeof table);
    table.settings[STEP_NS] = 1000000;
    table.settings[RECORD] = 1;
    table.settings[TELLS_END] = 1;
    while (f && fgets(line, sizeof line, f))
        read_line(line);
    if (f)
        (void)fclose(f);
}

/* The code with which this call fails; 0: with none. */
static int faulty(const char *name)
{
    for (int i = 0; i < table.n_faults; i++)
        if (strcmp(table.faults[i].name, name) == 0 && table.faults[i].spared-- <= 0)
            return table.faults[i].code;
    return 0;
}

#ifdef PM_DOUBLE_CUDA

/* ---- libcuda ---- */

enum { CUDA_INVALID_VALUE = 1 };

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *ret);
EXPORT int cuDeviceGet(int *ret, int number);
EXPORT int cuDeviceGetUuid(cuda_uuid *ret, int device);

int cuInit(unsigned flags)
{
    read_table();
    return flags ? CUDA_INVALID_VALUE : faulty("cuInit");
}

int cuDeviceGetCount(int *ret)
{
    if (table.n_gpus == 0)
        read_table(); /* in a training, which nobody asks to call cuInit() */
    *ret = table.n_gpus;
    return faulty("cuDeviceGetCount");
}

/* A device is not its number. */
int cuDeviceGet(int *ret, int number)
{
    *ret = number + 100;
    return number < 0 || number >= table.n_gpus ? CUDA_INVALID_VALUE : faulty("cuDeviceGet");
}

#ifndef PM_DOUBLE_BROKEN
int cuDeviceGetUuid(cuda_uuid *ret, int device)
{
    const char *text = table.gpus[device - 100].uuid + strlen("GPU-");
    for (int i = 0; i < 16; i++) {
        char byte[3] = {0};
        text += *text == '-';
        memcpy(byte, text, 2);
        ret->bytes[i] = (uint8_t)strtoul(byte, NULL, 16);
        text += 2;
    }
    return faulty("cuDeviceGetUuid");
}
#endif

#else

/* ---- libcupti ---- */

enum { OK = 0, NOT_SUPPORTED = 27, MAGIC = 0x706d, GHOSTS = 2, ODD_NS = 1234567 };

static int64_t beginning = 1700000000000000000; /* of the host's time */

struct pm_host {
    int magic;
    unsigned offered; /* bits: the metrics that were added */
};

struct pm_object {
    int magic;
    size_t device;
    pm_configure config;
    bool configured, running, spoiled, asked_to_stop;
    int64_t began;    /* by the GPU's clock */
    int64_t produced; /* samples since, and of them ... */
    int64_t decoded;
    uint8_t *last; /* image into which was decoded last, with ... */
    int64_t late;  /* ... so many samples that are not whole */
};

typedef struct slot {
    uint64_t start, end;
    double values[COUNTERS];
} slot;

typedef struct picture {
    int magic;
    uint32_t capacity;
    const pm_object *of;
    size_t populated, completed;
    slot slots[];
} picture;

static struct {
    int64_t now; /* of the host */
    int hosts, enabled, enabled_ever, initialized;
    bool busy[GPUS];
    long filled; /* images of the capture that are decoded into no more */
} state;

/* Samples whose evaluation has begun since the first initialisation, and as many as may end. */
static atomic_long evaluated, allowed;
/* Images of the capture whose last sample is evaluated. */
static atomic_long finished;

static void wait_for(const atomic_long *value, long least)
{
    while (atomic_load_explicit(value, memory_order_relaxed) < least)
        (void)sched_yield();
}

/** Lets so many samples be evaluated; a stop lets all. */
EXPORT void pm_double_allow(long samples);
void pm_double_allow(long samples)
{
    atomic_store_explicit(&allowed, samples, memory_order_relaxed);
}

/** Waits until the evaluation of so many samples has begun, and tells of how many it has. */
EXPORT long pm_double_evaluated(long least);
long pm_double_evaluated(long least)
{
    wait_for(&evaluated, least);
    return atomic_load_explicit(&evaluated, memory_order_relaxed);
}

/** What is not given back yet: hosts, sessions and initialisations. */
EXPORT int pm_double_left(void);
int pm_double_left(void)
{
    return state.hosts + state.enabled + state.initialized;
}

/** Sessions so far. */
EXPORT int pm_double_sessions(void);
int pm_double_sessions(void)
{
    return state.enabled_ever;
}

/** Another line of the table. */
EXPORT void pm_double_read(char *line);
void pm_double_read(char *line)
{
    read_line(line);
}

static void never(bool broken, const char *what)
{
    if (!broken)
        return;
    (void)fprintf(stderr, "pm_double: %s\n", what);
    abort();
}

static int64_t host_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* What each call begins with. */
static int enter(const char *name, const void *params, size_t size)
{
    const pm_initialize *head = params;
    never(!state.initialized, "not initialised");
    if (head->size != size || head->reserved)
        return CUPTI_INVALID_PARAMETER;
    return faulty(name);
}

#define CUPTI(name, params)                                                                        \
    EXPORT int name(params);                                                                       \
    int name(params)

#define ENTER(size)                                                                                \
    int rc = enter(__func__, p, size);                                                             \
    if (rc != OK)                                                                                  \
    return rc

EXPORT int cuptiGetResultString(int code, const char **ret);
int cuptiGetResultString(int code, const char **ret)
{
    *ret =
        code == CUPTI_INVALID_PARAMETER ? "CUPTI_ERROR_INVALID_PARAMETER" : "CUPTI_ERROR_UNKNOWN";
    return code == NOT_SUPPORTED ? CUPTI_INVALID_PARAMETER : OK; /* not every code has a text */
}

CUPTI(cuptiProfilerInitialize, pm_initialize *p)
{
    if (state.initialized++ == 0) {
        read_table();
        if (table.timeline)
            beginning = host_now();
        state.now = beginning;
        pm_double_allow(LONG_MAX);
        atomic_store_explicit(&evaluated, 0, memory_order_relaxed);
    }
    int rc = enter(__func__, p, 16);
    state.initialized -= rc != OK;
    return rc;
}

CUPTI(cuptiProfilerDeInitialize, pm_initialize *p)
{
    ENTER(16);
    state.initialized--;
    never(!state.initialized && (state.hosts || state.enabled), "hosts or sessions were left");
    return OK;
}

CUPTI(cuptiDeviceGetChipName, pm_chip_name *p)
{
    ENTER(32);
    if (p->device >= (size_t)table.n_gpus)
        return CUPTI_INVALID_PARAMETER;
    p->name = table.gpus[p->device].chip;
    return OK;
}

/* ---- its host: metrics ---- */

/* `apart`: does not go into one pass with others of the SMs. */
static const struct {
    const char *name;
    counter counter;
    bool apart, of_sm;
} metrics[] = {
    {"sm__cycles_elapsed", MHZ, false, false},
    {"sm__cycles_active", SM, false, true},
    {"sm__warps_active", WARPS, false, true},
    {"dram__throughput", DRAM, false, false},
    {"TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime", FMA, false, false},
    {"sm__inst_executed_pipe_fma", FMA, true, false},
    {"sm__pipe_tensor_cycles_active", TENSOR, false, false},
};
enum { METRICS = sizeof metrics / sizeof *metrics };

static int metric_named(const char *name)
{
    for (int m = 0; m < METRICS; m++) {
        const char *rest =
            metrics[m].counter == MHZ ? ".avg" : ".avg.pct_of_peak_sustained_elapsed";
        const char *end = strstr(name, rest);
        if (end && end[strlen(rest)] == '\0' && strlen(metrics[m].name) == (size_t)(end - name) &&
            strncmp(metrics[m].name, name, (size_t)(end - name)) == 0)
            return m;
    }
    return -1;
}

static void check_host(const pm_host *h)
{
    never(!h || h->magic != MAGIC, "no such host");
}

CUPTI(cuptiProfilerHostInitialize, pm_host_initialize *p)
{
    ENTER(48);
    if (p->profiler != PM_PROFILER_SAMPLING || !p->chip || !p->availability)
        return CUPTI_INVALID_PARAMETER;
    p->host = calloc(1, sizeof *p->host);
    never(!p->host, "no memory");
    p->host->magic = MAGIC;
    bool triage = strcmp(p->chip, "GH100") == 0;
    for (int m = 0; m < METRICS; m++) {
        const bool known = triage || !strstr(metrics[m].name, ".Triage");
        const bool told = !table.timeline || metrics[m].counter != TENSOR;
        p->host->offered |= known && told ? 1U << (16 + m) : 0;
    }
    state.hosts++;
    return OK;
}

CUPTI(cuptiProfilerHostDeinitialize, pm_host_deinitialize *p)
{
    ENTER(24);
    check_host(p->host);
    p->host->magic = 0;
    free(p->host);
    state.hosts--;
    return OK;
}

CUPTI(cuptiProfilerHostConfigAddMetrics, pm_add_metrics *p)
{
    ENTER(40);
    check_host(p->host);
    for (size_t i = 0; i < p->count; i++) {
        int m = metric_named(p->names[i]);
        if (m < 0 || !(p->host->offered & 1U << (16 + m)))
            return CUPTI_INVALID_PARAMETER; /* as the real one */
        p->host->offered |= 1U << m;
    }
    return OK;
}

CUPTI(cuptiProfilerHostGetConfigImageSize, pm_config_size *p)
{
    ENTER(32);
    check_host(p->host);
    p->config_size = sizeof p->host->offered;
    return OK;
}

CUPTI(cuptiProfilerHostGetConfigImage, pm_config_image *p)
{
    ENTER(40);
    check_host(p->host);
    if (p->config_size != sizeof p->host->offered)
        return CUPTI_INVALID_PARAMETER;
    memcpy(p->config, &p->host->offered, p->config_size);
    return OK;
}

static size_t passes_of(const uint8_t *config)
{
    unsigned bits;
    bool of_sm = false;
    size_t apart = 0;
    memcpy(&bits, config, sizeof bits);
    for (int m = 0; m < METRICS; m++) {
        of_sm = of_sm || (bits & 1U << m && metrics[m].of_sm);
        apart += bits & 1U << m && metrics[m].apart;
    }
    return apart + (of_sm || !apart);
}

CUPTI(cuptiProfilerHostGetNumOfPasses, pm_passes *p)
{
    ENTER(40);
    p->passes = passes_of(p->config);
    return OK;
}

static const picture *picture_in(const uint8_t *image, size_t size)
{
    const picture *i = (const void *)image;
    bool right = size >= sizeof *i && i->magic == MAGIC &&
                 size == sizeof *i + i->capacity * sizeof i->slots[0];
    return right ? i : NULL;
}

/* Percent, or cycles. */
static double value_of(const slot *s, counter c)
{
    return c == MHZ ? s->values[c] * (double)(s->end - s->start) / 1000 : s->values[c];
}

CUPTI(cuptiProfilerHostEvaluateToGpuValues, pm_evaluate *p)
{
    wait_for(&allowed, atomic_fetch_add_explicit(&evaluated, 1, memory_order_relaxed) + 1);
    ENTER(72);
    check_host(p->host);
    const picture *i = picture_in(p->image, p->image_size);
    if (!i || p->index >= i->completed)
        return CUPTI_INVALID_PARAMETER;
    for (size_t v = 0; v < p->count; v++) {
        int m = metric_named(p->names[v]);
        if (m < 0 || !(p->host->offered & 1U << m))
            return CUPTI_INVALID_METRIC_NAME;
        p->values[v] = value_of(&i->slots[p->index], metrics[m].counter);
    }
    if (p->index + 1 == i->completed)
        atomic_fetch_add_explicit(&finished, 1, memory_order_relaxed);
    return OK;
}

#ifndef PM_DOUBLE_OLD

/* ---- its device: sampling ---- */

static void check_object(const pm_object *o)
{
    never(!o || o->magic != MAGIC, "no such session");
}

CUPTI(cuptiPmSamplingGetCounterAvailability, pm_availability *p)
{
    ENTER(40);
    if (p->device >= (size_t)table.n_gpus || (p->image && p->image_size != 24))
        return CUPTI_INVALID_PARAMETER;
    p->image_size = 24;
    if (p->image)
        memset(p->image, 1, p->image_size);
    return OK;
}

static void take_time(setting which)
{
    const long long ns = table.timeline ? table.settings[which] : 0;
    (void)nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000},
                    NULL);
}

CUPTI(cuptiPmSamplingEnable, pm_enable *p)
{
    ENTER(32);
    if (p->device >= (size_t)table.n_gpus)
        return CUPTI_INVALID_PARAMETER;
    if (state.busy[p->device])
        return CUPTI_INVALID_OPERATION;
    take_time(ENABLE_NS);
    p->object = calloc(1, sizeof *p->object);
    never(!p->object, "no memory");
    p->object->magic = MAGIC;
    p->object->device = p->device;
    state.busy[p->device] = true;
    state.enabled++;
    state.enabled_ever++;
    return OK;
}

CUPTI(cuptiPmSamplingDisable, pm_of_object *p)
{
    ENTER(24);
    check_object(p->object);
    never(p->object->running && !p->object->asked_to_stop, "disabled while it samples");
    state.busy[p->object->device] = false;
    p->object->magic = 0;
    free(p->object);
    state.enabled--;
    return OK;
}

CUPTI(cuptiPmSamplingSetConfig, pm_configure *p)
{
    ENTER(64);
    check_object(p->object);
    if (p->trigger != PM_TRIGGER_TIME_INTERVAL || p->append != PM_APPEND_KEEP_OLDEST ||
        p->period == 0 || p->config_size != sizeof(unsigned))
        return CUPTI_INVALID_PARAMETER;
    if (passes_of(p->config) != 1)
        return NOT_SUPPORTED;
    p->object->config = *p;
    p->object->configured = true;
    return OK;
}

CUPTI(cuptiPmSamplingGetCounterDataSize, pm_image_size *p)
{
    ENTER(56);
    check_object(p->object);
    p->image_size = sizeof(picture) + p->samples * sizeof(slot) +
                    (size_t)(state.enabled_ever * table.settings[GROWTH]);
    return OK;
}

CUPTI(cuptiPmSamplingCounterDataImageInitialize, pm_image_initialize *p)
{
    ENTER(40);
    check_object(p->object);
    picture *i = (void *)p->image;
    state.filled++;
    *i = (picture){.magic = MAGIC,
                   .of = p->object,
                   .capacity = (uint32_t)((p->image_size - sizeof *i) / sizeof i->slots[0])};
    return OK;
}

static int64_t gpu_time(int64_t host)
{
    double passed = (double)(host - beginning);
    return host + table.settings[OFFSET_NS] +
           (int64_t)(passed * (double)table.settings[PPM] * 1e-6);
}

/* In ns after the beginning. */
static double host_time(int64_t gpu)
{
    return (double)(gpu - beginning - table.settings[OFFSET_NS]) /
           (1 + (double)table.settings[PPM] * 1e-6);
}

static double mean_of(counter c, double from, double to)
{
    double sum = 0;
    for (int m = 0; m < table.n_moments; m++) {
        double begin = fmax(from, table.moments[m].at);
        double end = m + 1 < table.n_moments ? fmin(to, table.moments[m + 1].at) : to;
        sum += fmax(end - begin, 0) * table.moments[m].values[c];
    }
    return sum / (to - from);
}

CUPTI(cuptiPmSamplingStart, pm_of_object *p)
{
    ENTER(24);
    pm_object *o = p->object;
    check_object(o);
    if (!o->configured || o->running || passes_of(o->config.config) != 1)
        return CUPTI_INVALID_OPERATION;
    if (table.timeline) {
        vgpu_timeline_sample(table.timeline);
        take_time(START_NS);
    }
    state.now = table.timeline ? host_now() : state.now + 5 * table.settings[STEP_NS];
    o->running = true;
    o->asked_to_stop = false;
    o->began = gpu_time(state.now);
    o->produced = o->decoded = o->late = 0;
    o->last = NULL;
    state.filled = 0;
    atomic_store_explicit(&finished, 0, memory_order_relaxed);
    return OK;
}

static void pass_time(pm_object *o)
{
    state.now =
        table.timeline ? host_now() - table.settings[LATE_NS] : state.now + table.settings[STEP_NS];
    const int64_t produced = (gpu_time(state.now) - o->began) / (int64_t)o->config.period;
    o->produced = produced > o->produced ? produced : o->produced;
}

CUPTI(cuptiPmSamplingStop, pm_of_object *p)
{
    check_object(p->object);
    p->object->asked_to_stop = true;
    pm_double_allow(LONG_MAX);
    ENTER(24);
    if (!p->object->running)
        return CUPTI_INVALID_OPERATION;
    pass_time(p->object);
    p->object->running = false;
    return OK;
}

/* Of a normal distribution's, near enough: the same for the same numbers. */
static double noise_of(int64_t number, int c)
{
    uint64_t x = (uint64_t)number * COUNTERS + (uint64_t)c;
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        sum += (double)(x >> 11) / 9007199254740992.0;
    }
    return sum - 6;
}

static void measure(const pm_object *o, int64_t number, double from, double to, slot *s)
{
    if (!table.timeline) {
        for (counter c = 0; c < COUNTERS; c++)
            s->values[c] = mean_of(c, from, to);
        return;
    }
    static uint64_t cursor;
    double ghz = 0;
    vgpu_timeline_monitored(table.timeline, &cursor, beginning + (int64_t)from,
                            beginning + (int64_t)to, s->values, &ghz);
    s->values[MHZ] = 1000 * ghz;
    for (counter c = 0; c < COUNTERS; c++)
        s->values[c] = fmax(0, s->values[c] + noise_of(o->began + number, (int)c) *
                                                  (double)table.settings[NOISE] / 1000);
    if (table.settings[BLANK] && number % table.settings[BLANK] == 0)
        s->values[number / table.settings[BLANK] % COUNTERS] = (double)NAN;
}

static slot sample_of(const pm_object *o, int64_t number)
{
    const int64_t period = (int64_t)o->config.period;
    const int64_t start = o->began + number * period;
    slot s = {.start = (uint64_t)(start / CLOCK_STEP * CLOCK_STEP),
              .end = (uint64_t)((start + period) / CLOCK_STEP * CLOCK_STEP)};
    measure(o, number, host_time(start), host_time(start + period), &s);
    if (number == 0) {
        s.start -= ODD_NS;
        for (counter c = 0; c < COUNTERS; c++)
            s.values[c] = 100;
    }
    if (o->spoiled)
        s.start = s.end = 0;
    return s;
}

/* Those that were not whole: now they are, or in a new image they are in part, or never. */
static void complete_late(pm_object *o, picture *i)
{
    if (o->last == (uint8_t *)i)
        i->completed = i->populated;
    for (int64_t n = o->decoded - o->late; o->last != (uint8_t *)i && n < o->decoded; n++) {
        if (!table.settings[PIECES] || i->populated == i->capacity)
            continue;
        slot part = sample_of(o, n);
        for (counter c = 0; c < COUNTERS; c++)
            part.values[c] /= 2;
        i->slots[i->populated++] = part;
    }
    o->last = (uint8_t *)i;
}

static void fill(pm_object *o, picture *i, int64_t until)
{
    for (; o->decoded < until && i->populated < i->capacity; o->decoded++)
        if (!table.settings[SKIP] || o->decoded % table.settings[SKIP] != 1)
            i->slots[i->populated++] = sample_of(o, o->decoded);
    for (int g = 0; !o->running && g < GHOSTS && i->populated < i->capacity; g++)
        i->slots[i->populated++] = (slot){.start = (uint64_t)o->began, .end = (uint64_t)o->began};
    o->late = o->running ? table.settings[LATE] : 0;
    if (o->late > (int64_t)i->populated)
        o->late = (int64_t)i->populated;
    i->completed = i->populated - (size_t)o->late;
}

static int reason_of(const pm_object *o, bool full)
{
    if (full && table.settings[TELLS_FULL])
        return PM_STOP_IMAGE_FULL;
    bool all = table.settings[TELLS_END] && !o->running && o->decoded == o->produced;
    return all && !full ? PM_STOP_END_OF_RECORDS : PM_STOP_OTHER;
}

/* Takes so many ns of a processor. */
static void work(int64_t ns)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    for (int64_t until = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + ns;
         (int64_t)t.tv_sec * 1000000000 + t.tv_nsec < until;)
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
}

CUPTI(cuptiPmSamplingDecodeData, pm_decode *p)
{
    ENTER(45);
    pm_object *o = p->object;
    check_object(o);
    const picture *found = picture_in(p->image, p->image_size);
    if (!found || found->of != o)
        return CUPTI_INVALID_PARAMETER;
    picture *i = (void *)p->image;
    if (o->running && table.settings[PATIENT])
        wait_for(&finished, state.filled);
    if (o->running)
        pass_time(o);
    const int64_t room = (int64_t)o->config.hardware_buffer / table.settings[RECORD];
    p->overflow = o->produced - o->decoded > room;
    if (p->overflow && table.settings[OVERFLOW])
        return (int)table.settings[OVERFLOW];
    const int64_t most = table.settings[MOST] ? table.settings[MOST] : o->produced;
    const int64_t there = p->overflow ? o->decoded + room : o->produced;
    const int64_t until = there - o->decoded > most ? o->decoded + most : there;
    const int64_t before = o->decoded;
    complete_late(o, i);
    fill(o, i, until);
    const int64_t beside = state.filled > 0 ? table.settings[BESIDE_NS] : 0;
    state.now += (o->decoded - before) * (table.settings[DECODE_NS] + beside);
    work((o->decoded - before) * (table.settings[SLOW_NS] + beside));
    bool full = o->decoded < until;
    o->spoiled = o->spoiled || full;
    if (full || p->overflow)
        o->decoded = o->produced;
    p->stop_reason = reason_of(o, full);
    return OK;
}

CUPTI(cuptiPmSamplingGetCounterDataInfo, pm_image_info *p)
{
    ENTER(56);
    const picture *i = picture_in(p->image, p->image_size);
    if (!i)
        return CUPTI_INVALID_PARAMETER;
    p->total = i->capacity;
    p->populated = i->populated;
    p->completed = i->completed;
    return OK;
}

CUPTI(cuptiPmSamplingCounterDataGetSampleInfo, pm_sample_info *p)
{
    ENTER(64);
    check_object(p->object);
    const picture *i = picture_in(p->image, p->image_size);
    if (!i || i->of != p->object || p->index >= i->completed)
        return CUPTI_INVALID_PARAMETER;
    p->start = i->slots[p->index].start;
    p->end = i->slots[p->index].end;
    return OK;
}

#endif
#endif
