#include "sidecar/gpu/pm_sampling.h"

#include "sidecar/gpu/pm_api.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { UUID_SIZE = 48 };
enum { USUAL_IMAGES = 3, USUAL_IMAGE_SAMPLES = 2048, USUAL_SAMPLES = 200000 };

#define CUPTI_NAMES(id, wire, ...) [PP_METRIC_##id] = {__VA_ARGS__},

/* In order of importance: what does not go into one pass with those before is left out. */
static const pp_metric_info offered[PP_METRIC_SAMPLED_COUNT] = {
    PP_METRIC_TABLE_SAMPLED(CUPTI_NAMES)};

/* Metrics that go into one pass, and how they are collected. */
typedef struct config {
    pm_host *host; /* NULL: none */
    uint8_t *data;
    size_t size;
} config;

/* Samples, as CUPTI decodes them. */
typedef struct image {
    uint8_t *data;
    size_t populated; /* samples begun in it; of them ... */
    size_t completed; /* ... the first so many are whole, and of these ... */
    size_t skipped;   /* ... the first so many are not a period's, or may be parts */
    size_t came;      /* with the last decode */
} image;

/* What the evaluating thread and the caller's share. A capture's images are numbered as they are
 * begun; they go round in the memory that there is. The thread has those from `evaluated` to
 * `handed`, the caller the one that is being filled, and nobody the others. */
typedef struct evaluation {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool works; /* the thread is there ... */
    bool ends;  /* ... and is to end */
    size_t begun, handed, evaluated;
    pp_pm_sample *samples; /* of those evaluated, what was not taken yet: a ring of ... */
    size_t first, count;   /* ... options.samples */
    bool stuffed;          /* it was full: the rest of the capture is left out */
    bool failed;           /* with `why`: likewise */
    pp_error why;
    int64_t last_end; /* of the last sample; the thread's own while it has an image */
} evaluation;

struct pp_pm {
    pp_pm_options options; /* its texts are not ours */
    pm_api api;
    bool initialized;
    size_t device;
    char chip[64];
    uint8_t *availability;
    config config; /* kept as long as the session: CUPTI has pointers */
    const char *names[PP_METRIC_SAMPLED_COUNT]; /* those that are sampled ... */
    pp_metric metrics[PP_METRIC_SAMPLED_COUNT]; /* ... and what each stands for */
    size_t count;
    pm_object *object; /* the session with the device; NULL: none */
    image images[PP_PM_IMAGES];
    size_t image_size;
    image *filled; /* one of them, the one that is being filled */
    evaluation evaluation;
    bool running;
    int64_t newest;  /* end of the newest sample decoded, ns of the GPU's clock */
    double decoding; /* ns that decoding took in the capture ... */
    size_t decoded;  /* ... and samples that came of it */
    bool lost;       /* samples of the capture: the session gives none any more that make sense */
    bool stale;      /* its configuration is another one than is wanted */
};

/* ---- the libraries ---- */

static int fail(const pp_pm *pm, int rc, const char *what, pp_error *err)
{
    const char *text = NULL;
    switch (rc) {
    case CUPTI_INSUFFICIENT_PRIVILEGES:
        return pp_error_set(err, PP_ERR_DENIED,
                            "the driver lets only root or CAP_SYS_ADMIN read the GPU's counters "
                            "(RmProfilingAdminOnly)");
    case CUPTI_VIRTUALIZED_INSUFFICIENT_PRIVILEGES:
        return pp_error_set(err, PP_ERR_DENIED,
                            "the hypervisor does not let this virtual GPU's counters be read");
    case CUPTI_HARDWARE_BUSY:
        return pp_error_set(err, PP_ERR_CONFLICT, "%s: another profiler has the GPU's counters",
                            what);
    case CUPTI_NOT_INITIALIZED:
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "%s: CUPTI finds no libnvperf_host.so and libnvperf_target.so, which "
                            "lie beside it as a rule",
                            what);
    default:
        if (!pm->api.result_string || pm->api.result_string(rc, &text) != PM_OK)
            text = NULL;
        return pp_error_set(err, PP_ERR_INTERNAL, "%s: %s (%d)", what, text ? text : "CUPTI", rc);
    }
}

