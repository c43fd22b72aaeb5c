#include "common/wire.h"

#include "common/buf.h"
#include "common/cleanup.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- phases ---- */

static const char *const phase_names[] = {
    [PP_WIRE_FORWARD] = "forward",
    [PP_WIRE_BACKWARD] = "backward",
    [PP_WIRE_OPTIMIZER] = "optimizer",
    [PP_WIRE_RECOMPUTE] = "recompute",
    [PP_WIRE_ZERO_GRAD] = "zero_grad",
    [PP_WIRE_DATA] = "data",
    [PP_WIRE_COMMUNICATION] = "communication",
    [PP_WIRE_OTHER] = "other",
    [PP_WIRE_INFERENCE] = "inference",
};

const char *pp_wire_phase_name(pp_wire_phase phase)
{
    return phase_names[phase];
}

int pp_wire_phase_from_name(const char *name, pp_wire_phase *ret)
{
    for (int i = 0; i < PP_WIRE_PHASES; i++) {
        if (strcmp(name, phase_names[i]) == 0) {
            *ret = (pp_wire_phase)i;
            return 0;
        }
    }
    return -1;
}

bool pp_wire_phase_has_layer(pp_wire_phase phase)
{
    return phase == PP_WIRE_FORWARD || phase == PP_WIRE_BACKWARD || phase == PP_WIRE_RECOMPUTE ||
           phase == PP_WIRE_INFERENCE;
}

const pp_wire_layer *pp_wire_find_layer(const pp_wire_batch *batch, int64_t id)
{
    for (size_t i = 0; i < batch->layer_count; i++)
        if (batch->layers[i].id == id)
            return &batch->layers[i];
    return NULL;
}

const char *pp_wire_layer_name(const pp_wire_batch *batch, int64_t id)
{
    const pp_wire_layer *layer = pp_wire_find_layer(batch, id);
    return layer ? layer->name : "";
}

const char *pp_wire_copy_type_name(int64_t type)
{
    static const char *const names[] = {"h2d", "d2h", "d2d", "p2p", "fill", "other"};
    return type >= 0 && type <= PP_WIRE_COPY_OTHER ? names[type] : "";
}

const char *pp_wire_copy_memory_name(int64_t memory)
{
    static const char *const names[] = {"", "pageable", "pinned"};
    return memory >= 0 && memory <= PP_WIRE_PINNED ? names[memory] : "";
}

/* ---- tables: one description of each object serves decoding, checking and freeing --------------
 */

static const pp_json_field batch_fields[] = {
    {"session", PP_JSON_STRING, offsetof(pp_wire_batch, session), true, PP_WIRE_MAX_ID},
    {"instance", PP_JSON_STRING, offsetof(pp_wire_batch, instance), true, PP_WIRE_MAX_ID},
    {"seq", PP_JSON_INT, offsetof(pp_wire_batch, seq), true, PP_WIRE_MAX_COUNT},
    {"dropped", PP_JSON_INT, offsetof(pp_wire_batch, dropped), false, PP_WIRE_MAX_COUNT},
    {0},
};

static const pp_json_field process_fields[] = {
    {"id", PP_JSON_INT, offsetof(pp_wire_process, id), true, PP_WIRE_MAX_PROCESS},
    {"rank", PP_JSON_INT, offsetof(pp_wire_process, rank), true, PP_WIRE_MAX_PROCESS},
    {"worldSize", PP_JSON_INT, offsetof(pp_wire_process, world_size), true, PP_WIRE_MAX_PROCESS},
    {"gpus", PP_JSON_STRINGS, offsetof(pp_wire_process, gpus), true, PP_WIRE_MAX_GPUS},
    {"hostname", PP_JSON_STRING, offsetof(pp_wire_process, hostname), true, PP_WIRE_MAX_TEXT},
    {"python", PP_JSON_STRING, offsetof(pp_wire_process, python), false, PP_WIRE_MAX_VERSION},
    {"torch", PP_JSON_STRING, offsetof(pp_wire_process, torch), false, PP_WIRE_MAX_VERSION},
    {"clock", PP_JSON_STRING, offsetof(pp_wire_process, clock), true, PP_WIRE_MAX_VERSION},
    {"model", PP_JSON_STRING, offsetof(pp_wire_process, model), false, PP_WIRE_MAX_TEXT},
    {"modelDigest", PP_JSON_STRING, offsetof(pp_wire_process, digest), false, PP_WIRE_DIGEST},
    {"batch", PP_JSON_STRING, offsetof(pp_wire_process, batch), false, PP_WIRE_MAX_BATCH},
    {"kernels", PP_JSON_STRING, offsetof(pp_wire_process, kernels), false, PP_WIRE_MAX_VERSION},
    {"isolated", PP_JSON_STRING, offsetof(pp_wire_process, isolated), false, PP_WIRE_MAX_VERSION},
    {"gpuModel", PP_JSON_STRING, offsetof(pp_wire_process, gpu_model), false, PP_WIRE_MAX_VERSION},
    {"furtherGpu", PP_JSON_BOOL, offsetof(pp_wire_process, further), false, 0},
    {0},
};

static const pp_json_field chip_fields[] = {
    {"capability", PP_JSON_INT, offsetof(pp_chip, capability), true, INT32_MAX},
    {"multiprocessors", PP_JSON_INT, offsetof(pp_chip, multiprocessors), false, INT32_MAX},
    {"smKHz", PP_JSON_INT, offsetof(pp_chip, sm_khz), false, INT32_MAX},
    {"memoryKHz", PP_JSON_INT, offsetof(pp_chip, memory_khz), false, INT32_MAX},
    {"memoryBits", PP_JSON_INT, offsetof(pp_chip, memory_bits), false, INT32_MAX},
    {0},
};

static const pp_json_field capture_fields[] = {
    {"id", PP_JSON_INT, offsetof(pp_wire_capture, id), true, PP_WIRE_MAX_COUNT},
    {"start", PP_JSON_INT, offsetof(pp_wire_capture, start), true, PP_WIRE_TIME_MAX},
    {"end", PP_JSON_INT, offsetof(pp_wire_capture, end), true, PP_WIRE_TIME_MAX},
    {"last", PP_JSON_BOOL, offsetof(pp_wire_capture, last), true, 0},
    {"dwell", PP_JSON_INT, offsetof(pp_wire_capture, dwell), false, PP_WIRE_MAX_DWELL},
    {"background", PP_JSON_BOOL, offsetof(pp_wire_capture, background), false, 0},
    {"monotonic", PP_JSON_INT, offsetof(pp_wire_capture, monotonic), false, PP_WIRE_TIME_MAX},
    {0},
};

static const pp_json_field layer_fields[] = {
    {"id", PP_JSON_INT, offsetof(pp_wire_layer, id), true, INT32_MAX},
    {"name", PP_JSON_STRING, offsetof(pp_wire_layer, name), true, PP_WIRE_MAX_TEXT},
    {"type", PP_JSON_STRING, offsetof(pp_wire_layer, type), true, PP_WIRE_MAX_TEXT},
    {"parameters", PP_JSON_INT, offsetof(pp_wire_layer, parameters), false, PP_WIRE_MAX_COUNT},
    {"forwardLeftOut", PP_JSON_INT, offsetof(pp_wire_layer, forward_skip), false, PP_WIRE_MAX_SKIP},
    {"backwardLeftOut", PP_JSON_INT, offsetof(pp_wire_layer, backward_skip), false,
     PP_WIRE_MAX_SKIP},
    {"whole", PP_JSON_INT, offsetof(pp_wire_layer, whole), false, PP_WIRE_MAX_WHOLE},
    {0},
};

static const pp_json_field grid_fields[] = {
    {"start", PP_JSON_INT, offsetof(pp_wire_grid, start), true, PP_WIRE_TIME_MAX},
    {"cell", PP_JSON_INT, offsetof(pp_wire_grid, cell), true, PP_WIRE_CELL_MAX},
    {0},
};

static const pp_json_field pm_fields[] = {
    {"gpu", PP_JSON_STRING, offsetof(pp_wire_pm, gpu), true, PP_WIRE_MAX_GPU},
    {"sources", PP_JSON_STRINGS, offsetof(pp_wire_pm, sources), true, PP_WIRE_PM_METRICS},
    {0},
};

static const pp_json_field kernel_fields[] = {
    {"steps", PP_JSON_INT, offsetof(pp_wire_kernels, steps), true, PP_WIRE_MAX_COUNT},
    {"names", PP_JSON_STRINGS, offsetof(pp_wire_kernels, names), true, PP_WIRE_MAX_NAMES},
    {0},
};

static const pp_json_field wait_fields[] = {
    {"steps", PP_JSON_INT, offsetof(pp_wire_waits, steps), true, PP_WIRE_MAX_COUNT},
    {"calls", PP_JSON_STRINGS, offsetof(pp_wire_waits, calls), true, PP_WIRE_MAX_CALLS},
    {"files", PP_JSON_STRINGS, offsetof(pp_wire_waits, files), true, PP_WIRE_MAX_FILES},
    {0},
};

static const pp_json_field copy_fields[] = {
    {"steps", PP_JSON_INT, offsetof(pp_wire_copies, steps), true, PP_WIRE_MAX_COUNT},
    {0},
};

static const pp_json_field memory_fields[] = {
    {"steps", PP_JSON_INT, offsetof(pp_wire_memory, steps), true, PP_WIRE_MAX_COUNT},
    {0},
};

static const pp_json_field sampling_fields[] = {
    {"chip", PP_JSON_STRING, offsetof(pp_wire_pm_sampling, chip), false, PP_WIRE_MAX_VERSION},
    {"period", PP_JSON_INT, offsetof(pp_wire_pm_sampling, period), true, PP_WIRE_PERIOD_MAX},
    {"times", PP_JSON_INT, offsetof(pp_wire_pm_sampling, times), true, PP_WIRE_MAX_COUNT},
    {"failed", PP_JSON_INT, offsetof(pp_wire_pm_sampling, failed), true, PP_WIRE_MAX_COUNT},
    {"sampled", PP_JSON_INT, offsetof(pp_wire_pm_sampling, sampled), true, PP_WIRE_MAX_COUNT},
    {"samples", PP_JSON_INT, offsetof(pp_wire_pm_sampling, samples), true, PP_WIRE_MAX_COUNT},
    {"lagError", PP_JSON_INT, offsetof(pp_wire_pm_sampling, lag_error), true, PP_WIRE_MAX_COUNT},
    {"samplerCpu", PP_JSON_INT, offsetof(pp_wire_pm_sampling, sampler_cpu), true,
     PP_WIRE_MAX_COUNT},
    {0},
};

