/*
 * A libnvidia-ml.so.1 for tests, with what sidecar/gpu/nvml.c uses. Its GPUs are the lines of the
 * file that PP_NVML_TABLE names:
 *
 *   GPU-... util=50 mem=1024 gpm=1 sm=80,20 occ=40 dram=10 fp32=5 lost=0 repeat=0
 *           mw=500000 mj=1000,2000 mhz=1980 users=FILE
 *   MIG-... instance=3 mem=512 sm=10        a part of the GPU of the line before
 *
 * A counter may have several values, one for each sample, again and again. `lost=N`: from the Nth
 * sample on every call fails, as after a fault on the bus. `repeat=N`: every Nth sample is the one
 * before once more, as where a GPU is asked faster than it refreshes. A line "init CODE" lets the
 * start fail. A line "timeline PATH" is the GPU of that file (e2e/gpu/driver, linked too), whose
 * counters are what runs there, in windows of 100 ms; without PP_NVML_TABLE the file "nvml-table"
 * beside the library is looked at.
 */
#include "e2e/gpu/driver/timeline.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define WINDOW INT64_C(100000000) /* ns */

#pragma weak vgpu_timeline_open
#pragma weak vgpu_timeline_uuid
#pragma weak vgpu_timeline_mean
#pragma weak vgpu_timeline_busy

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_FOUND = 6,
    GPU_IS_LOST = 15,
    GPUS = 8,
    VALUES = 8,
    MAGIC = 0x6770,
};

typedef enum counter {
    SM,
    OCCUPANCY,
    DRAM,
    FP32,
    UTIL,
    MEMORY,
    POWER,
    ENERGY,
    CLOCK,
    TENSOR,
    PCIE_TX, /* MiB per second */
    COUNTERS
} counter;
static const char *const names[COUNTERS] = {"sm", "occ", "dram", "fp32",   "util", "mem",
                                            "mw", "mj",  "mhz",  "tensor", "pcie"};

typedef struct gpu {
    char uuid[64];
    double values[COUNTERS][VALUES];
    int count[COUNTERS];
    int gpm, lost, repeat;
    char users[1024];              /* a file; "" */
    int instance;                  /* of a part; 0: a whole GPU */
    int samples;                   /* taken */
    int refreshed;                 /* of them, new ones */
    const vgpu_timeline *timeline; /* NULL: values */
    uint64_t cursor;
} gpu;

typedef struct sample {
    int magic;
    const gpu *of;
    int number; /* of the refresh; 0: not taken */
    int64_t at; /* ns since 1970: with a timeline, of the refresh */
} sample;

typedef struct metric {
    unsigned id;
    int status;
    double value;
    char *texts[3];
} metric;

typedef struct request {
    unsigned version, count;
    sample *from, *to;
    metric metrics[333]; /* of CUDA 13's nvml.h; ours may be longer */
} request;

static gpu gpus[GPUS];
static int n_gpus;
static int started;
static char timeline_path[2048];

static void take(gpu *g, const char *key, char *text)
{
    int number = (int)strtol(text, NULL, 10);
    if (strcmp(key, "gpm") == 0)
        g->gpm = number;
    else if (strcmp(key, "lost") == 0)
        g->lost = number;
    else if (strcmp(key, "repeat") == 0)
        g->repeat = number;
    else if (strcmp(key, "instance") == 0)
        g->instance = number;
    else if (strcmp(key, "users") == 0)
        (void)snprintf(g->users, sizeof g->users, "%s", text);
    for (int c = 0; c < COUNTERS; c++) {
        char *rest = NULL;
        if (strcmp(key, names[c]) != 0)
            continue;
        for (char *v = strtok_r(text, ",", &rest); v; v = strtok_r(NULL, ",", &rest))
            g->values[c][g->count[c]++] = strtod(v, NULL);
    }
}

static void read_line(char *line)
{
    char *rest = NULL;
    char *word = strtok_r(line, " \n", &rest);
    if (!word || n_gpus == GPUS)
        return;
    gpu *g = &gpus[n_gpus++];
    memset(g, 0, sizeof *g);
    (void)snprintf(g->uuid, sizeof g->uuid, "%s", word);
    while ((word = strtok_r(NULL, " \n", &rest))) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = '\0';
        take(g, word, equals + 1);
    }
}