static bool find(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol;
}

static int load_driver(pp_pm *pm, pp_error *err)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "there is no libcuda.so.1 here");
    if (!find(library, "cuInit", &pm->api.cuda_initialize) ||
        !find(library, "cuDeviceGetCount", &pm->api.cuda_count) ||
        !find(library, "cuDeviceGet", &pm->api.cuda_device) ||
        !find(library, "cuDeviceGetUuid", &pm->api.cuda_uuid))
        return pp_error_set(err, PP_ERR_NOT_FOUND, "this libcuda lacks functions");
    int rc = pm->api.cuda_initialize(0);
    if (rc != CUDA_OK)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "CUDA does not start: cuInit gives %d", rc);
    return 0;
}

static int load_cupti(pp_pm *pm, const char *path, pp_error *err)
{
    static const char *const usual[] = {"libcupti.so", "libcupti.so.13", "libcupti.so.12"};
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !path && !library && i < sizeof usual / sizeof *usual; i++)
        library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "there is no CUPTI: %s", dlerror());
    const char *missing = NULL;
#define FIND(slot, name, params)                                                                   \
    if (!find(library, name, &pm->api.slot))                                                       \
        missing = name;
    PM_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "this CUPTI is older than CUDA 12.6's: no %s",
                            missing);
    (void)find(library, "cuptiGetResultString", &pm->api.result_string);
    return 0;
}

static void format_uuid(const cuda_uuid *u, char out[UUID_SIZE])
{
    size_t at = (size_t)snprintf(out, UUID_SIZE, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += (size_t)snprintf(out + at, UUID_SIZE - at, dash ? "-%02x" : "%02x", u->bytes[i]);
    }
}

/* CUDA's number of a GPU, which is CUPTI's too. */
static int find_device(pp_pm *pm, const char *uuid, pp_error *err)
{
    int count = 0;
    int rc = pm->api.cuda_count(&count);
    for (int i = 0; i < count && rc == CUDA_OK; i++) {
        int device = 0;
        cuda_uuid id = {0};
        char text[UUID_SIZE];
        rc = pm->api.cuda_device(&device, i);
        if (rc == CUDA_OK)
            rc = pm->api.cuda_uuid(&id, device);
        format_uuid(&id, text);
        if (rc == CUDA_OK && strcmp(text, uuid) == 0) {
            pm->device = (size_t)i;
            return 0;
        }
    }
    if (rc != CUDA_OK)
        return pp_error_set(err, PP_ERR_INTERNAL, "CUDA does not tell its GPUs: code %d", rc);
    return pp_error_set(err, PP_ERR_NOT_FOUND, "CUDA does not show %s here (of %d GPUs)", uuid,
                        count);
}

/* ---- metrics ---- */

static int new_host(const pp_pm *pm, pm_host **ret, pp_error *err)
{
    pm_host_initialize p = {.size = sizeof p,
                            .profiler = PM_PROFILER_SAMPLING,
                            .chip = pm->chip,
                            .availability = pm->availability};
    int rc = pm->api.host_initialize(&p);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerHostInitialize", err);
    *ret = p.host;
    return 0;
}

static void free_config(const pp_pm *pm, config *c)
{
    pm_host_deinitialize p = {.size = sizeof p, .host = c->host};
    if (c->host)
        (void)pm->api.host_deinitialize(&p);
    free(c->data);
    *c = (config){0};
}

