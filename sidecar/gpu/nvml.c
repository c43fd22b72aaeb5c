#include "sidecar/gpu/nvml.h"

#include "common/time.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of nvml.h only what is used here. The structs' layouts are part of NVML's stable interface. */
typedef struct nvml_device *nvml_device;
typedef struct nvml_gpm_sample *nvml_gpm_sample;

typedef struct nvml_utilization {
    unsigned gpu, memory; /* percent */
} nvml_utilization;

typedef struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
} nvml_memory;

typedef struct nvml_process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} nvml_process;

typedef struct nvml_gpm_metric {
    unsigned id;
    int status;
    double value;
    struct {
        char *short_name, *long_name, *unit;
    } info;
} nvml_gpm_metric;

enum {
    NVML_SUCCESS = 0,
    GPM_VERSION = 1,
    PROCESSES_MAX = 64,
    GPM_METRICS_MAX = 512, /* more than any nvml.h so far has; the first of them are used */
    CLOCK_SM = 1,
};

typedef struct nvml_gpm_request {
    unsigned version;
    unsigned count;
    nvml_gpm_sample from, to;
    nvml_gpm_metric metrics[GPM_METRICS_MAX];
} nvml_gpm_request;

typedef struct nvml_gpm_support {
    unsigned version;
    unsigned supported;
} nvml_gpm_support;

struct pp_nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *, nvml_device *);
    int (*utilization)(nvml_device, nvml_utilization *);
    int (*memory)(nvml_device, nvml_memory *);
    /* NULL in an old driver */
    int (*power)(nvml_device, unsigned *);            /* mW */
    int (*energy)(nvml_device, unsigned long long *); /* mJ */
    int (*clock)(nvml_device, int, unsigned *);       /* MHz */
    int (*instance)(nvml_device, unsigned *);         /* of a MIG device */
    int (*whole)(nvml_device, nvml_device *);         /* the GPU that it is of */
    int (*mig_sample)(nvml_device, unsigned, nvml_gpm_sample);
    int (*processes)(nvml_device, unsigned *, nvml_process *);
    /* NULL in a driver that has no GPM */
    int (*gpm_support)(nvml_device, nvml_gpm_support *);
    int (*gpm_alloc)(nvml_gpm_sample *);
    int (*gpm_free)(nvml_gpm_sample);
    int (*gpm_sample)(nvml_device, nvml_gpm_sample);
    int (*gpm_metrics)(nvml_gpm_request *);
};

struct pp_nvml_gpu {
    const pp_nvml *nvml;
    nvml_device device;
    nvml_device whole; /* the GPU that it is a part of; else itself */
    bool part;
    unsigned instance;          /* of a part */
    nvml_gpm_sample last, next; /* NULL: no GPM */
    bool primed;                /* `last` holds a sample */
    int64_t last_ns;            /* when it was taken */
    int64_t energy_ns;          /* when the counter of energy was read last; 0: not yet ... */
    double joules;              /* ... and what it was */
    nvml_gpm_request request;
};

static bool find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol;
}

static bool find_all(pp_nvml *n)
{
    void *l = n->library;
    bool ok = find(l, "nvmlInit_v2", &n->init) && find(l, "nvmlShutdown", &n->shutdown) &&
              find(l, "nvmlDeviceGetHandleByUUID", &n->by_uuid) &&
              find(l, "nvmlDeviceGetUtilizationRates", &n->utilization) &&
              find(l, "nvmlDeviceGetMemoryInfo", &n->memory);
    (void)find(l, "nvmlDeviceGetPowerUsage", &n->power);
    (void)find(l, "nvmlDeviceGetTotalEnergyConsumption", &n->energy);
    (void)find(l, "nvmlDeviceGetClockInfo", &n->clock);
    (void)find(l, "nvmlDeviceGetGpuInstanceId", &n->instance);
    (void)find(l, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &n->whole);
    (void)find(l, "nvmlGpmMigSampleGet", &n->mig_sample);
    (void)find(l, "nvmlDeviceGetComputeRunningProcesses_v3", &n->processes);
    bool gpm = find(l, "nvmlGpmQueryDeviceSupport", &n->gpm_support) &&
               find(l, "nvmlGpmSampleAlloc", &n->gpm_alloc) &&
               find(l, "nvmlGpmSampleFree", &n->gpm_free) &&
               find(l, "nvmlGpmSampleGet", &n->gpm_sample) &&
               find(l, "nvmlGpmMetricsGet", &n->gpm_metrics);
    if (!gpm)
        n->gpm_support = NULL;
    return ok;
}