/** The one that may be negative: check_sampling has its limits. */
static const pp_json_field lag_fields[] = {
    {"lag", PP_JSON_INT, offsetof(pp_wire_pm_sampling, lag), true, 0},
    {0},
};

static const pp_json_field why_fields[] = {
    {"why", PP_JSON_STRING, offsetof(pp_wire_pm, why), true, PP_WIRE_MAX_REASON},
    {0},
};

static const pp_json_field left_out_fields[] = {
    {"steps", PP_JSON_INT, offsetof(pp_wire_left_out, steps), false, PP_WIRE_MAX_COUNT},
    {"lost", PP_JSON_INT, offsetof(pp_wire_left_out, lost), false, PP_WIRE_MAX_COUNT},
    {"late", PP_JSON_INT, offsetof(pp_wire_left_out, late), false, PP_WIRE_MAX_COUNT},
    {0},
};

static const pp_json_field cost_fields[] = {
    {"nanoseconds", PP_JSON_INT, offsetof(pp_wire_cost, nanoseconds), true, PP_WIRE_MAX_COUNT},
    {"marks", PP_JSON_INT, offsetof(pp_wire_cost, marks), true, PP_WIRE_MAX_COUNT},
    {"paused", PP_JSON_INT, offsetof(pp_wire_cost, paused), false, PP_WIRE_MAX_COUNT},
    {0},
};

/** A column of parallel numbers in the text, a member of an array of structs in memory. An UNKNOWN
 * one is plain and left out of the text where it would hold nothing but -1, not known; a RARE one
 * where it would hold nothing but 0. */
typedef struct column {
    const char *name;
    enum { PLAIN, DELTA, PHASE, UNKNOWN, RARE } kind;
    size_t offset; /* of an int64_t, or of a pp_wire_phase for PHASE */
    int64_t min;
    int64_t max;
} column;

static const column step_columns[] = {
    {"number", DELTA, offsetof(pp_wire_step, number), 0, PP_WIRE_MAX_COUNT},
    {"start", DELTA, offsetof(pp_wire_step, start), PP_WIRE_TIME_MIN, PP_WIRE_TIME_MAX},
    {"duration", PLAIN, offsetof(pp_wire_step, duration), 0, PP_WIRE_MAX_DURATION},
    {"epoch", DELTA, offsetof(pp_wire_step, epoch), -1, PP_WIRE_MAX_COUNT},
    {"batch", DELTA, offsetof(pp_wire_step, batch), -1, PP_WIRE_MAX_COUNT},
    {"gap", UNKNOWN, offsetof(pp_wire_step, gap), -1, PP_WIRE_MAX_DURATION},
    {0},
};

static const column run_columns[] = {
    {"start", DELTA, offsetof(pp_wire_run, start), PP_WIRE_TIME_MIN, PP_WIRE_TIME_MAX},
    {"duration", PLAIN, offsetof(pp_wire_run, duration), 0, PP_WIRE_MAX_DURATION},
    {"steps", PLAIN, offsetof(pp_wire_run, steps), 1, PP_WIRE_MAX_COUNT},
    {0},
};

static const column interval_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_interval, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_interval, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"step", DELTA, offsetof(pp_wire_interval, step), 0, PP_WIRE_MAX_COUNT},
    {"start", DELTA, offsetof(pp_wire_interval, start), PP_WIRE_TIME_MIN, PP_WIRE_TIME_MAX},
    {"duration", PLAIN, offsetof(pp_wire_interval, duration), 0, PP_WIRE_MAX_DURATION},
    {"kernels", UNKNOWN, offsetof(pp_wire_interval, kernels), -1, PP_WIRE_MAX_DURATION},
    {"goesOn", RARE, offsetof(pp_wire_interval, goes_on), 0, 1},
    {0},
};

static const column cell_columns[] = {
    {"cells", DELTA, offsetof(pp_wire_cell, cell), 0, INT32_MAX},
    {"layer", PLAIN, offsetof(pp_wire_cell, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_cell, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"busy", PLAIN, offsetof(pp_wire_cell, busy), 0, PP_WIRE_CELL_MAX},
    {"calls", PLAIN, offsetof(pp_wire_cell, calls), 0, INT32_MAX},
    {"kernels", UNKNOWN, offsetof(pp_wire_cell, kernels), -1, PP_WIRE_CELL_MAX},
    {0},
};

static const column kernel_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_kernel, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_kernel, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"name", PLAIN, offsetof(pp_wire_kernel, name), 0, PP_WIRE_MAX_NAMES - 1},
    {"count", PLAIN, offsetof(pp_wire_kernel, count), 1, PP_WIRE_MAX_COUNT},
    {"duration", PLAIN, offsetof(pp_wire_kernel, duration), 0, PP_WIRE_MAX_DURATION},
    {0},
};

static const column wait_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_wait, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_wait, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"call", PLAIN, offsetof(pp_wire_wait, call), 0, PP_WIRE_MAX_CALLS - 1},
    {"file", PLAIN, offsetof(pp_wire_wait, file), 0, PP_WIRE_MAX_FILES - 1},
    {"line", PLAIN, offsetof(pp_wire_wait, line), 0, INT32_MAX},
    {"count", PLAIN, offsetof(pp_wire_wait, count), 1, PP_WIRE_MAX_COUNT},
    {"inSteps", PLAIN, offsetof(pp_wire_wait, steps), 1, PP_WIRE_MAX_COUNT},
    {"duration", PLAIN, offsetof(pp_wire_wait, duration), 0, PP_WIRE_MAX_DURATION},
    {0},
};

static const column copy_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_copy, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_copy, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"type", PLAIN, offsetof(pp_wire_copy, type), PP_WIRE_H2D, PP_WIRE_COPY_OTHER},
    {"memory", PLAIN, offsetof(pp_wire_copy, memory), PP_WIRE_MEMORY_UNKNOWN, PP_WIRE_PINNED},
    {"count", PLAIN, offsetof(pp_wire_copy, count), 1, PP_WIRE_MAX_COUNT},
    {"bytes", PLAIN, offsetof(pp_wire_copy, bytes), 0, PP_WIRE_MAX_COUNT},
    {"duration", PLAIN, offsetof(pp_wire_copy, duration), 0, PP_WIRE_MAX_DURATION},
    {0},
};

static const column memory_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_memory_row, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_memory_row, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"peak", PLAIN, offsetof(pp_wire_memory_row, peak), 0, PP_WIRE_MAX_COUNT},
    {"left", PLAIN, offsetof(pp_wire_memory_row, left), -PP_WIRE_MAX_COUNT, PP_WIRE_MAX_COUNT},
    {0},
};

enum { PM_VALUES = 3 };             /* columns before the metrics' */
enum { MILLIONTHS_MAX = 10000000 }; /* noise may carry a value past 1, and an error further */