typedef struct user {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} user;

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(const gpu *g, unsigned *count, user *ret);
EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **ret);
EXPORT int nvmlDeviceGetUtilizationRates(const gpu *g, unsigned ret[2]);
EXPORT int nvmlDeviceGetMemoryInfo(const gpu *g, unsigned long long ret[3]);
EXPORT int nvmlDeviceGetPowerUsage(const gpu *g, unsigned *ret);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(const gpu *g, unsigned long long *ret);
EXPORT int nvmlDeviceGetClockInfo(const gpu *g, int kind, unsigned *ret);
EXPORT int nvmlDeviceGetGpuInstanceId(const gpu *g, unsigned *ret);
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu *g, gpu **ret);
EXPORT int nvmlGpmMigSampleGet(gpu *g, unsigned instance, sample *ret);
EXPORT int nvmlGpmQueryDeviceSupport(const gpu *g, unsigned ret[2]);
EXPORT int nvmlGpmSampleAlloc(sample **ret);
EXPORT int nvmlGpmSampleFree(sample *s);
EXPORT int nvmlGpmSampleGet(gpu *g, sample *ret);
EXPORT int nvmlGpmMetricsGet(request *r);

/* The training makes it, so it may come late. */
static void add_timeline_gpu(void)
{
    const vgpu_timeline *t = *timeline_path && n_gpus == 0 && vgpu_timeline_open
                                 ? vgpu_timeline_open(timeline_path, NULL)
                                 : NULL;
    if (!t)
        return;
    gpu *g = &gpus[n_gpus++];
    *g = (gpu){.timeline = t, .gpm = 1};
    (void)snprintf(g->uuid, sizeof g->uuid, "%s", vgpu_timeline_uuid(t));
    g->values[MEMORY][0] = 4096;
    g->count[MEMORY] = 1;
}

static int64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void beside_library(char *out, size_t size)
{
    Dl_info own;
    const char *end = dladdr(&n_gpus, &own) ? strrchr(own.dli_fname, '/') : NULL;
    int n = end ? (int)(end - own.dli_fname) : 0;
    (void)snprintf(out, size, "%.*s/nvml-table", n, end ? own.dli_fname : "");
}

int nvmlInit_v2(void)
{
    char beside[4096];
    const char *path = getenv("PP_NVML_TABLE");
    beside_library(beside, sizeof beside);
    path = path ? path : beside;
    FILE *f = path ? fopen(path, "re") : NULL;
    char line[1024];
    int code = SUCCESS;
    n_gpus = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "init ", 5) == 0)
            code = (int)strtol(line + 5, NULL, 10);
        else if (strncmp(line, "timeline ", 9) == 0)
            (void)snprintf(timeline_path, sizeof timeline_path, "%.*s",
                           (int)strcspn(line + 9, "\n"), line + 9);
        else
            read_line(line);
    }
    if (f)
        (void)fclose(f);
    started = code == SUCCESS;
    return code;
}