/* Has the host schedule its metrics. */
static int schedule(const pp_pm *pm, config *c, pp_error *err)
{
    pm_config_size size = {.size = sizeof size, .host = c->host};
    int rc = pm->api.config_size(&size);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerHostGetConfigImageSize", err);
    c->size = size.config_size;
    c->data = calloc(1, c->size);
    if (!c->data)
        return pp_error_nomem(err);
    pm_config_image make = {
        .size = sizeof make, .host = c->host, .config_size = c->size, .config = c->data};
    rc = pm->api.config_image(&make);
    return rc == PM_OK ? 0 : fail(pm, rc, "cuptiProfilerHostGetConfigImage", err);
}

/* 1 with the configuration of the metrics named so far; 0 where the chip does not offer the last,
 * or they take several passes, which cannot be sampled. */
static int make_config(const pp_pm *pm, config *c, pp_error *err)
{
    if (new_host(pm, &c->host, err) < 0)
        return -1;
    pm_add_metrics add = {
        .size = sizeof add, .host = c->host, .names = pm->names, .count = pm->count};
    int rc = pm->api.add_metrics(&add);
    if (rc == CUPTI_INVALID_METRIC_NAME || rc == CUPTI_INVALID_PARAMETER)
        return 0; /* it says the one and means the other */
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerHostConfigAddMetrics", err);
    if (schedule(pm, c, err) < 0)
        return -1;
    pm_passes passes = {.size = sizeof passes, .config_size = c->size, .config = c->data};
    rc = pm->api.passes(&passes);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerHostGetNumOfPasses", err);
    return passes.passes == 1;
}

/* Whether the metric goes into one pass with those that are sampled; it is then one of them. */
static bool add_metric(pp_pm *pm, pp_metric metric, const char *name, pp_error *err)
{
    config c = {0};
    pm->names[pm->count] = name;
    pm->metrics[pm->count] = metric;
    pm->count++;
    bool fits = make_config(pm, &c, err) > 0;
    if (fits) {
        free_config(pm, &pm->config);
        pm->config = c;
    } else {
        free_config(pm, &c);
        pm->count--;
    }
    return fits;
}

/* A call that fails for one metric may work for the next; where none is left it tells why. */
static int choose_metrics(pp_pm *pm, pp_error *err)
{
    pp_error why = {0};
    (void)pp_error_set(&why, PP_ERR_NOT_FOUND, "CUPTI offers none of the metrics on %s", pm->chip);
    for (int m = 0; m < PP_METRIC_SAMPLED_COUNT; m++)
        for (int i = 0; i < PP_METRIC_CUPTI_NAMES && offered[m].cupti[i]; i++)
            if (add_metric(pm, (pp_metric)m, offered[m].cupti[i], &why))
                break;
    if (pm->count > 0)
        return 0;
    if (err)
        *err = why;
    return -1;
}

/* ---- the evaluating thread ---- */

static int read_times(const pp_pm *pm, const image *i, size_t index, pp_pm_sample *ret,
                      pp_error *err)
{
    pm_sample_info p = {.size = sizeof p,
                        .object = pm->object,
                        .image = i->data,
                        .image_size = pm->image_size,
                        .index = index};
    int rc = pm->api.sample_info(&p);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingCounterDataGetSampleInfo", err);
    ret->start = (int64_t)p.start;
    ret->end = (int64_t)p.end;
    return 0;
}

static int read_values(const pp_pm *pm, const image *i, size_t index, pp_pm_sample *ret,
                       pp_error *err)
{
    double values[PP_METRIC_SAMPLED_COUNT];
    for (int m = 0; m < PP_METRIC_SAMPLED_COUNT; m++) {
        values[m] = (double)NAN;
        ret->values[m] = NAN;
    }
    pm_evaluate p = {.size = sizeof p,
                     .host = pm->config.host,
                     .image = i->data,
                     .image_size = pm->image_size,
                     .index = index,
                     .names = pm->names,
                     .count = pm->count,
                     .values = values};
    int rc = pm->api.evaluate(&p);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerHostEvaluateToGpuValues", err);
    for (size_t m = 0; m < pm->count; m++) {
        const bool counts = pm->metrics[m] == PP_METRIC_SM_CLOCK; /* cycles, not percent */
        const double whole = counts ? (double)(ret->end - ret->start) : 100;
        if (isfinite(values[m]) && values[m] >= 0)
            ret->values[pm->metrics[m]] = (float)(values[m] / whole);
    }
    return 0;
}