#define PM_COLUMNS(id, name, ...)                                                                  \
    {name, UNKNOWN, offsetof(pp_wire_pm_row, mean[PP_METRIC_##id]), -1, MILLIONTHS_MAX},           \
        {name "Error", UNKNOWN, offsetof(pp_wire_pm_row, error[PP_METRIC_##id]), -1,               \
         MILLIONTHS_MAX},

static const column pm_columns[] = {
    {"layer", PLAIN, offsetof(pp_wire_pm_row, layer), 0, INT32_MAX},
    {"phase", PHASE, offsetof(pp_wire_pm_row, phase), PP_WIRE_FORWARD, PP_WIRE_INFERENCE},
    {"kernels", PLAIN, offsetof(pp_wire_pm_row, kernels), 0, PP_WIRE_MAX_COUNT},
    PP_METRIC_TABLE_SAMPLED(PM_COLUMNS) /* from PM_VALUES on */
    {0},
};

static const column closure_columns[] = {
    {"metric", PLAIN, offsetof(pp_wire_pm_closure, metric), 0, PP_WIRE_PM_METRICS - 1},
    {"held", PLAIN, offsetof(pp_wire_pm_closure, held), 0, MILLIONTHS_MAX},
    {"difference", PLAIN, offsetof(pp_wire_pm_closure, difference), -MILLIONTHS_MAX,
     MILLIONTHS_MAX},
    {"noise", UNKNOWN, offsetof(pp_wire_pm_closure, noise), -1, MILLIONTHS_MAX},
    {0},
};

static const column quality_columns[] = {
    {"metric", PLAIN, offsetof(pp_wire_pm_quality, metric), 0, PP_WIRE_PM_METRICS - 1},
    {"explained", UNKNOWN, offsetof(pp_wire_pm_quality, explained), -1, 1000000},
    {"miss", UNKNOWN, offsetof(pp_wire_pm_quality, miss), -1, MILLIONTHS_MAX},
    {"items", UNKNOWN, offsetof(pp_wire_pm_quality, items), -1, PP_WIRE_MAX_COUNT},
    {"itemsZ", UNKNOWN, offsetof(pp_wire_pm_quality, items_z), -1, MILLIONTHS_MAX * 100},
    {"gap", UNKNOWN, offsetof(pp_wire_pm_quality, gap), -1, MILLIONTHS_MAX},
    {"gapError", UNKNOWN, offsetof(pp_wire_pm_quality, gap_error), -1, MILLIONTHS_MAX},
    {"doubt", UNKNOWN, offsetof(pp_wire_pm_quality, doubt), -1, PP_WIRE_MAX_DOUBT},
    {0},
};

/** A group of columns: its name, its limit and the size of its structs. */
typedef struct column_group {
    const char *name;
    const column *columns;
    size_t stride;
    size_t max;
} column_group;

static const column_group steps_group = {"steps", step_columns, sizeof(pp_wire_step),
                                         PP_WIRE_MAX_STEPS};
static const column_group runs_group = {"counted", run_columns, sizeof(pp_wire_run),
                                        PP_WIRE_MAX_RUNS};
static const column_group intervals_group = {"intervals", interval_columns,
                                             sizeof(pp_wire_interval), PP_WIRE_MAX_INTERVALS};
static const column_group grid_group = {"grid", cell_columns, sizeof(pp_wire_cell),
                                        PP_WIRE_MAX_CELLS};
static const column_group kernels_group = {"kernels", kernel_columns, sizeof(pp_wire_kernel),
                                           PP_WIRE_MAX_KERNELS};
static const column_group waits_group = {"waits", wait_columns, sizeof(pp_wire_wait),
                                         PP_WIRE_MAX_WAITS};
static const column_group copies_group = {"copies", copy_columns, sizeof(pp_wire_copy),
                                          PP_WIRE_MAX_COPIES};
static const column_group memory_group = {"memory", memory_columns, sizeof(pp_wire_memory_row),
                                          PP_WIRE_MAX_MEMORY};
static const column_group pm_group = {"fine", pm_columns, sizeof(pp_wire_pm_row), PP_WIRE_MAX_PM};
static const column_group closure_group = {"fine.closure", closure_columns,
                                           sizeof(pp_wire_pm_closure), PP_WIRE_PM_METRICS};
static const column_group quality_group = {"fine.quality", quality_columns,
                                           sizeof(pp_wire_pm_quality), PP_WIRE_PM_METRICS};

/* ---- small helpers -----------------------------------------------------------------------------
 */

/** Refuses the element i of a group's column, as "intervals.duration[3]". */
__attribute__((format(printf, 5, 6))) static int
refuse_element(pp_error *err, const char *group, const char *name, size_t i, const char *fmt, ...)
{
    char field[sizeof err->field];
    char why[160];
    (void)snprintf(field, sizeof field, "%s%s%s[%zu]", group, *name ? "." : "", name, i);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return pp_error_field(err, field, "%s", why);
}

static int refuse_large(pp_error *err, const char *field, size_t count, size_t max)
{
    (void)pp_error_field(err, field, "has %zu items, at most %zu are taken", count, max);
    if (err)
        err->code = PP_ERR_TOO_LARGE;
    return -1;
}

/** What a column holds that is not in the text; false: each is. */
static bool left_out(const column *c, int64_t *ret)
{
    *ret = c->kind == UNKNOWN ? -1 : 0;
    return c->kind == UNKNOWN || c->kind == RARE;
}

static int64_t get_value(const column *c, const void *element)
{
    const char *slot = (const char *)element + c->offset;
    if (c->kind == PHASE)
        return *(const pp_wire_phase *)(const void *)slot;
    return *(const int64_t *)(const void *)slot;
}

static void set_value(const column *c, void *element, int64_t value)
{
    char *slot = (char *)element + c->offset;
    if (c->kind == PHASE)
        *(pp_wire_phase *)(void *)slot = (pp_wire_phase)value;
    else
        *(int64_t *)(void *)slot = value;
}

/* ---- checks: what decoding accepts and encoding is willing to send ------------------------------
 */

bool pp_wire_is_id(const char *text, size_t max)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/");
    return n > 0 && n <= max && !text[n];
}

bool pp_wire_is_digest(const char *text)
{
    return strspn(text, "0123456789abcdef") == PP_WIRE_DIGEST && !text[PP_WIRE_DIGEST];
}

bool pp_wire_is_address(const char *text)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static int check_id(const char *text, size_t max, const char *field, pp_error *err)
{
    if (text && pp_wire_is_id(text, max))
        return 0;
    return pp_error_field(err, field, "must be 1 to %zu letters, digits and -_.:/", max);
}

/** Bounds of the table's members: integers are never negative, texts never too long. */
static int check_fields(const pp_json_field *fields, const char *path, const void *object,
                        pp_error *err)
{
    for (const pp_json_field *f = fields; f->name; f++) {
        const char *slot = (const char *)object + f->offset;
        char at[sizeof err->field];
        (void)snprintf(at, sizeof at, "%s%s%s", path, *path ? "." : "", f->name);
        if (f->type == PP_JSON_INT) {
            int64_t value = *(const int64_t *)(const void *)slot;
            if (value < 0)
                return pp_error_field(err, at, "must not be negative");
            if (value > f->max)
                return pp_error_field(err, at, "must be at most %" PRId64, f->max);
        } else if (f->type == PP_JSON_STRING) {
            const char *text = *(char *const *)(const void *)slot;
            if (f->required && (!text || !*text))
                return pp_error_field(err, at, "must not be empty");
            if (text && strlen(text) > (size_t)f->max)
                return pp_error_field(err, at, "must be at most %" PRId64 " bytes long", f->max);
        }
    }
    return 0;
}

static int check_gpus(const pp_strings *gpus, pp_error *err)
{
    if (gpus->count > PP_WIRE_MAX_GPUS)
        return refuse_large(err, "process.gpus", gpus->count, PP_WIRE_MAX_GPUS);
    for (size_t i = 0; i < gpus->count; i++) {
        char at[64];
        (void)snprintf(at, sizeof at, "process.gpus[%zu]", i);
        if (check_id(gpus->items[i], PP_WIRE_MAX_GPU, at, err) < 0)
            return -1;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(gpus->items[i], gpus->items[j]) == 0)
                return pp_error_field(err, at, "is listed twice");
        }
    }
    return 0;
}

static int check_process(const pp_wire_process *process, pp_error *err)
{
    if (check_fields(process_fields, "process", process, err) < 0)
        return -1;
    if (process->world_size < 1)
        return pp_error_field(err, "process.worldSize", "must be at least 1");
    if (process->rank >= process->world_size)
        return pp_error_field(err, "process.rank", "must be less than worldSize");
    if (strcmp(process->clock, "host") != 0 && strcmp(process->clock, "cuda") != 0 &&
        strcmp(process->clock, "kernels") != 0 && strcmp(process->clock, "foreign") != 0)
        return pp_error_field(err, "process.clock", "must be host, cuda, kernels or foreign");
    if (process->digest && *process->digest && !pp_wire_is_digest(process->digest))
        return pp_error_field(err, "process.modelDigest", "must be %d hexadecimal digits",
                              PP_WIRE_DIGEST);
    return check_gpus(&process->gpus, err);
}

static int check_capture(const pp_wire_capture *capture, pp_error *err)
{
    if (check_fields(capture_fields, "stretch", capture, err) < 0)
        return -1;
    if (capture->start < PP_WIRE_TIME_MIN)
        return pp_error_field(err, "stretch.start", "must not be before the year 2000");
    if (capture->end < capture->start)
        return pp_error_field(err, "stretch.end", "must not be before stretch.start");
    if (capture->end - capture->start > PP_WIRE_MAX_CAPTURE)
        return pp_error_field(err, "stretch.end", "must be within a day of stretch.start");
    if (capture->background && capture->dwell == 0)
        return pp_error_field(err, "stretch.background", "is of a dwell only");
    return 0;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/** Sorted ids of the batch's layers, for look-ups; the caller frees them. */
static int sorted_ids(const pp_wire_batch *batch, int64_t **ret, pp_error *err)
{
    int64_t *ids = malloc((batch->layer_count + 1) * sizeof *ids);
    if (!ids)
        return pp_error_nomem(err);
    for (size_t i = 0; i < batch->layer_count; i++)
        ids[i] = batch->layers[i].id;
    qsort(ids, batch->layer_count, sizeof *ids, compare_ids);
    *ret = ids;
    return 0;
}

static int check_layers(const pp_wire_batch *batch, int64_t **ret_ids, pp_error *err)
{
    if (batch->layer_count > PP_WIRE_MAX_LAYERS)
        return refuse_large(err, "layers", batch->layer_count, PP_WIRE_MAX_LAYERS);
    for (size_t i = 0; i < batch->layer_count; i++) {
        char at[64];
        (void)snprintf(at, sizeof at, "layers[%zu]", i);
        if (check_fields(layer_fields, at, &batch->layers[i], err) < 0)
            return -1;
        if (batch->layers[i].id < 1)
            return refuse_element(err, "layers", "", i, "id must be at least 1");
    }
    PP_CLEANUP_FREE int64_t *ids = NULL;
    if (sorted_ids(batch, &ids, err) < 0)
        return -1;
    for (size_t i = 1; i < batch->layer_count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL only where layer_count is 0 */
        if (ids[i] == ids[i - 1])
            return pp_error_field(err, "layers", "id %" PRId64 " is listed twice", ids[i]);
    }
    *ret_ids = PP_TAKE(ids);
    return 0;
}

static int check_columns(const column_group *group, const void *elements, size_t count,
                         pp_error *err)
{
    if (count > group->max)
        return refuse_large(err, group->name, count, group->max);
    for (const column *c = group->columns; c->name; c++) {
        for (size_t i = 0; i < count; i++) {
            int64_t value = get_value(c, (const char *)elements + i * group->stride);
            if (value < c->min || value > c->max)
                return refuse_element(err, group->name, c->name, i,
                                      "is %" PRId64 ", must be %" PRId64 " to %" PRId64, value,
                                      c->min, c->max);
        }
    }
    return 0;
}

/** Ids of layers, and what a layer may do: what is not a layer's has layer 0. */
static int check_layer_phase(const pp_wire_batch *batch, const int64_t *ids, const char *group,
                             size_t i, int64_t layer, pp_wire_phase phase, pp_error *err)
{
    if (pp_wire_phase_has_layer(phase) != (layer != 0))
        return refuse_element(err, group, "phase", i,
                              "0, 1 and 3 go with a layer, all others with layer 0 only");
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): NULL only where layer_count is 0 */
    if (layer && !bsearch(&layer, ids, batch->layer_count, sizeof *ids, compare_ids))
        return refuse_element(err, group, "layer", i, "%" PRId64 " is not in layers", layer);
    return 0;
}

static int check_steps(const pp_wire_batch *batch, pp_error *err)
{
    const pp_wire_step *steps = batch->steps;
    if (check_columns(&steps_group, steps, batch->step_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->step_count; i++) {
        int64_t end = steps[i].start + steps[i].duration; /* both bounded: cannot overflow */
        if (end < batch->capture.start || end > batch->capture.end)
            return refuse_element(err, "steps", "duration", i, "the step ends outside the capture");
        if (steps[i].gap > steps[i].duration)
            return refuse_element(err, "steps", "gap", i, "is more than the step's duration");
        if (i && steps[i].number <= steps[i - 1].number)
            return refuse_element(err, "steps", "number", i, "must be greater than the one before");
    }
    return 0;
}

static int check_runs(const pp_wire_batch *batch, pp_error *err)
{
    if (check_columns(&runs_group, batch->runs, batch->run_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->run_count; i++) {
        const pp_wire_run *r = &batch->runs[i];
        if (r->start + r->duration > batch->capture.end)
            return refuse_element(err, "counted", "duration", i, "the run ends after stretch.end");
        if (i && r->start < r[-1].start + r[-1].duration)
            return refuse_element(err, "counted", "start", i, "is within the run before");
    }
    return 0;
}

static int check_intervals(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    if (check_columns(&intervals_group, batch->intervals, batch->interval_count, err) < 0)
        return -1;
    for (size_t i = 0; i < batch->interval_count; i++) {
        const pp_wire_interval *v = &batch->intervals[i];
        if (check_layer_phase(batch, ids, "intervals", i, v->layer, v->phase, err) < 0)
            return -1;
        /* An interval may have begun in an earlier batch, but it belongs to the one with its end.
         */
        int64_t end = v->start + v->duration;
        if (v->start > batch->capture.end)
            return refuse_element(err, "intervals", "start", i, "is after stretch.end");
        if (end < batch->capture.start || end > batch->capture.end)
            return refuse_element(err, "intervals", "duration", i,
                                  "the interval ends outside the capture");
        if (v->kernels > v->duration)
            return refuse_element(err, "intervals", "kernels", i, "is more than the duration");
    }
    return 0;
}

static int check_grid_span(const pp_wire_batch *batch, pp_error *err)
{
    const pp_wire_grid *grid = &batch->grid;
    if (check_fields(grid_fields, "grid", grid, err) < 0)
        return -1;
    if (grid->cell < PP_WIRE_CELL_MIN)
        return pp_error_field(err, "grid.cell", "must be at least %" PRId64 " ns",
                              PP_WIRE_CELL_MIN);
    if (grid->start < batch->capture.start - grid->cell || grid->start > batch->capture.end)
        return pp_error_field(err, "grid.start", "must be within the capture, or a cell before");
    return 0;
}

static int check_grid(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_grid *grid = &batch->grid;
    if (batch->interval_count)
        return pp_error_field(err, "grid", "a batch has either intervals or a grid");
    if (check_grid_span(batch, err) < 0 ||
        check_columns(&grid_group, grid->cells, grid->count, err) < 0)
        return -1;
    int64_t last = (batch->capture.end - grid->start) / grid->cell;
    for (size_t i = 0; i < grid->count; i++) {
        const pp_wire_cell *c = &grid->cells[i];
        if (check_layer_phase(batch, ids, "grid", i, c->layer, c->phase, err) < 0)
            return -1;
        if (c->cell > last)
            return refuse_element(err, "grid", "cells", i, "is after stretch.end");
        if (i && c->cell < c[-1].cell)
            return refuse_element(err, "grid", "cells", i, "must not decrease");
        if (c->busy > grid->cell)
            return refuse_element(err, "grid", "busy", i, "is more than the cell's length");
        if (c->kernels > grid->cell)
            return refuse_element(err, "grid", "kernels", i, "is more than the cell's length");
    }
    return 0;
}

static int check_sampling(const pp_wire_pm_sampling *s, pp_error *err)
{
    if (check_fields(sampling_fields, "fine.sampling", s, err) < 0)
        return -1;
    if (s->period < PP_WIRE_PERIOD_MIN)
        return pp_error_field(err, "fine.sampling.period", "must be at least %" PRId64 " ns",
                              PP_WIRE_PERIOD_MIN);
    if (s->chip && check_id(s->chip, PP_WIRE_MAX_VERSION, "fine.sampling.chip", err) < 0)
        return -1;
    if (s->failed > s->times)
        return pp_error_field(err, "fine.sampling.failed", "must be at most times");
    if (s->lag < -PP_WIRE_TIME_MAX || s->lag > PP_WIRE_TIME_MAX)
        return pp_error_field(err, "fine.sampling.lag", "must be within %" PRId64 " ns of 0",
                              PP_WIRE_TIME_MAX);
    return 0;
}

/* Of a group whose elements begin with the metric that they are of. */
static int64_t metric_at(const column_group *group, const void *elements, size_t i)
{
    int64_t metric;
    memcpy(&metric, (const char *)elements + i * group->stride, sizeof metric);
    return metric;
}

static int check_by_metric(const column_group *group, const void *elements, size_t count,
                           size_t sources, pp_error *err)
{
    if (check_columns(group, elements, count, err) < 0)
        return -1;
    for (size_t i = 1; i < count; i++)
        if (metric_at(group, elements, i) <= metric_at(group, elements, i - 1))
            return refuse_element(err, group->name, "metric", i,
                                  "must be greater than the one before");
    if (count > 0 && metric_at(group, elements, count - 1) >= (int64_t)sources)
        return refuse_element(err, group->name, "metric", count - 1, "has no source");
    return 0;
}

static int check_closures(const pp_wire_pm *pm, pp_error *err)
{
    const size_t sources = pm->sources.count;
    return check_by_metric(&closure_group, pm->closures, pm->closure_count, sources, err) < 0 ||
                   check_by_metric(&quality_group, pm->qualities, pm->quality_count, sources, err) <
                       0
               ? -1
               : 0;
}

/* A value without its source's name would be nobody's. */
static int check_sourced(const pp_wire_pm *pm, pp_error *err)
{
    for (size_t i = 0; i < pm->count; i++)
        for (size_t m = pm->sources.count; m < PP_WIRE_PM_METRICS; m++)
            if (pm->rows[i].mean[m] >= 0)
                return refuse_element(err, pm_group.name, pm_columns[PM_VALUES + 2 * m].name, i,
                                      "has no source");
    return 0;
}

static int check_pm(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_pm *pm = &batch->pm;
    if (pm->why && (!*pm->why || pm->gpu))
        return pp_error_field(err, "fine.why", "must not be empty, nor beside values");
    if (pm->why)
        return check_fields(why_fields, "fine", pm, err);
    if (!pm->gpu)
        return 0;
    if (check_id(pm->gpu, PP_WIRE_MAX_GPU, "fine.gpu", err) < 0)
        return -1;
    if (pm->sources.count < PP_WIRE_PM_LEAST)
        return pp_error_field(err, "fine.sources", "must have %d items or more", PP_WIRE_PM_LEAST);
    for (size_t i = 0; i < pm->sources.count; i++)
        if (*pm->sources.items[i] &&
            check_id(pm->sources.items[i], PP_WIRE_MAX_GPU, "fine.sources", err) < 0)
            return -1;
    if (check_columns(&pm_group, pm->rows, pm->count, err) < 0 ||
        (pm->sampling.period && check_sampling(&pm->sampling, err) < 0) ||
        check_closures(pm, err) < 0 || check_sourced(pm, err) < 0)
        return -1;
    for (size_t i = 0; i < pm->count; i++)
        if (check_layer_phase(batch, ids, "fine", i, pm->rows[i].layer, pm->rows[i].phase, err) < 0)
            return -1;
    return 0;
}

static bool is_plain_text(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < ' ' || *c == 0x7f)
            return false;
    return true;
}

static int check_texts(const char *group, const char *name, const pp_strings *texts, int most,
                       pp_error *err)
{
    for (size_t i = 0; i < texts->count; i++)
        if (strlen(texts->items[i]) > (size_t)most || !is_plain_text(texts->items[i]))
            return refuse_element(err, group, name, i,
                                  "must be at most %d bytes of text without control characters",
                                  most);
    return 0;
}

static int check_waits(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_waits *waits = &batch->waits;
    if (check_fields(wait_fields, "waits", waits, err) < 0)
        return -1;
    if (waits->calls.count > PP_WIRE_MAX_CALLS)
        return refuse_large(err, "waits.calls", waits->calls.count, PP_WIRE_MAX_CALLS);
    if (waits->files.count > PP_WIRE_MAX_FILES)
        return refuse_large(err, "waits.files", waits->files.count, PP_WIRE_MAX_FILES);
    if (check_texts("waits", "calls", &waits->calls, PP_WIRE_MAX_VERSION, err) < 0 ||
        check_texts("waits", "files", &waits->files, PP_WIRE_MAX_TEXT, err) < 0 ||
        check_columns(&waits_group, waits->rows, waits->count, err) < 0)
        return -1;
    for (size_t i = 0; i < waits->count; i++) {
        const pp_wire_wait *w = &waits->rows[i];
        if ((size_t)w->call >= waits->calls.count)
            return refuse_element(err, "waits", "call", i, "there is no such call");
        if ((size_t)w->file >= waits->files.count)
            return refuse_element(err, "waits", "file", i, "there is no such file");
        if (w->steps > w->count)
            return refuse_element(err, "waits", "inSteps", i, "is more than the count");
        if (check_layer_phase(batch, ids, "waits", i, w->layer, w->phase, err) < 0)
            return -1;
    }
    return 0;
}

static int check_copies(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_copies *copies = &batch->copies;
    if (check_fields(copy_fields, "copies", copies, err) < 0 ||
        check_columns(&copies_group, copies->rows, copies->count, err) < 0)
        return -1;
    for (size_t i = 0; i < copies->count; i++) {
        const pp_wire_copy *c = &copies->rows[i];
        if (c->memory != PP_WIRE_MEMORY_UNKNOWN && c->type != PP_WIRE_H2D && c->type != PP_WIRE_D2H)
            return refuse_element(err, "copies", "memory", i, "the host's has no part in it");
        if (check_layer_phase(batch, ids, "copies", i, c->layer, c->phase, err) < 0)
            return -1;
    }
    return 0;
}

static int check_memory(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_memory *memory = &batch->memory;
    if (check_fields(memory_fields, "memory", memory, err) < 0 ||
        check_columns(&memory_group, memory->rows, memory->count, err) < 0)
        return -1;
    for (size_t i = 0; i < memory->count; i++) {
        const pp_wire_memory_row *m = &memory->rows[i];
        if (check_layer_phase(batch, ids, "memory", i, m->layer, m->phase, err) < 0)
            return -1;
    }
    return 0;
}

static int check_kernels(const pp_wire_batch *batch, const int64_t *ids, pp_error *err)
{
    const pp_wire_kernels *kernels = &batch->kernels;
    if (check_fields(kernel_fields, "kernels", kernels, err) < 0)
        return -1;
    if (kernels->steps > 0 && kernels->count == 0)
        return pp_error_field(err, "kernels.steps", "must be of rows");
    if (kernels->names.count > PP_WIRE_MAX_NAMES)
        return refuse_large(err, "kernels.names", kernels->names.count, PP_WIRE_MAX_NAMES);
    if (check_texts("kernels", "names", &kernels->names, PP_WIRE_MAX_NAME, err) < 0)
        return -1;
    if (check_columns(&kernels_group, kernels->rows, kernels->count, err) < 0)
        return -1;
    for (size_t i = 0; i < kernels->count; i++) {
        const pp_wire_kernel *k = &kernels->rows[i];
        if ((size_t)k->name >= kernels->names.count)
            return refuse_element(err, "kernels", "name", i, "there is no such name");
        if (check_layer_phase(batch, ids, "kernels", i, k->layer, k->phase, err) < 0)
            return -1;
    }
    return 0;
}

static int check_batch(const pp_wire_batch *batch, pp_error *err)
{
    if (check_id(batch->session, PP_WIRE_MAX_ID, "session", err) < 0 ||
        check_id(batch->instance, PP_WIRE_MAX_ID, "instance", err) < 0 ||
        check_fields(batch_fields, "", batch, err) < 0 || check_process(&batch->process, err) < 0 ||
        check_capture(&batch->capture, err) < 0 ||
        check_fields(cost_fields, "cost", &batch->cost, err) < 0 ||
        check_fields(left_out_fields, "leftOut", &batch->left_out, err) < 0)
        return -1;
    PP_CLEANUP_FREE int64_t *ids = NULL;
    if (check_layers(batch, &ids, err) < 0 || check_steps(batch, err) < 0 ||
        check_runs(batch, err) < 0 || check_kernels(batch, ids, err) < 0 ||
        check_waits(batch, ids, err) < 0 || check_copies(batch, ids, err) < 0 ||
        check_memory(batch, ids, err) < 0 || check_pm(batch, ids, err) < 0)
        return -1;
    return batch->grid.cell ? check_grid(batch, ids, err) : check_intervals(batch, ids, err);
}

/* ---- decoding ----------------------------------------------------------------------------------
 */

static void set_left_out(const column_group *group, const column *c, char *elements, size_t count)
{
    int64_t value;
    (void)left_out(c, &value);
    for (size_t i = 0; i < count; i++)
        set_value(c, elements + i * group->stride, value);
}

/** One column of the text into the elements; undoes the delta coding without overflow. */
static int decode_column(const json_t *array, const column_group *group, const column *c,
                         char *elements, pp_error *err)
{
    int64_t before = 0;
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)array, i, item)
    {
        if (!json_is_integer(item))
            return refuse_element(err, group->name, c->name, i, "must be an integer");
        int64_t value = json_integer_value(item);
        if (c->kind == DELTA && __builtin_add_overflow(before, value, &value))
            return refuse_element(err, group->name, c->name, i, "the sum overflows");
        if (value < c->min || value > c->max)
            return refuse_element(err, group->name, c->name, i,
                                  "is %" PRId64 ", must be %" PRId64 " to %" PRId64, value, c->min,
                                  c->max);
        before = value;
        set_value(c, elements + i * group->stride, value);
    }
    return 0;
}

/** All columns of a group: present but for UNKNOWN ones, of equal length, within the limit. */
static int check_shape(const json_t *object, const column_group *group, size_t *ret_count,
                       pp_error *err)
{
    size_t count = 0;
    if (!json_is_object(object))
        return pp_error_field(err, group->name, object ? "must be an object" : "is required");
    for (const column *c = group->columns; c->name; c++) {
        char at[64];
        (void)snprintf(at, sizeof at, "%s.%s", group->name, c->name);
        const json_t *array = json_object_get(object, c->name);
        int64_t value;
        if (!array && left_out(c, &value))
            continue;
        if (!json_is_array(array))
            return pp_error_field(err, at, array ? "must be a list" : "is required");
        size_t size = json_array_size(array);
        if (size > group->max)
            return refuse_large(err, at, size, group->max);
        if (c != group->columns && size != count)
            return pp_error_field(err, at, "has %zu items where %s has %zu", size,
                                  group->columns[0].name, count);
        count = size;
    }
    *ret_count = count;
    return 0;
}

static int decode_columns(const json_t *object, const column_group *group, void **ret_elements,
                          size_t *ret_count, pp_error *err)
{
    size_t count = 0;
    if (check_shape(object, group, &count, err) < 0)
        return -1;
    PP_CLEANUP_FREE char *elements = calloc(count + 1, group->stride);
    if (!elements)
        return pp_error_nomem(err);
    for (const column *c = group->columns; c->name; c++) {
        const json_t *array = json_object_get(object, c->name);
        if (!array)
            set_left_out(group, c, elements, count);
        else if (decode_column(array, group, c, elements, err) < 0)
            return -1;
    }
    *ret_elements = PP_TAKE(elements);
    *ret_count = count;
    return 0;
}

static int decode_layers(const json_t *array, pp_wire_batch *batch, pp_error *err)
{
    if (!json_is_array(array))
        return pp_error_field(err, "layers", array ? "must be a list" : "is required");
    size_t count = json_array_size(array);
    if (count > PP_WIRE_MAX_LAYERS)
        return refuse_large(err, "layers", count, PP_WIRE_MAX_LAYERS);
    batch->layers = calloc(count + 1, sizeof *batch->layers);
    if (!batch->layers)
        return pp_error_nomem(err);
    batch->layer_count = count;
    for (size_t i = 0; i < count; i++) {
        char at[64];
        (void)snprintf(at, sizeof at, "layers[%zu]", i);
        if (pp_json_decode(json_array_get(array, i), layer_fields, false, at, &batch->layers[i],
                           err) < 0)
            return -1;
    }
    return 0;
}

static int decode_activity(const json_t *object, pp_wire_batch *batch, pp_error *err)
{
    const json_t *intervals = json_object_get(object, "intervals");
    const json_t *grid = json_object_get(object, "grid");
    if (intervals && grid)
        return pp_error_field(err, "grid", "a batch has either intervals or a grid");
    void *elements = NULL;
    if (!grid) {
        if (decode_columns(intervals, &intervals_group, &elements, &batch->interval_count, err) < 0)
            return -1;
        batch->intervals = elements;
        return 0;
    }
    if (pp_json_decode(grid, grid_fields, false, "grid", &batch->grid, err) < 0)
        return -1;
    if (batch->grid.cell < PP_WIRE_CELL_MIN) /* 0 would read as "no grid" further on */
        return pp_error_field(err, "grid.cell", "must be at least %" PRId64 " ns",
                              PP_WIRE_CELL_MIN);
    if (decode_columns(grid, &grid_group, &elements, &batch->grid.count, err) < 0)
        return -1;
    batch->grid.cells = elements;
    return 0;
}

/* Absent where there are none, or the agent is of an earlier release. */
static int decode_runs(const json_t *object, pp_wire_batch *batch, pp_error *err)
{
    void *runs = NULL;
    const json_t *counted = json_object_get(object, "counted");
    if (counted && decode_columns(counted, &runs_group, &runs, &batch->run_count, err) < 0)
        return -1;
    batch->runs = runs;
    return 0;
}

/* Absent where none are recorded, or the agent is of an earlier release. */
static int decode_kernels(const json_t *object, pp_wire_kernels *kernels, pp_error *err)
{
    void *rows = NULL;
    const json_t *value = json_object_get(object, "kernels");
    if (value && (pp_json_decode(value, kernel_fields, false, "kernels", kernels, err) < 0 ||
                  decode_columns(value, &kernels_group, &rows, &kernels->count, err) < 0))
        return -1;
    kernels->rows = rows;
    return 0;
}

/* Absent where there are none, or the agent is of an earlier release. */
static int decode_waits(const json_t *object, pp_wire_waits *waits, pp_error *err)
{
    void *rows = NULL;
    const json_t *value = json_object_get(object, "waits");
    if (value && (pp_json_decode(value, wait_fields, false, "waits", waits, err) < 0 ||
                  decode_columns(value, &waits_group, &rows, &waits->count, err) < 0))
        return -1;
    waits->rows = rows;
    return 0;
}

/* Absent where there are none, or the agent is of an earlier release. */
static int decode_copies(const json_t *object, pp_wire_copies *copies, pp_error *err)
{
    void *rows = NULL;
    const json_t *value = json_object_get(object, "copies");
    if (value && (pp_json_decode(value, copy_fields, false, "copies", copies, err) < 0 ||
                  decode_columns(value, &copies_group, &rows, &copies->count, err) < 0))
        return -1;
    copies->rows = rows;
    return 0;
}

/* Absent where it is not known, or the agent is of an earlier release. */
static int decode_memory(const json_t *object, pp_wire_memory *memory, pp_error *err)
{
    void *rows = NULL;
    const json_t *value = json_object_get(object, "memory");
    if (value && (pp_json_decode(value, memory_fields, false, "memory", memory, err) < 0 ||
                  decode_columns(value, &memory_group, &rows, &memory->count, err) < 0))
        return -1;
    memory->rows = rows;
    return 0;
}

/* Both are absent where the agent does not know them, or is of an earlier release. */
static int decode_sampling(const json_t *object, pp_wire_pm *pm, pp_error *err)
{
    const json_t *sampling = json_object_get(object, "sampling");
    const json_t *closure = json_object_get(object, "closure");
    const json_t *quality = json_object_get(object, "quality");
    void *closures = NULL, *qualities = NULL;
    if (sampling &&
        (pp_json_decode(sampling, sampling_fields, false, "fine.sampling", &pm->sampling, err) <
             0 ||
         pp_json_decode(sampling, lag_fields, false, "fine.sampling", &pm->sampling, err) < 0 ||
         check_sampling(&pm->sampling, err) < 0)) /* a period of 0 would read as "none" later */
        return -1;
    if (closure && decode_columns(closure, &closure_group, &closures, &pm->closure_count, err) < 0)
        return -1;
    pm->closures = closures;
    if (quality && decode_columns(quality, &quality_group, &qualities, &pm->quality_count, err) < 0)
        return -1;
    pm->qualities = qualities;
    return 0;
}

static int decode_pm(const json_t *object, pp_wire_pm *pm, pp_error *err)
{
    const json_t *value = json_object_get(object, "fine");
    void *rows = NULL;
    if (!value)
        return 0;
    if (json_object_get(value, "why"))
        return pp_json_decode(value, why_fields, false, "fine", pm, err);
    if (pp_json_decode(value, pm_fields, false, "fine", pm, err) < 0 ||
        decode_columns(value, &pm_group, &rows, &pm->count, err) < 0)
        return -1;
    pm->rows = rows;
    return decode_sampling(value, pm, err);
}

/** The texts that may be absent are empty rather than NULL. */
static int default_texts(pp_wire_process *process, pp_error *err)
{
    char **texts[] = {&process->python, &process->torch,   &process->model,    &process->digest,
                      &process->batch,  &process->kernels, &process->isolated, &process->gpu_model};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = strdup("");
        if (!*texts[i])
            return pp_error_nomem(err);
    }
    return 0;
}