int pp_nvml_open(pp_nvml **ret, pp_error *err)
{
    pp_nvml *n = calloc(1, sizeof *n);
    if (!n)
        return pp_error_nomem(err);
    int rc = -1;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        (void)pp_error_set(err, PP_ERR_NOT_FOUND, "there is no libnvidia-ml.so.1 here");
    else if (!find_all(n))
        (void)pp_error_set(err, PP_ERR_NOT_FOUND, "this NVML lacks functions");
    else if ((rc = n->init()) != NVML_SUCCESS)
        (void)pp_error_set(err, PP_ERR_INTERNAL, "NVML does not start: code %d", rc);
    if (rc == NVML_SUCCESS) {
        *ret = n;
        return 0;
    }
    if (n->library)
        (void)dlclose(n->library);
    free(n);
    return -1;
}

void pp_nvml_close(pp_nvml *n)
{
    if (!n)
        return;
    (void)n->shutdown();
    (void)dlclose(n->library);
    free(n);
}

static void open_gpm(pp_nvml_gpu *g)
{
    const pp_nvml *n = g->nvml;
    nvml_gpm_support support = {.version = GPM_VERSION};
    if (!n->gpm_support || n->gpm_support(g->whole, &support) != NVML_SUCCESS ||
        !support.supported || (g->part && !n->mig_sample))
        return;
    if (n->gpm_alloc(&g->last) != NVML_SUCCESS) {
        g->last = NULL;
    } else if (n->gpm_alloc(&g->next) != NVML_SUCCESS) {
        (void)n->gpm_free(g->last);
        g->last = g->next = NULL;
    }
}

/* CUDA names a part of a GPU as if it were one. */
static int find_device(pp_nvml_gpu *g, const char *uuid)
{
    static const char whole[] = "GPU-", part[] = "MIG-";
    const pp_nvml *n = g->nvml;
    char other[96];
    int rc = n->by_uuid(uuid, &g->device);
    if (rc != NVML_SUCCESS && strncmp(uuid, whole, strlen(whole)) == 0) {
        (void)snprintf(other, sizeof other, "%s%s", part, uuid + strlen(whole));
        if (n->by_uuid(other, &g->device) == NVML_SUCCESS)
            rc = NVML_SUCCESS;
    }
    if (rc != NVML_SUCCESS)
        return rc;
    g->part = n->instance && n->whole && n->whole(g->device, &g->whole) == NVML_SUCCESS &&
              n->instance(g->device, &g->instance) == NVML_SUCCESS;
    if (!g->part)
        g->whole = g->device;
    return rc;
}

int pp_nvml_gpu_open(pp_nvml *nvml, const char *uuid, pp_nvml_gpu **ret, pp_error *err)
{
    pp_nvml_gpu *g = calloc(1, sizeof *g);
    if (!g)
        return pp_error_nomem(err);
    g->nvml = nvml;
    int rc = find_device(g, uuid);
    if (rc != NVML_SUCCESS) {
        free(g);
        return pp_error_set(err, PP_ERR_NOT_FOUND, "NVML does not know %s: code %d", uuid, rc);
    }
    open_gpm(g);
    *ret = g;
    return 0;
}

void pp_nvml_gpu_close(pp_nvml_gpu *g)
{
    if (!g)
        return;
    if (g->last)
        (void)g->nvml->gpm_free(g->last);
    if (g->next)
        (void)g->nvml->gpm_free(g->next);
    free(g);
}

size_t pp_nvml_gpu_processes(const pp_nvml_gpu *g, uint32_t *pids, size_t room)
{
    nvml_process all[PROCESSES_MAX];
    unsigned n = PROCESSES_MAX;
    size_t count = 0;
    if (!g->nvml->processes || g->nvml->processes(g->device, &n, all) != NVML_SUCCESS)
        return 0;
    for (unsigned i = 0; i < n && i < PROCESSES_MAX && count < room; i++)
        pids[count++] = all[i].pid;
    return count;
}

bool pp_nvml_gpu_has_gpm(const pp_nvml_gpu *g)
{
    return g->last;
}

/* In the metric's unit; NaN where it was not given. */
static double value_of(const nvml_gpm_metric *m, const pp_metric_info *info)
{
    bool known = m->status == NVML_SUCCESS && isfinite(m->value) && m->value >= 0;
    double value = m->value * info->gpm.scale;
    if (!known)
        return (double)NAN;
    return info->kind == PP_METRIC_SHARE ? fmin(value, info->max) : value;
}