/* Whether it covers a time of its own: after a stop and after losses come some without times, or of
 * no length. Two may touch within the clock's steps. */
static bool is_next(const pp_pm_sample *s, int64_t last_end)
{
    return s->start >= 0 && s->end > s->start && s->start + (s->end - s->start) / 2 >= last_end;
}

/* Whether the thread is to go on. */
static bool keep(pp_pm *pm, const pp_pm_sample *sample)
{
    evaluation *e = &pm->evaluation;
    const size_t room = pm->options.samples;
    (void)pthread_mutex_lock(&e->lock);
    e->stuffed = e->stuffed || e->count == room;
    if (!e->stuffed)
        e->samples[(e->first + e->count++) % room] = *sample;
    bool on = !e->stuffed && !e->ends;
    (void)pthread_mutex_unlock(&e->lock);
    return on;
}

static int evaluate_image(pp_pm *pm, const image *i, pp_error *err)
{
    for (size_t s = i->skipped; s < i->completed; s++) {
        pp_pm_sample sample = {0};
        if (read_times(pm, i, s, &sample, err) < 0)
            return -1;
        if (!is_next(&sample, pm->evaluation.last_end))
            continue;
        if (read_values(pm, i, s, &sample, err) < 0)
            return -1;
        pm->evaluation.last_end = sample.end;
        if (!keep(pm, &sample))
            return 0;
    }
    return 0;
}

/* Each image that is handed over; those after a failure are given back as they are. Without the
 * lock while it evaluates. */
static void *evaluate_images(void *user)
{
    pp_pm *pm = user;
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    while (!e->ends) {
        pp_error err = {0};
        if (e->evaluated == e->handed) {
            (void)pthread_cond_wait(&e->changed, &e->lock);
            continue;
        }
        const bool idle = e->stuffed || e->failed;
        const image *i = &pm->images[e->evaluated % pm->options.images];
        (void)pthread_mutex_unlock(&e->lock);
        int rc = idle ? 0 : evaluate_image(pm, i, &err);
        (void)pthread_mutex_lock(&e->lock);
        if (rc < 0) {
            e->failed = true;
            e->why = err;
        }
        e->evaluated++;
        (void)pthread_cond_broadcast(&e->changed);
    }
    (void)pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* The thread takes no signals: they are the caller's. */
static int make_evaluation(pp_pm *pm, pp_error *err)
{
    evaluation *e = &pm->evaluation;
    sigset_t all, before;
    e->samples = calloc(pm->options.samples, sizeof *e->samples);
    if (!e->samples)
        return pp_error_nomem(err);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&e->thread, NULL, evaluate_images, pm);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    e->works = rc == 0;
    return rc == 0 ? 0
                   : pp_error_set(err, PP_ERR_INTERNAL, "no thread to evaluate in: code %d", rc);
}

/* What has not been evaluated is left. The thread ends after the sample that it is at; until then
 * it reads from the session. */
static void end_evaluation(pp_pm *pm)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    e->ends = true;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
    pm_of_object p = {.size = sizeof p, .object = pm->object};
    if (pm->running)
        (void)pm->api.stop(&p);
    if (e->works)
        (void)pthread_join(e->thread, NULL);
    (void)pthread_cond_destroy(&e->changed);
    (void)pthread_mutex_destroy(&e->lock);
    free(e->samples);
}

/* Between two captures, when the thread has no image. */
static void forget_capture(pp_pm *pm)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    e->begun = e->handed = e->evaluated = 0;
    e->first = e->count = 0;
    e->stuffed = e->failed = false;
    e->last_end = 0;
    (void)pthread_mutex_unlock(&e->lock);
}