static int decode_cost(const json_t *object, pp_wire_cost *cost, pp_error *err)
{
    const json_t *value = json_object_get(object, "cost");
    return value ? pp_json_decode(value, cost_fields, false, "cost", cost, err) : 0;
}

static int decode_left_out(const json_t *object, pp_wire_left_out *left_out, pp_error *err)
{
    const json_t *value = json_object_get(object, "leftOut");
    return value ? pp_json_decode(value, left_out_fields, false, "leftOut", left_out, err) : 0;
}

bool pp_wire_chip_is_known(const pp_chip *chip)
{
    pp_error err = {0};
    return chip->capability > 0 && check_fields(chip_fields, "process.chip", chip, &err) == 0;
}

static int decode_chip(const json_t *process, pp_chip *chip, pp_error *err)
{
    const json_t *object = json_object_get(process, "chip");
    if (!object)
        return 0;
    if (pp_json_decode(object, chip_fields, false, "process.chip", chip, err) < 0)
        return -1;
    return check_fields(chip_fields, "process.chip", chip, err);
}

static int decode_into(const json_t *object, pp_wire_batch *batch, pp_error *err)
{
    void *steps = NULL;
    if (default_texts(&batch->process, err) < 0 ||
        pp_json_decode(object, batch_fields, false, "", batch, err) < 0 ||
        pp_json_decode(json_object_get(object, "process"), process_fields, false, "process",
                       &batch->process, err) < 0 ||
        decode_chip(json_object_get(object, "process"), &batch->process.chip, err) < 0 ||
        pp_json_decode(json_object_get(object, "stretch"), capture_fields, false, "stretch",
                       &batch->capture, err) < 0 ||
        decode_cost(object, &batch->cost, err) < 0 ||
        decode_left_out(object, &batch->left_out, err) < 0 ||
        decode_layers(json_object_get(object, "layers"), batch, err) < 0 ||
        decode_columns(json_object_get(object, "steps"), &steps_group, &steps, &batch->step_count,
                       err) < 0)
        return -1;
    batch->steps = steps;
    if (decode_runs(object, batch, err) < 0 || decode_activity(object, batch, err) < 0 ||
        decode_kernels(object, &batch->kernels, err) < 0 ||
        decode_waits(object, &batch->waits, err) < 0 ||
        decode_copies(object, &batch->copies, err) < 0 ||
        decode_memory(object, &batch->memory, err) < 0 || decode_pm(object, &batch->pm, err) < 0)
        return -1;
    return check_batch(batch, err);
}