/* Within a window the driver may give the sample before once more, between which and itself all
 * counters are 0. */
static bool is_repeated(const pp_nvml_gpu *g, const pp_nvml_reading *r)
{
    bool any = false, nothing = true;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const bool told = pp_metric_get((pp_metric)m)->gpm.id && !isnan(r->values[m]);
        any = any || told;
        nothing = nothing && (!told || r->values[m] == 0);
    }
    return r->stamp_ns - g->last_ns < PP_NVML_WINDOW_NS && any && nothing;
}

static int take_gpm(pp_nvml_gpu *g)
{
    const pp_nvml *n = g->nvml;
    return g->part ? n->mig_sample(g->whole, g->instance, g->next)
                   : n->gpm_sample(g->device, g->next);
}

/* Asks for what GPM tells; returns how many they are, and which. */
static unsigned ask(pp_nvml_gpu *g, pp_metric *which)
{
    nvml_gpm_request *r = &g->request;
    r->version = GPM_VERSION;
    r->count = 0;
    r->from = g->last;
    r->to = g->next;
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const unsigned id = pp_metric_get((pp_metric)m)->gpm.id;
        if (!id)
            continue;
        which[r->count] = (pp_metric)m;
        r->metrics[r->count++] = (nvml_gpm_metric){.id = id};
    }
    return r->count;
}

static void read_gpm(pp_nvml_gpu *g, pp_nvml_reading *ret)
{
    pp_metric which[PP_METRIC_COUNT];
    if (take_gpm(g) != NVML_SUCCESS)
        return;
    ret->stamp_ns = pp_time_now();
    const unsigned n = ask(g, which);
    const bool told = g->primed && g->nvml->gpm_metrics(&g->request) == NVML_SUCCESS;
    for (unsigned i = 0; i < n && told; i++)
        ret->values[which[i]] = value_of(&g->request.metrics[i], pp_metric_get(which[i]));
    if (is_repeated(g, ret)) {
        for (unsigned i = 0; i < n; i++)
            ret->values[which[i]] = (double)NAN;
        return;
    }
    nvml_gpm_sample spare = g->last;
    g->last = g->next;
    g->next = spare;
    g->last_ns = ret->stamp_ns;
    g->primed = true;
}

/* Mean power since the counter was read last, once that is a window ago. */
static double mean_power(pp_nvml_gpu *g, double joules, int64_t now)
{
    double watts = (double)NAN;
    if (isnan(joules) || (g->energy_ns && now - g->energy_ns < PP_NVML_WINDOW_NS))
        return watts;
    if (g->energy_ns && joules >= g->joules)
        watts = (joules - g->joules) / ((double)(now - g->energy_ns) / 1e9);
    g->joules = joules;
    g->energy_ns = now;
    return watts;
}

static void read_power(pp_nvml_gpu *g, pp_nvml_reading *ret)
{
    const pp_nvml *n = g->nvml;
    unsigned milliwatts, megahertz;
    unsigned long long millijoules;
    if (n->power && n->power(g->whole, &milliwatts) == NVML_SUCCESS)
        ret->watts = milliwatts / 1e3;
    if (n->energy && n->energy(g->whole, &millijoules) == NVML_SUCCESS)
        ret->joules = (double)millijoules / 1e3;
    if (n->clock && n->clock(g->whole, CLOCK_SM, &megahertz) == NVML_SUCCESS)
        ret->sm_mhz = ret->values[PP_METRIC_SM_CLOCK] = megahertz;
    /* The whole GPU's: of a part nothing is known. */
    if (!g->part)
        ret->values[PP_METRIC_POWER] = mean_power(g, ret->joules, ret->stamp_ns);
}

void pp_nvml_gpu_read(pp_nvml_gpu *g, pp_nvml_reading *ret)
{
    const double unknown = (double)NAN;
    nvml_utilization utilization;
    nvml_memory memory;
    *ret = (pp_nvml_reading){
        .stamp_ns = pp_time_now(), .watts = unknown, .joules = unknown, .sm_mhz = unknown};
    for (int m = 0; m < PP_METRIC_COUNT; m++)
        ret->values[m] = unknown;
    read_power(g, ret);
    if (g->nvml->utilization(g->device, &utilization) == NVML_SUCCESS)
        ret->values[PP_METRIC_GPU_UTIL] = utilization.gpu;
    if (g->nvml->memory(g->device, &memory) == NVML_SUCCESS)
        ret->values[PP_METRIC_GPU_MEM] = (double)memory.used / (1024 * 1024);
    if (g->last)
        read_gpm(g, ret);
}