/* The number of the next image, where there is memory for it. */
static bool is_image_free(pp_pm *pm, size_t *ret)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    *ret = e->begun;
    bool is_free = e->begun - e->evaluated < pm->options.images;
    (void)pthread_mutex_unlock(&e->lock);
    return is_free;
}

/* Hands over those before this one. */
static void hand_over(pp_pm *pm, size_t number)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    e->handed = number;
    e->begun = number + 1;
    (void)pthread_cond_broadcast(&e->changed);
    (void)pthread_mutex_unlock(&e->lock);
}

/* Hands over the image that is being filled, and waits until all are evaluated. */
static void evaluate_all(pp_pm *pm)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    e->handed = e->begun;
    (void)pthread_cond_broadcast(&e->changed);
    while (e->evaluated < e->handed)
        (void)pthread_cond_wait(&e->changed, &e->lock);
    (void)pthread_mutex_unlock(&e->lock);
}

static bool is_stuffed(pp_pm *pm)
{
    (void)pthread_mutex_lock(&pm->evaluation.lock);
    bool stuffed = pm->evaluation.stuffed;
    (void)pthread_mutex_unlock(&pm->evaluation.lock);
    return stuffed;
}

/* The thread's error, where it had one. */
static int check_evaluation(pp_pm *pm, pp_error *err)
{
    (void)pthread_mutex_lock(&pm->evaluation.lock);
    bool failed = pm->evaluation.failed;
    if (failed && err)
        *err = pm->evaluation.why;
    (void)pthread_mutex_unlock(&pm->evaluation.lock);
    return failed ? -1 : 0;
}

/* ---- open and close ---- */

static int ask_chip(pp_pm *pm, pp_error *err)
{
    pm_initialize initialize = {.size = sizeof initialize};
    int rc = pm->api.initialize(&initialize);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiProfilerInitialize", err);
    pm->initialized = true;
    pm_chip_name chip = {.size = sizeof chip, .device = pm->device};
    rc = pm->api.chip_name(&chip);
    if (rc != PM_OK || !chip.name)
        return fail(pm, rc, "cuptiDeviceGetChipName", err);
    (void)snprintf(pm->chip, sizeof pm->chip, "%s", chip.name);
    return 0;
}

/* What the device, as it is now, has of the counters. */
static int ask_availability(pp_pm *pm, pp_error *err)
{
    pm_availability a = {.size = sizeof a, .device = pm->device};
    int rc = pm->api.availability(&a);
    if (rc == PM_OK) {
        a.image = pm->availability = calloc(1, a.image_size);
        if (!a.image)
            return pp_error_nomem(err);
        rc = pm->api.availability(&a);
    }
    return rc == PM_OK ? 0 : fail(pm, rc, "cuptiPmSamplingGetCounterAvailability", err);
}

static int configure(pp_pm *pm, pp_error *err)
{
    pm_configure set = {.size = sizeof set,
                        .object = pm->object,
                        .config_size = pm->config.size,
                        .config = pm->config.data,
                        .hardware_buffer = pm->options.hardware_bytes,
                        .period = pm->options.period_ns,
                        .trigger = PM_TRIGGER_TIME_INTERVAL,
                        .append = PM_APPEND_KEEP_OLDEST};
    int rc = pm->api.configure(&set);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingSetConfig", err);
    pm_image_size size = {.size = sizeof size,
                          .object = pm->object,
                          .names = pm->names,
                          .count = pm->count,
                          .samples = pm->options.image_samples};
    rc = pm->api.image_size(&size);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingGetCounterDataSize", err);
    if (pm->images[0].data && size.image_size != pm->image_size)
        return pp_error_set(err, PP_ERR_INTERNAL, "CUPTI's images have %zu bytes, and had %zu",
                            size.image_size, pm->image_size);
    pm->image_size = size.image_size;
    return 0;
}