int pp_wire_batch_decode(const json_t *object, pp_wire_batch **ret, pp_error *err)
{
    pp_wire_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return pp_error_nomem(err);
    if (decode_into(object, batch, err) < 0) {
        pp_wire_batch_free(batch);
        return -1;
    }
    *ret = batch;
    return 0;
}

bool pp_wire_is_pm_only(const pp_wire_batch *batch)
{
    return (batch->pm.gpu || batch->pm.why) && batch->step_count == 0 && batch->run_count == 0 &&
           batch->interval_count == 0 && batch->grid.count == 0 && batch->kernels.count == 0 &&
           batch->waits.count == 0 && batch->waits.steps == 0 && batch->copies.count == 0 &&
           batch->copies.steps == 0 && batch->memory.count == 0 && batch->memory.steps == 0;
}

bool pp_wire_has_order(const pp_wire_batch *batch)
{
    return !batch->grid.cell && !batch->capture.dwell;
}

static size_t bytes_of(const pp_strings *texts)
{
    size_t bytes = 0;
    for (size_t i = 0; i < texts->count; i++)
        bytes += sizeof(char *) + strlen(texts->items[i]) + 1;
    return bytes;
}

size_t pp_wire_batch_bytes(const pp_wire_batch *batch)
{
    size_t bytes = sizeof *batch + batch->layer_count * sizeof *batch->layers +
                   batch->step_count * sizeof *batch->steps +
                   batch->run_count * sizeof *batch->runs +
                   batch->interval_count * sizeof *batch->intervals +
                   batch->grid.count * sizeof *batch->grid.cells +
                   batch->kernels.count * sizeof *batch->kernels.rows +
                   batch->waits.count * sizeof *batch->waits.rows +
                   batch->copies.count * sizeof *batch->copies.rows +
                   batch->memory.count * sizeof *batch->memory.rows +
                   batch->pm.count * sizeof *batch->pm.rows + bytes_of(&batch->kernels.names) +
                   bytes_of(&batch->waits.calls) + bytes_of(&batch->waits.files);
    for (size_t i = 0; i < batch->layer_count; i++)
        bytes += strlen(batch->layers[i].name) + strlen(batch->layers[i].type) + 2;
    return bytes;
}