int nvmlShutdown(void)
{
    started = 0;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, gpu **ret)
{
    add_timeline_gpu();
    for (int i = 0; started && i < n_gpus; i++) {
        if (strcmp(gpus[i].uuid, uuid) == 0) {
            *ret = &gpus[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

static int is_lost(const gpu *g)
{
    return !started || (g->lost && g->samples >= g->lost);
}

int nvmlDeviceGetComputeRunningProcesses_v3(const gpu *g, unsigned *count, user *ret)
{
    FILE *f = *g->users ? fopen(g->users, "re") : NULL;
    char line[32];
    const unsigned room = *count;
    *count = 0;
    while (f && *count < room && fgets(line, sizeof line, f))
        ret[(*count)++] = (user){.pid = (unsigned)strtoul(line, NULL, 10)};
    if (f)
        (void)fclose(f);
    return is_lost(g) ? GPU_IS_LOST : SUCCESS;
}

static double value_of(const gpu *g, counter c, int number)
{
    return g->count[c] ? g->values[c][number % g->count[c]] : 0;
}

int nvmlDeviceGetUtilizationRates(const gpu *g, unsigned ret[2])
{
    if (is_lost(g))
        return GPU_IS_LOST;
    ret[0] = g->timeline ? (unsigned)vgpu_timeline_busy(g->timeline, now() - WINDOW, now())
                         : (unsigned)value_of(g, UTIL, g->samples);
    ret[1] = 0;
    return SUCCESS;
}

#ifndef NVML_DOUBLE_broken
int nvmlDeviceGetMemoryInfo(const gpu *g, unsigned long long ret[3])
{
    if (is_lost(g))
        return GPU_IS_LOST;
    ret[0] = 80ULL << 30;
    ret[2] = (unsigned long long)value_of(g, MEMORY, g->samples) << 20;
    ret[1] = ret[0] - ret[2];
    return SUCCESS;
}
#endif

#ifndef NVML_DOUBLE_old
/* A part has no power, energy or clock of its own, nor GPM by the call for whole ones; and nothing
 * is known of a timeline's. */
static int code_of(const gpu *g)
{
    if (is_lost(g))
        return GPU_IS_LOST;
    return g->instance || g->timeline ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetPowerUsage(const gpu *g, unsigned *ret)
{
    *ret = (unsigned)value_of(g, POWER, g->samples);
    return code_of(g);
}

int nvmlDeviceGetTotalEnergyConsumption(const gpu *g, unsigned long long *ret)
{
    *ret = (unsigned long long)value_of(g, ENERGY, g->samples);
    return code_of(g);
}

int nvmlDeviceGetClockInfo(const gpu *g, int kind, unsigned *ret)
{
    *ret = (unsigned)value_of(g, CLOCK, g->samples);
    return kind == 1 ? code_of(g) : INVALID_ARGUMENT;
}

int nvmlDeviceGetGpuInstanceId(const gpu *g, unsigned *ret)
{
    *ret = (unsigned)g->instance;
    return g->instance ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu *g, gpu **ret)
{
    *ret = g - 1;
    return g->instance ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlGpmQueryDeviceSupport(const gpu *g, unsigned ret[2])
{
    ret[1] = (unsigned)g->gpm;
    return ret[0] == 1 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlGpmSampleAlloc(sample **ret)
{
    *ret = calloc(1, sizeof **ret);
    if (!*ret)
        return INVALID_ARGUMENT;
    (*ret)->magic = MAGIC;
    return SUCCESS;
}

int nvmlGpmSampleFree(sample *s)
{
    if (s->magic != MAGIC)
        abort(); /* freed before, or never a sample */
    s->magic = 0;
    free(s);
    return SUCCESS;
}

int nvmlGpmMigSampleGet(gpu *g, unsigned instance, sample *ret)
{
    gpu *part = g + 1; /* the line after it */
    if (part->instance != (int)instance)
        return INVALID_ARGUMENT;
    part->instance = 0; /* as a whole one it is sampled so */
    part->gpm = g->gpm;
    int code = nvmlGpmSampleGet(part, ret);
    part->instance = (int)instance;
    return code;
}

int nvmlGpmSampleGet(gpu *g, sample *ret)
{
    if (g->instance)
        return INVALID_ARGUMENT;
    if (ret->magic != MAGIC || !g->gpm)
        abort();
    g->samples++;
    if (is_lost(g))
        return GPU_IS_LOST;
    if (!g->repeat || g->samples % g->repeat)
        g->refreshed++;
    ret->of = g;
    ret->at = g->timeline ? now() / WINDOW * WINDOW : 0;
    ret->number = g->timeline ? (int)(ret->at / WINDOW % 1000000000 + 1) : g->refreshed;
    return SUCCESS;
}

/* Between two samples the mean of what was refreshed; between a sample and itself nothing: zeros.
 */
static double mean_of(const request *r, counter c)
{
    double sum = 0, means[VGPU_LEVELS] = {0};
    gpu *g = &gpus[r->to->of - gpus];
    if (g->timeline && r->from->at < r->to->at)
        vgpu_timeline_mean(g->timeline, &g->cursor, r->from->at, r->to->at, means);
    if (g->timeline)
        return means[c];
    for (int n = r->from->number; n < r->to->number; n++)
        sum += value_of(r->to->of, c, n);
    const int count = r->to->number - r->from->number;
    return count > 0 ? sum / count : 0;
}

int nvmlGpmMetricsGet(request *r)
{
    static const struct {
        unsigned id;
        counter counter;
    } told[] = {{2, SM}, {3, OCCUPANCY}, {10, DRAM}, {12, FP32}, {5, TENSOR}, {20, PCIE_TX}};
    const gpu *g = r->to->of;
    if (r->version != 1 || r->from->magic != MAGIC || r->to->magic != MAGIC || !r->from->number ||
        r->from->of != r->to->of || r->from->number > r->to->number)
        return INVALID_ARGUMENT;
    if (is_lost(r->to->of))
        return GPU_IS_LOST;
    for (unsigned i = 0; i < r->count; i++) {
        r->metrics[i].status = INVALID_ARGUMENT;
        for (size_t k = 0; k < sizeof told / sizeof *told; k++) {
            const counter c = told[k].counter;
            if (r->metrics[i].id != told[k].id || (c > FP32 && !g->count[c]))
                continue;
            r->metrics[i].status = SUCCESS;
            r->metrics[i].value = mean_of(r, c);
        }
    }
    return SUCCESS;
}
#endif