static void end_session(pp_pm *pm)
{
    pm_of_object p = {.size = sizeof p, .object = pm->object};
    if (pm->object)
        (void)pm->api.disable(&p);
    pm->object = NULL;
}

static int begin_session(pp_pm *pm, pp_error *err)
{
    pm_enable on = {.size = sizeof on, .device = pm->device};
    int rc = pm->api.enable(&on);
    if (rc == CUPTI_INVALID_OPERATION) /* a device has one session at a time */
        rc = CUPTI_HARDWARE_BUSY;
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingEnable", err);
    pm->object = on.object;
    return configure(pm, err);
}

/* Written once: tens of thousands of page faults would take the time to decode in. */
static int make_images(pp_pm *pm, pp_error *err)
{
    for (size_t i = 0; i < pm->options.images; i++) {
        pm->images[i].data = malloc(pm->image_size);
        if (!pm->images[i].data)
            return pp_error_nomem(err);
        memset(pm->images[i].data, 0xff, pm->image_size);
    }
    return 0;
}

static void set_options(pp_pm *pm, const pp_pm_options *o)
{
    pm->options = *o;
    if (!o->images)
        pm->options.images = USUAL_IMAGES;
    if (!o->image_samples)
        pm->options.image_samples = USUAL_IMAGE_SAMPLES;
    if (!o->samples)
        pm->options.samples = USUAL_SAMPLES;
}

static int check_options(const pp_pm_options *o, pp_error *err)
{
    if (o->images < 1 || o->images > PP_PM_IMAGES)
        return pp_error_field(err, "images", "must be 1 to %d", PP_PM_IMAGES);
    if (o->image_samples < PP_PM_IMAGE_SAMPLES)
        return pp_error_field(err, "image_samples", "must be at least %d", PP_PM_IMAGE_SAMPLES);
    return 0;
}

int pp_pm_open(const pp_pm_options *options, pp_pm **ret, pp_error *err)
{
    pp_pm *pm = calloc(1, sizeof *pm);
    if (!pm)
        return pp_error_nomem(err);
    set_options(pm, options);
    (void)pthread_mutex_init(&pm->evaluation.lock, NULL);
    (void)pthread_cond_init(&pm->evaluation.changed, NULL);
    if (check_options(&pm->options, err) < 0 || load_driver(pm, err) < 0 ||
        load_cupti(pm, options->cupti, err) < 0 || find_device(pm, options->gpu, err) < 0 ||
        ask_chip(pm, err) < 0 || ask_availability(pm, err) < 0 || choose_metrics(pm, err) < 0 ||
        begin_session(pm, err) < 0 || make_images(pm, err) < 0 || make_evaluation(pm, err) < 0) {
        pp_pm_close(pm);
        return -1;
    }
    *ret = pm;
    return 0;
}

/* The libraries stay: CUPTI has threads and handlers of its own by now. */
void pp_pm_close(pp_pm *pm)
{
    if (!pm)
        return;
    end_evaluation(pm);
    end_session(pm);
    free_config(pm, &pm->config);
    pm_initialize p = {.size = sizeof p};
    if (pm->initialized)
        (void)pm->api.deinitialize(&p);
    for (size_t i = 0; i < PP_PM_IMAGES; i++)
        free(pm->images[i].data);
    free(pm->availability);
    free(pm);
}

const char *pp_pm_chip(const pp_pm *pm)
{
    return pm->chip;
}

const char *pp_pm_source(const pp_pm *pm, pp_metric metric)
{
    for (size_t i = 0; i < pm->count; i++)
        if (pm->metrics[i] == metric)
            return pm->names[i];
    return NULL;
}

size_t pp_pm_image_bytes(const pp_pm *pm)
{
    return pm->image_size;
}

/* ---- a capture ---- */