size_t pp_wire_count_containers(const char *text, size_t len)
{
    size_t count = 0;
    bool quoted = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted && text[i] == '\\')
            i++;
        else if (!quoted && (text[i] == '{' || text[i] == '['))
            count++;
    }
    return count;
}

void pp_wire_batch_free(pp_wire_batch *batch)
{
    if (!batch)
        return;
    pp_json_free_fields(batch_fields, batch);
    pp_json_free_fields(process_fields, &batch->process);
    for (size_t i = 0; i < batch->layer_count; i++)
        pp_json_free_fields(layer_fields, &batch->layers[i]);
    free(batch->layers);
    free(batch->steps);
    free(batch->runs);
    free(batch->intervals);
    free(batch->grid.cells);
    pp_json_free_fields(kernel_fields, &batch->kernels);
    free(batch->kernels.rows);
    pp_json_free_fields(wait_fields, &batch->waits);
    free(batch->waits.rows);
    free(batch->copies.rows);
    free(batch->memory.rows);
    pp_json_free_fields(why_fields, &batch->pm);
    pp_json_free_fields(pm_fields, &batch->pm);
    pp_json_free_fields(sampling_fields, &batch->pm.sampling);
    free(batch->pm.rows);
    free(batch->pm.closures);
    free(batch->pm.qualities);
    free(batch);
}

/* ---- encoding ----------------------------------------------------------------------------------
 */

static int append_text(pp_buf *out, const char *text, pp_error *err)
{
    return pp_buf_append(out, text, strlen(text), err);
}

/** A jansson value as text; takes the reference. */
static int append_json(pp_buf *out, json_t *value, pp_error *err)
{
    PP_CLEANUP_JSON json_t *owned = value;
    if (!owned) /* json_pack gives NULL for text that is not UTF-8, or without memory */
        return pp_error_set(err, PP_ERR_INVALID, "a text is not UTF-8");
    PP_CLEANUP_FREE char *text = json_dumps(owned, JSON_COMPACT | JSON_ENCODE_ANY);
    return text ? append_text(out, text, err) : pp_error_nomem(err);
}

static int append_column(pp_buf *out, const column *c, const char *elements, size_t stride,
                         size_t count, pp_error *err)
{
    int64_t before = 0;
    if (pp_buf_printf(out, err, "\"%s\":[", c->name) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        int64_t value = get_value(c, elements + i * stride);
        char text[24];
        int n = snprintf(text, sizeof text, "%s%" PRId64, i ? "," : "", value - before);
        if (pp_buf_append(out, text, (size_t)n, err) < 0)
            return -1;
        if (c->kind == DELTA)
            before = value;
    }
    return append_text(out, "]", err);
}

static bool is_told(const column *c, const char *elements, size_t stride, size_t count)
{
    int64_t value;
    if (!left_out(c, &value))
        return true;
    for (size_t i = 0; i < count; i++) {
        if (get_value(c, elements + i * stride) != value)
            return true;
    }
    return false;
}

static int append_columns(pp_buf *out, const column_group *group, const void *elements,
                          size_t count, pp_error *err)
{
    for (const column *c = group->columns; c->name; c++) {
        if (!is_told(c, elements, group->stride, count))
            continue;
        if ((c != group->columns && append_text(out, ",", err) < 0) ||
            append_column(out, c, elements, group->stride, count, err) < 0)
            return -1;
    }
    return append_text(out, "}", err);
}

static json_t *strings_json(const pp_strings *strings)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < strings->count; i++)
        (void)json_array_append_new(array, json_string(strings->items[i]));
    return array;
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

/* Absent where it is empty. */
static const char *text_or_null(const char *text)
{
    return text && *text ? text : NULL;
}

static json_t *chip_json(const pp_chip *c)
{
    return pp_wire_chip_is_known(c)
               ? json_pack("{sIsIsIsIsI}", "capability", (json_int_t)c->capability,
                           "multiprocessors", (json_int_t)c->multiprocessors, "smKHz",
                           (json_int_t)c->sm_khz, "memoryKHz", (json_int_t)c->memory_khz,
                           "memoryBits", (json_int_t)c->memory_bits)
               : NULL;
}

static json_t *process_json(const pp_wire_process *p)
{
    return json_pack("{sIsIsIsossssssssssss*ss*ss*ss*ss*so*so*}", "id", (json_int_t)p->id, "rank",
                     (json_int_t)p->rank, "worldSize", (json_int_t)p->world_size, "gpus",
                     strings_json(&p->gpus), "hostname", p->hostname, "python",
                     text_or_empty(p->python), "torch", text_or_empty(p->torch), "clock", p->clock,
                     "model", text_or_empty(p->model), "modelDigest", text_or_null(p->digest),
                     "batch", text_or_null(p->batch), "kernels", text_or_null(p->kernels),
                     "isolated", text_or_null(p->isolated), "gpuModel", text_or_null(p->gpu_model),
                     "chip", chip_json(&p->chip), "furtherGpu", p->further ? json_true() : NULL);
}

/* Absent where it is 0: most agents have none. */
static int append_number(pp_buf *out, const char *name, int64_t value, pp_error *err)
{
    return value ? pp_buf_printf(out, err, ",\"%s\":%" PRId64, name, value) : 0;
}

static int append_capture(pp_buf *out, const pp_wire_capture *s, pp_error *err)
{
    if (pp_buf_printf(out, err,
                      ",\"stretch\":{\"id\":%" PRId64 ",\"start\":%" PRId64 ",\"end\":%" PRId64
                      ",\"last\":%s",
                      s->id, s->start, s->end, s->last ? "true" : "false") < 0 ||
        append_number(out, "dwell", s->dwell, err) < 0 ||
        append_number(out, "monotonic", s->monotonic, err) < 0)
        return -1;
    return append_text(out, s->background ? ",\"background\":true}" : "}", err);
}

static int append_cost(pp_buf *out, const pp_wire_cost *c, pp_error *err)
{
    if (pp_buf_printf(out, err, ",\"cost\":{\"nanoseconds\":%" PRId64 ",\"marks\":%" PRId64,
                      c->nanoseconds, c->marks) < 0 ||
        append_number(out, "paused", c->paused, err) < 0)
        return -1;
    return append_text(out, "}", err);
}

/* Absent where nothing is. */
static int append_left_out(pp_buf *out, const pp_wire_left_out *l, pp_error *err)
{
    if (!pp_wire_leaves_out(l))
        return 0;
    return pp_buf_printf(
        out, err, ",\"leftOut\":{\"steps\":%" PRId64 ",\"lost\":%" PRId64 ",\"late\":%" PRId64 "}",
        l->steps, l->lost, l->late);
}