/* An empty image, into which is decoded from now on; the one before is handed over. */
static int next_image(pp_pm *pm, size_t number, size_t skipped, pp_error *err)
{
    image *i = &pm->images[number % pm->options.images];
    pm_image_initialize p = {
        .size = sizeof p, .object = pm->object, .image_size = pm->image_size, .image = i->data};
    int rc = pm->api.image_initialize(&p);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingCounterDataImageInitialize", err);
    *i = (image){.data = i->data, .skipped = skipped};
    pm->filled = i;
    hand_over(pm, number);
    return 0;
}

int pp_pm_start(pp_pm *pm, pp_error *err)
{
    if (pm->running)
        return pp_error_set(err, PP_ERR_INVALID, "a capture runs already");
    forget_capture(pm);
    pm->newest = 0;
    pm->decoding = 0;
    pm->decoded = 0;
    if (pm->lost || pm->stale) {
        end_session(pm);
        if (begin_session(pm, err) < 0)
            return -1;
        pm->lost = pm->stale = false;
    }
    if (next_image(pm, 0, 1, err) < 0)
        return -1;
    pm_of_object p = {.size = sizeof p, .object = pm->object};
    int rc = pm->api.start(&p);
    pm->running = rc == PM_OK;
    return rc == PM_OK ? 0 : fail(pm, rc, "cuptiPmSamplingStart", err);
}

static int count_samples(pp_pm *pm, image *i, pp_error *err)
{
    pm_image_info info = {.size = sizeof info, .image = i->data, .image_size = pm->image_size};
    int rc = pm->api.image_info(&info);
    if (rc != PM_OK)
        return fail(pm, rc, "cuptiPmSamplingGetCounterDataInfo", err);
    i->populated = info.populated;
    i->completed = info.completed < info.populated ? info.completed : info.populated;
    return 0;
}

/* Of this thread's processor: what others take of it for a moment is no cost of decoding. */
static int64_t read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A decode takes a ms besides, which is not the samples': of few it says nothing. Of those that a
 * full image has no room for nothing is known. */
static void note_cost(pp_pm *pm, size_t came, int64_t ns)
{
    enum { ENOUGH = 32 };
    if (pm->lost || came < ENOUGH)
        return;
    pm->decoding += (double)ns;
    pm->decoded += came;
}

double pp_pm_decode_ns(const pp_pm *pm)
{
    return pm->decoded > 0 ? pm->decoding / (double)pm->decoded : 0;
}

int pp_pm_set_period(pp_pm *pm, uint32_t period_ns, pp_error *err)
{
    if (pm->running)
        return pp_error_set(err, PP_ERR_INVALID, "a capture runs");
    pm->stale = pm->stale || period_ns != pm->options.period_ns;
    pm->options.period_ns = period_ns;
    return 0;
}

/* Decodes once. *ret_more: it ended for no reason that it told, and may go on; after a stop some
 * samples of no length come each time. A full image says so or not, a full buffer in one of two
 * ways; nothing right is decoded from then on. */
static int decode(pp_pm *pm, bool *ret_more, pp_error *err)
{
    enum { NOTHING = 4 };
    image *i = pm->filled;
    const size_t before = i->populated;
    const int64_t began = read_clock();
    pm_decode p = {.size = PM_DECODE_SIZE,
                   .object = pm->object,
                   .image = i->data,
                   .image_size = pm->image_size};
    int rc = pm->api.decode(&p);
    if (rc != PM_OK && rc != CUPTI_OUT_OF_MEMORY)
        return fail(pm, rc, "cuptiPmSamplingDecodeData", err);
    if (rc == CUPTI_OUT_OF_MEMORY || p.overflow || p.stop_reason == PM_STOP_IMAGE_FULL)
        pm->lost = true;
    if (count_samples(pm, i, err) < 0)
        return -1;
    if (i->populated >= pm->options.image_samples)
        pm->lost = true;
    i->came = i->populated - before;
    note_cost(pm, i->came, read_clock() - began);
    *ret_more = !pm->lost && p.stop_reason == PM_STOP_OTHER && i->came > NOTHING;
    return 0;
}