static int append_head(pp_buf *out, const pp_wire_batch *b, pp_error *err)
{
    if (pp_buf_printf(out, err,
                      "{\"type\":\"batch\",\"session\":\"%s\",\"instance\":\"%s\",\"seq\":%" PRId64
                      ",\"process\":",
                      b->session, b->instance, b->seq) < 0 ||
        append_json(out, process_json(&b->process), err) < 0 ||
        append_capture(out, &b->capture, err) < 0 ||
        pp_buf_printf(out, err, ",\"dropped\":%" PRId64, b->dropped) < 0 ||
        append_left_out(out, &b->left_out, err) < 0)
        return -1;
    return append_cost(out, &b->cost, err);
}

/* Reasons are there where there are any. */
static json_t *layer_json(const pp_wire_layer *l)
{
    json_t *object = json_pack("{sIsssssI}", "id", (json_int_t)l->id, "name", l->name, "type",
                               l->type, "parameters", (json_int_t)l->parameters);
    if (object && l->forward_skip)
        (void)json_object_set_new(object, "forwardLeftOut", json_integer(l->forward_skip));
    if (object && l->backward_skip)
        (void)json_object_set_new(object, "backwardLeftOut", json_integer(l->backward_skip));
    if (object && l->whole)
        (void)json_object_set_new(object, "whole", json_integer(l->whole));
    return object;
}

static int append_layers(pp_buf *out, const pp_wire_batch *b, pp_error *err)
{
    if (append_text(out, ",\"layers\":[", err) < 0)
        return -1;
    for (size_t i = 0; i < b->layer_count; i++) {
        const pp_wire_layer *l = &b->layers[i];
        if ((i && append_text(out, ",", err) < 0) || append_json(out, layer_json(l), err) < 0)
            return -1;
    }
    return append_text(out, "]", err);
}

static int append_activity(pp_buf *out, const pp_wire_batch *b, pp_error *err)
{
    if (!b->grid.cell) {
        if (append_text(out, ",\"intervals\":{", err) < 0)
            return -1;
        return append_columns(out, &intervals_group, b->intervals, b->interval_count, err);
    }
    if (pp_buf_printf(out, err, ",\"grid\":{\"start\":%" PRId64 ",\"cell\":%" PRId64 ",",
                      b->grid.start, b->grid.cell) < 0)
        return -1;
    return append_columns(out, &grid_group, b->grid.cells, b->grid.count, err);
}

static int append_runs(pp_buf *out, const pp_wire_batch *b, pp_error *err)
{
    if (b->run_count == 0)
        return 0;
    return append_text(out, ",\"counted\":{", err) < 0
               ? -1
               : append_columns(out, &runs_group, b->runs, b->run_count, err);
}

static int append_kernels(pp_buf *out, const pp_wire_kernels *kernels, pp_error *err)
{
    if (kernels->count == 0)
        return 0;
    if (pp_buf_printf(out, err, ",\"kernels\":{\"steps\":%" PRId64 ",\"names\":", kernels->steps) <
            0 ||
        append_json(out, strings_json(&kernels->names), err) < 0 || append_text(out, ",", err) < 0)
        return -1;
    return append_columns(out, &kernels_group, kernels->rows, kernels->count, err);
}

static int append_waits(pp_buf *out, const pp_wire_waits *waits, pp_error *err)
{
    if (waits->count == 0 && waits->steps == 0)
        return 0;
    if (pp_buf_printf(out, err, ",\"waits\":{\"steps\":%" PRId64 ",\"calls\":", waits->steps) < 0 ||
        append_json(out, strings_json(&waits->calls), err) < 0 ||
        append_text(out, ",\"files\":", err) < 0 ||
        append_json(out, strings_json(&waits->files), err) < 0 || append_text(out, ",", err) < 0)
        return -1;
    return append_columns(out, &waits_group, waits->rows, waits->count, err);
}

static int append_copies(pp_buf *out, const pp_wire_copies *copies, pp_error *err)
{
    if (copies->count == 0 && copies->steps == 0)
        return 0;
    if (pp_buf_printf(out, err, ",\"copies\":{\"steps\":%" PRId64 ",", copies->steps) < 0)
        return -1;
    return append_columns(out, &copies_group, copies->rows, copies->count, err);
}

static int append_memory(pp_buf *out, const pp_wire_memory *memory, pp_error *err)
{
    if (memory->count == 0 && memory->steps == 0)
        return 0;
    if (pp_buf_printf(out, err, ",\"memory\":{\"steps\":%" PRId64 ",", memory->steps) < 0)
        return -1;
    return append_columns(out, &memory_group, memory->rows, memory->count, err);
}

static json_t *sampling_json(const pp_wire_pm_sampling *s)
{
    return json_pack("{ss*sIsIsIsIsIsIsIsI}", "chip", s->chip, "period", (json_int_t)s->period,
                     "times", (json_int_t)s->times, "failed", (json_int_t)s->failed, "sampled",
                     (json_int_t)s->sampled, "samples", (json_int_t)s->samples, "lag",
                     (json_int_t)s->lag, "lagError", (json_int_t)s->lag_error, "samplerCpu",
                     (json_int_t)s->sampler_cpu);
}

/* Nothing where there are none; with a comma behind it. */
static int append_by_metric(pp_buf *out, const column_group *group, const char *key,
                            const void *elements, size_t count, pp_error *err)
{
    if (count == 0)
        return 0;
    return pp_buf_printf(out, err, "\"%s\":{", key) < 0 ||
                   append_columns(out, group, elements, count, err) < 0 ||
                   append_text(out, ",", err) < 0
               ? -1
               : 0;
}

static int append_sampling(pp_buf *out, const pp_wire_pm *pm, pp_error *err)
{
    if (pm->sampling.period &&
        (append_text(out, "\"sampling\":", err) < 0 ||
         append_json(out, sampling_json(&pm->sampling), err) < 0 || append_text(out, ",", err) < 0))
        return -1;
    return append_by_metric(out, &closure_group, "closure", pm->closures, pm->closure_count, err) <
                       0 ||
                   append_by_metric(out, &quality_group, "quality", pm->qualities,
                                    pm->quality_count, err) < 0
               ? -1
               : 0;
}

static int append_pm(pp_buf *out, const pp_wire_pm *pm, pp_error *err)
{
    if (pm->why && append_text(out, ",\"fine\":", err) < 0)
        return -1;
    if (pm->why)
        return append_json(out, json_pack("{ss}", "why", pm->why), err);
    if (!pm->gpu)
        return 0;
    if (pp_buf_printf(out, err, ",\"fine\":{\"gpu\":\"%s\",\"sources\":", pm->gpu) < 0 ||
        append_json(out, strings_json(&pm->sources), err) < 0 || append_text(out, ",", err) < 0 ||
        append_sampling(out, pm, err) < 0)
        return -1;
    return append_columns(out, &pm_group, pm->rows, pm->count, err);
}

static int append_batch(pp_buf *out, const pp_wire_batch *b, pp_error *err)
{
    if (append_head(out, b, err) < 0 || append_layers(out, b, err) < 0 ||
        append_text(out, ",\"steps\":{", err) < 0 ||
        append_columns(out, &steps_group, b->steps, b->step_count, err) < 0 ||
        append_runs(out, b, err) < 0 || append_activity(out, b, err) < 0 ||
        append_kernels(out, &b->kernels, err) < 0 || append_waits(out, &b->waits, err) < 0 ||
        append_copies(out, &b->copies, err) < 0 || append_memory(out, &b->memory, err) < 0 ||
        append_pm(out, &b->pm, err) < 0)
        return -1;
    return append_text(out, "}", err);
}

/** Back to what out held before a message was begun. */
static int rewind_to(pp_buf *out, size_t len)
{
    out->len = len;
    if (out->data)
        out->data[len] = '\0';
    return -1;
}

int pp_wire_batch_encode(const pp_wire_batch *batch, pp_buf *out, pp_error *err)
{
    size_t before = out->len;
    if (check_batch(batch, err) < 0)
        return -1;
    return append_batch(out, batch, err) < 0 ? rewind_to(out, before) : 0;
}

/* ---- onto another clock ------------------------------------------------------------------------
 */

static bool may_shift(int64_t stamp, int64_t by)
{
    int64_t to;
    return !__builtin_sub_overflow(stamp, by, &to) && to >= PP_WIRE_TIME_MIN &&
           to <= PP_WIRE_TIME_MAX;
}

static bool may_shift_all(const pp_wire_batch *b, int64_t by)
{
    bool may = may_shift(b->capture.start, by) && may_shift(b->capture.end, by) &&
               (!b->grid.cell || may_shift(b->grid.start, by));
    for (size_t i = 0; i < b->step_count && may; i++)
        may = may_shift(b->steps[i].start, by);
    for (size_t i = 0; i < b->run_count && may; i++)
        may = may_shift(b->runs[i].start, by);
    for (size_t i = 0; i < b->interval_count && may; i++)
        may = may_shift(b->intervals[i].start, by);
    return may;
}

int pp_wire_batch_shift(pp_wire_batch *b, int64_t by_ns, pp_error *err)
{
    if (by_ns == 0)
        return 0;
    if (!may_shift_all(b, by_ns))
        return pp_error_field(err, "stretch.start", "would leave the years 2000 to 2099");
    b->capture.start -= by_ns;
    b->capture.end -= by_ns;
    if (b->grid.cell)
        b->grid.start -= by_ns;
    for (size_t i = 0; i < b->step_count; i++)
        b->steps[i].start -= by_ns;
    for (size_t i = 0; i < b->run_count; i++)
        b->runs[i].start -= by_ns;
    for (size_t i = 0; i < b->interval_count; i++)
        b->intervals[i].start -= by_ns;
    return 0;
}

/* ---- the small messages ------------------------------------------------------------------------
 */

static const char *const type_names[] = {
    [PP_WIRE_BATCH] = "batch", [PP_WIRE_BYE] = "bye",         [PP_WIRE_WELCOME] = "welcome",
    [PP_WIRE_ACK] = "ack",     [PP_WIRE_REFUSED] = "refused", [PP_WIRE_LEAVE] = "leave",
    [PP_WIRE_TIME] = "time",   [PP_WIRE_HOOK] = "hook",
};

int pp_wire_type_of(const json_t *object, pp_wire_type *ret, pp_error *err)
{
    const char *name = json_string_value(json_object_get(object, "type"));
    if (!name)
        return pp_error_field(err, "type", "is required");
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (strcmp(name, type_names[i]) == 0) {
            *ret = (pp_wire_type)i;
            return 0;
        }
    }
    return pp_error_field(err, "type", "is not a known type");
}