/* To three quarters; or the next decode, if it brings as much as the last, would not fit. */
static bool is_filled(const pp_pm *pm)
{
    const size_t room = pm->options.image_samples, populated = pm->filled->populated;
    return populated >= room / 4 * 3 || populated + pm->filled->came > room;
}

/* Goes on to the next image in time, where one is free. What is not whole in this one by now never
 * will be, and what comes of it later would be a part. */
static int change_image(pp_pm *pm, pp_error *err)
{
    const image *i = pm->filled;
    size_t number;
    if (pm->lost || !is_filled(pm) || !is_image_free(pm, &number))
        return 0;
    return next_image(pm, number, i->populated - i->completed, err);
}

static int no_capture(pp_error *err)
{
    return pp_error_set(err, PP_ERR_INVALID, "no capture runs");
}

/* In the image that is being decoded into, which the thread does not look at. */
static void note_newest(pp_pm *pm)
{
    pp_pm_sample sample = {0};
    const image *i = pm->filled;
    if (!pm->lost && i->completed > 0 && read_times(pm, i, i->completed - 1, &sample, NULL) == 0 &&
        sample.end > pm->newest)
        pm->newest = sample.end;
}

int64_t pp_pm_newest(const pp_pm *pm)
{
    return pm->newest;
}

int pp_pm_poll(pp_pm *pm, bool *ret_full, pp_error *err)
{
    bool more;
    if (!pm->running)
        return no_capture(err);
    if (check_evaluation(pm, err) < 0 || decode(pm, &more, err) < 0)
        return -1;
    note_newest(pm);
    if (change_image(pm, err) < 0)
        return -1;
    *ret_full = pm->lost || is_filled(pm) || is_stuffed(pm);
    return 0;
}

/* Decodes what is left. Nothing new comes, so there is time to wait for an image. */
static int drain(pp_pm *pm, pp_error *err)
{
    enum { ROUNDS = 16 };
    bool more = true;
    for (int round = 0; more && round < ROUNDS; round++) {
        if (decode(pm, &more, err) < 0)
            return -1;
        if (is_filled(pm))
            evaluate_all(pm);
        if (change_image(pm, err) < 0)
            return -1;
    }
    pm->lost = pm->lost || more;
    return 0;
}

static int stop(pp_pm *pm, pp_error *err)
{
    pm_of_object p = {.size = sizeof p, .object = pm->object};
    int rc = pm->api.stop(&p);
    pm->running = false;
    return rc == PM_OK ? drain(pm, err) : fail(pm, rc, "cuptiPmSamplingStop", err);
}

int pp_pm_stop(pp_pm *pm, bool *ret_lost, pp_error *err)
{
    if (!pm->running)
        return no_capture(err);
    int rc = stop(pm, err);
    pm->lost = pm->lost || rc < 0;
    evaluate_all(pm);
    if (rc < 0 || check_evaluation(pm, err) < 0)
        return -1;
    *ret_lost = pm->lost || is_stuffed(pm);
    return 0;
}

static bool next_sample(pp_pm *pm, pp_pm_sample *ret)
{
    evaluation *e = &pm->evaluation;
    (void)pthread_mutex_lock(&e->lock);
    bool there = e->count > 0;
    if (there) {
        *ret = e->samples[e->first];
        e->first = (e->first + 1) % pm->options.samples;
        e->count--;
    }
    (void)pthread_mutex_unlock(&e->lock);
    return there;
}

int pp_pm_take(pp_pm *pm, bool (*sink)(void *, const pp_pm_sample *), void *user, pp_error *err)
{
    pp_pm_sample sample;
    while (next_sample(pm, &sample))
        if (!sink(user, &sample))
            return 0;
    return check_evaluation(pm, err);
}