/** Appends a message, leaving out untouched when it does not fit; takes the reference. */
static int append_message(pp_buf *out, json_t *message, pp_error *err)
{
    size_t before = out->len;
    return append_json(out, message, err) < 0 ? rewind_to(out, before) : 0;
}

int pp_wire_bye_encode(const pp_wire_bye *bye, pp_buf *out, pp_error *err)
{
    return append_message(out,
                          json_pack("{ssssssss}", "type", "bye", "session", bye->session,
                                    "instance", bye->instance, "reason", bye->reason),
                          err);
}

static const char *optional_id(const char *id)
{
    return *id ? id : NULL;
}

/* A new reference; NULL where it is 0. */
static json_t *optional_number(int64_t value)
{
    return value ? json_integer(value) : NULL;
}

int pp_wire_welcome_encode(const pp_wire_welcome *welcome, pp_buf *out, pp_error *err)
{
    return append_message(out,
                          json_pack("{sss:s*sbs:O*s:o*s:o*}", "type", "welcome", "session",
                                    optional_id(welcome->session), "sampling",
                                    (int)welcome->sampling, "settings", welcome->settings, "time",
                                    optional_number(welcome->time), "hook",
                                    welcome->hook ? json_true() : NULL),
                          err);
}

int pp_wire_time_encode(const pp_wire_time *time, pp_buf *out, pp_error *err)
{
    return append_message(out,
                          json_pack("{sssIs:o*s:o*}", "type", "time", "id", (json_int_t)time->id,
                                    "realtime", optional_number(time->realtime), "monotonic",
                                    optional_number(time->monotonic)),
                          err);
}

int pp_wire_hook_encode(const pp_wire_hook *hook, pp_buf *out, pp_error *err)
{
    return append_message(out,
                          json_pack("{sssbsbs:s*s:s*}", "type", "hook", "loaded", (int)hook->loaded,
                                    "torch", (int)hook->torch, "libc", optional_id(hook->libc),
                                    "refusal", optional_id(hook->refusal)),
                          err);
}

int pp_wire_leave_encode(const pp_wire_leave *leave, pp_buf *out, pp_error *err)
{
    return append_message(
        out, json_pack("{sss:s*}", "type", "leave", "session", optional_id(leave->session)), err);
}

int pp_wire_ack_encode(const pp_wire_ack *ack, pp_buf *out, pp_error *err)
{
    return append_message(out,
                          json_pack("{sssssI}", "type", "ack", "instance", ack->instance, "seq",
                                    (json_int_t)ack->seq),
                          err);
}

int pp_wire_refused_encode(const pp_wire_refused *refused, pp_buf *out, pp_error *err)
{
    json_t *message =
        json_pack("{sssIssssso}", "type", "refused", "seq", (json_int_t)refused->seq, "code",
                  refused->code, "field", refused->field, "message",
                  pp_json_text(refused->message)); /* unanswered, the batch would come again */
    return append_message(out, message, err);
}

/** A required text of an object into a fixed array. */
static int copy_text(const json_t *object, const char *name, char *out, size_t size, pp_error *err)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    if (!text)
        return pp_error_field(err, name, value ? "must be a string" : "is required");
    if (strlen(text) >= size)
        return pp_error_field(err, name, "must be at most %zu bytes long", size - 1);
    (void)memcpy(out, text, strlen(text) + 1);
    return 0;
}

static int copy_id(const json_t *object, const char *name, char *out, size_t size, pp_error *err)
{
    if (copy_text(object, name, out, size, err) < 0)
        return -1;
    return check_id(out, size - 1, name, err);
}

static int copy_optional_id(const json_t *object, const char *name, char *out, size_t size,
                            pp_error *err)
{
    out[0] = '\0';
    return json_object_get(object, name) ? copy_id(object, name, out, size, err) : 0;
}

static int copy_number(const json_t *object, const char *name, int64_t min, int64_t max,
                       int64_t *ret, pp_error *err)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value))
        return pp_error_field(err, name, value ? "must be an integer" : "is required");
    if (json_integer_value(value) < min || json_integer_value(value) > max)
        return pp_error_field(err, name, "is out of range");
    *ret = json_integer_value(value);
    return 0;
}

static int copy_optional_number(const json_t *object, const char *name, int64_t min, int64_t max,
                                int64_t *ret, pp_error *err)
{
    *ret = 0;
    return json_object_get(object, name) ? copy_number(object, name, min, max, ret, err) : 0;
}

static int copy_bool(const json_t *object, const char *name, bool *ret, pp_error *err)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_boolean(value))
        return pp_error_field(err, name, value ? "must be true or false" : "is required");
    *ret = json_is_true(value);
    return 0;
}

static int copy_seq(const json_t *object, int64_t min, int64_t *ret, pp_error *err)
{
    return copy_number(object, "seq", min, PP_WIRE_MAX_COUNT, ret, err);
}

int pp_wire_bye_decode(const json_t *object, pp_wire_bye *ret, pp_error *err)
{
    pp_wire_bye bye = {0};
    if (copy_id(object, "session", bye.session, sizeof bye.session, err) < 0 ||
        copy_id(object, "instance", bye.instance, sizeof bye.instance, err) < 0 ||
        copy_text(object, "reason", bye.reason, sizeof bye.reason, err) < 0)
        return -1;
    *ret = bye;
    return 0;
}

int pp_wire_welcome_decode(const json_t *object, pp_wire_welcome *ret, pp_error *err)
{
    pp_wire_welcome welcome = {0};
    const json_t *sampling = json_object_get(object, "sampling");
    if (copy_optional_id(object, "session", welcome.session, sizeof welcome.session, err) < 0)
        return -1;
    if (!json_is_boolean(sampling))
        return pp_error_field(err, "sampling", "must be true or false");
    welcome.sampling = json_is_true(sampling);
    welcome.settings = json_object_get(object, "settings");
    if (welcome.settings && (!json_is_object(welcome.settings) || !*welcome.session))
        return pp_error_field(err, "settings", "must be an object, of the session that is named");
    if (copy_optional_number(object, "time", 1, PP_WIRE_MAX_COUNT, &welcome.time, err) < 0 ||
        (json_object_get(object, "hook") && copy_bool(object, "hook", &welcome.hook, err) < 0))
        return -1;
    *ret = welcome;
    return 0;
}

/* An answer's times are judged by who asked: whatever can be a time passes. */
int pp_wire_time_decode(const json_t *object, pp_wire_time *ret, pp_error *err)
{
    pp_wire_time time = {0};
    if (copy_number(object, "id", 1, PP_WIRE_MAX_COUNT, &time.id, err) < 0 ||
        copy_optional_number(object, "realtime", 1, INT64_MAX, &time.realtime, err) < 0 ||
        copy_optional_number(object, "monotonic", 1, INT64_MAX, &time.monotonic, err) < 0)
        return -1;
    *ret = time;
    return 0;
}

static int copy_optional_text(const json_t *object, const char *name, char *out, size_t size,
                              pp_error *err)
{
    const json_t *value = json_object_get(object, name);
    const char *text = value ? json_string_value(value) : "";
    if (!text || strlen(text) != json_string_length(value) || strlen(text) >= size ||
        !is_plain_text(text))
        return pp_error_field(err, name, "must be at most %zu bytes of text", size - 1);
    (void)snprintf(out, size, "%s", text);
    return 0;
}

int pp_wire_hook_decode(const json_t *object, pp_wire_hook *ret, pp_error *err)
{
    pp_wire_hook hook = {0};
    if (copy_bool(object, "loaded", &hook.loaded, err) < 0 ||
        copy_bool(object, "torch", &hook.torch, err) < 0 ||
        copy_optional_id(object, "libc", hook.libc, sizeof hook.libc, err) < 0 ||
        copy_optional_text(object, "refusal", hook.refusal, sizeof hook.refusal, err) < 0)
        return -1;
    *ret = hook;
    return 0;
}

int pp_wire_leave_decode(const json_t *object, pp_wire_leave *ret, pp_error *err)
{
    pp_wire_leave leave = {0};
    if (copy_optional_id(object, "session", leave.session, sizeof leave.session, err) < 0)
        return -1;
    *ret = leave;
    return 0;
}

int pp_wire_ack_decode(const json_t *object, pp_wire_ack *ret, pp_error *err)
{
    pp_wire_ack ack = {0};
    if (copy_id(object, "instance", ack.instance, sizeof ack.instance, err) < 0 ||
        copy_seq(object, 0, &ack.seq, err) < 0)
        return -1;
    *ret = ack;
    return 0;
}

int pp_wire_refused_decode(const json_t *object, pp_wire_refused *ret, pp_error *err)
{
    pp_wire_refused refused = {0};
    if (copy_seq(object, -1, &refused.seq, err) < 0 ||
        copy_text(object, "code", refused.code, sizeof refused.code, err) < 0 ||
        copy_text(object, "field", refused.field, sizeof refused.field, err) < 0 ||
        copy_text(object, "message", refused.message, sizeof refused.message, err) < 0)
        return -1;
    *ret = refused;
    return 0;
}

static const char clock_ahead[] = "clock ahead by ", clock_behind[] = "clock behind by ";

void pp_wire_clock_said(int64_t ahead_s, char *out, size_t size)
{
    const bool behind = ahead_s < 0;
    (void)snprintf(out, size, "%s%" PRId64 " s or more: by it the operator's certificate %s",
                   behind ? clock_behind : clock_ahead, behind ? -ahead_s : ahead_s,
                   behind ? "is not valid yet" : "has expired");
}

bool pp_wire_clock_read(const char *text, int64_t *ret_ahead_s)
{
    const bool behind = strncmp(text, clock_behind, strlen(clock_behind)) == 0;
    if (!behind && strncmp(text, clock_ahead, strlen(clock_ahead)) != 0)
        return false;
    const char *digits = text + strlen(behind ? clock_behind : clock_ahead);
    const size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 12 || strncmp(digits + n, " s or more", 10) != 0)
        return false;
    const int64_t seconds = strtoll(digits, NULL, 10);
    if (seconds > INT64_MAX / 1000000000) /* a pod's owner may have it say anything */
        return false;
    *ret_ahead_s = behind ? -seconds : seconds;
    return seconds > 0;
}

void pp_wire_refused_from_error(const pp_error *why, int64_t seq, pp_wire_refused *ret)
{
    *ret = (pp_wire_refused){.seq = seq};
    pp_copy_cut(ret->code, sizeof ret->code, pp_error_code_name(why->code));
    pp_copy_cut(ret->field, sizeof ret->field, why->field);
    pp_copy_cut(ret->message, sizeof ret->message, why->message);
}
