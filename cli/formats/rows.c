#include "cli/formats/rows.h"

#include "cli/formats/csv.h"
#include "common/cleanup.h"
#include "common/json.h"
#include "common/metric.h"
#include "common/number.h"
#include "common/time.h"

#include <math.h>
#include <string.h>

/* ---- columns ---- */

typedef enum type { TEXT, INTEGER, REAL, TIME } type;

/* What a row is made of. */
typedef struct source {
    const pp_training *training;
    const json_t *gpu, *item, *metric; /* metric NULL: the item has none */
    const char *metric_name;           /* as in results.json */
} source;

typedef enum place { OF_TRAINING, OF_GPU, OF_ITEM, OF_METRIC } place;

typedef struct column {
    const char *name;
    type type;
    place of;
    const char *key;                 /* in results.json; NULL: it is made */
    json_t *(*make)(const source *); /* a new reference, or NULL: not known */
} column;

/* What a session's results say of a row, or what import would call it. */
static json_t *text_of(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = pp_json_get_string(object, key, NULL);
    return json_string(text && *text ? text : otherwise);
}

static json_t *name_of_session(const source *s)
{
    return text_of(s->training->results, "session", s->training->name);
}

static json_t *namespace_of(const source *s)
{
    return text_of(s->training->results, "namespace", "local");
}

static json_t *kind_of_workload(const source *s)
{
    return text_of(s->gpu, "workloadKind", "Run");
}

static json_t *name_of_workload(const source *s)
{
    return text_of(s->gpu, "workloadName", s->training->name);
}

static json_t *name_of_pod(const source *s)
{
    return text_of(s->gpu, "pod", s->training->name);
}

/* Of what is no layer the kind says it all. */
static json_t *phase_of_item(const source *s)
{
    const char *kind = pp_json_get_string(s->item, "kind", NULL);
    const char *phase = pp_json_get_string(s->item, "phase", NULL);
    return json_string(kind && phase && strcmp(kind, "layer") == 0 ? phase : "");
}

/* Of what is no layer there is none. */
static json_t *type_of_item(const source *s)
{
    const char *class = pp_json_get_string(s->item, "type", NULL);
    return class && *class ? json_string(class) : NULL;
}

/* A column of whole ns in the database. */
static json_t *lag(const source *s)
{
    const json_t *ms = json_object_get(s->gpu, "lagMs");
    const double ns = json_is_number(ms) ? json_number_value(ms) * 1e6 : (double)NAN;
    return fabs(ns) < 9e18 ? json_integer((json_int_t)llround(ns)) : NULL;
}

/* To the digits that results.json has, since ms were ns before. */
static json_t *lag_error(const source *s)
{
    char text[PP_NUMBER_TEXT];
    const json_t *ms = json_object_get(s->gpu, "lagStandardErrorMs");
    if (!json_is_number(ms))
        return NULL;
    (void)snprintf(text, sizeof text, "%.12g", json_number_value(ms) * 1e6);
    return json_real(strtod(text, NULL));
}

static const pp_metric_info *info_of(const source *s)
{
    pp_metric metric;
    return pp_metric_from_name(s->metric_name, &metric) == 0 ? pp_metric_get(metric) : NULL;
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : NULL;
}

static json_t *metric_name(const source *s)
{
    const pp_metric_info *info = info_of(s);
    return json_string(info ? info->column : s->metric_name);
}

static json_t *unit(const source *s)
{
    const pp_metric_info *info = info_of(s);
    return text_or_null(info ? info->unit : NULL);
}

static json_t *amount_unit(const source *s)
{
    const pp_metric_info *info = info_of(s);
    return text_or_null(info ? info->per_step : NULL);
}

static json_t *peak_unit(const source *s)
{
    const pp_metric_info *info = info_of(s);
    return text_or_null(info ? pp_peak_unit(info->peak) : NULL);
}

/* To the digits that are left: of a busy share of 0.01, which is 1 less twelve digits, ten are. */
static json_t *busy_part(double mean, double busy)
{
    char text[PP_NUMBER_TEXT];
    const int lost = busy > 1e-11 && busy < 1 ? (int)ceil(-log10(busy)) : 0;
    (void)snprintf(text, sizeof text, "%.*g", busy > 1e-11 ? 12 - lost : 1, mean * busy);
    return json_real(strtod(text, NULL));
}

static json_t *elapsed_mean(const source *s)
{
    const char *basis = pp_json_get_string(s->metric, "basis", NULL);
    const json_t *idle = json_object_get(s->item, "idleShare");
    const json_t *mean = json_object_get(s->metric, "mean");
    if (!basis || !json_is_number(mean))
        return NULL;
    if (strcmp(basis, "elapsed") == 0)
        return json_real(json_number_value(mean));
    return strcmp(basis, "busy") == 0 && json_is_number(idle)
               ? busy_part(json_number_value(mean), 1 - json_number_value(idle))
               : NULL;
}

/* In the view's order, as the HTTP API has it too. */
static const column columns[] = {
    {"namespace", TEXT, OF_TRAINING, NULL, namespace_of},
    {"session", TEXT, OF_TRAINING, NULL, name_of_session},
    {"workload_kind", TEXT, OF_TRAINING, NULL, kind_of_workload},
    {"workload_name", TEXT, OF_TRAINING, NULL, name_of_workload},
    {"pod_name", TEXT, OF_TRAINING, NULL, name_of_pod},
    {"gpu_uuid", TEXT, OF_GPU, "gpu", NULL},
    {"kind", TEXT, OF_ITEM, "kind", NULL},
    {"layer", TEXT, OF_ITEM, "layer", NULL},
    {"phase", TEXT, OF_ITEM, NULL, phase_of_item},
    {"type", TEXT, OF_ITEM, NULL, type_of_item},
    {"parameters", INTEGER, OF_ITEM, "parameters", NULL},
    {"calls", INTEGER, OF_ITEM, "calls", NULL},
    {"total_ns", INTEGER, OF_ITEM, "totalNs", NULL},
    {"ms_per_step", REAL, OF_ITEM, "millisecondsPerStep", NULL},
    {"least_ms_per_step", REAL, OF_ITEM, "leastMillisecondsPerStep", NULL},
    {"share", REAL, OF_ITEM, "share", NULL},
    {"busy_ns", INTEGER, OF_ITEM, "busyNs", NULL},
    {"busy_ms_per_step", REAL, OF_ITEM, "busyMillisecondsPerStep", NULL},
    {"idle_share", REAL, OF_ITEM, "idleShare", NULL},
    {"busy_reason", TEXT, OF_ITEM, "busyReason", NULL},
    {"bound", TEXT, OF_ITEM, "bound", NULL},
    {"bound_likely", REAL, OF_ITEM, "boundLikely", NULL},
    {"memory_peak_bytes", INTEGER, OF_ITEM, "memoryPeakBytes", NULL},
    {"memory_live_bytes", INTEGER, OF_ITEM, "memoryLiveBytes", NULL},
    {"whole_reason", TEXT, OF_ITEM, "wholeReason", NULL},
    {"ms_per_step_stderr", REAL, OF_ITEM, "millisecondsPerStepStandardError", NULL},
    {"ms_per_step_freedom", REAL, OF_ITEM, "millisecondsPerStepFreedom", NULL},
    {"busy_ms_per_step_stderr", REAL, OF_ITEM, "busyMillisecondsPerStepStandardError", NULL},
    {"busy_ms_per_step_freedom", REAL, OF_ITEM, "busyMillisecondsPerStepFreedom", NULL},
    {"step_ns", INTEGER, OF_GPU, "stepNs", NULL},
    {"step_ms_stderr", REAL, OF_GPU, "stepMsStandardError", NULL},
    {"step_ms_freedom", REAL, OF_GPU, "stepMsFreedom", NULL},
    {"gap_ns", INTEGER, OF_GPU, "gapNs", NULL},
    {"counted_steps", INTEGER, OF_GPU, "countedSteps", NULL},
    {"counted_ms_per_step", REAL, OF_GPU, "countedStepMs", NULL},
    {"counted_ms_per_step_stderr", REAL, OF_GPU, "countedStepMsStandardError", NULL},
    {"counted_ms_per_step_freedom", REAL, OF_GPU, "countedStepMsFreedom", NULL},
    {"counted_idle_share", REAL, OF_GPU, "countedIdleShare", NULL},
    {"marked_steps", INTEGER, OF_GPU, "steps", NULL},
    {"captures", INTEGER, OF_GPU, "captures", NULL},
    {"first_marked", TIME, OF_GPU, "firstStepNs", NULL},
    {"last_marked", TIME, OF_GPU, "lastStepNs", NULL},
    {"lag_ns", INTEGER, OF_GPU, NULL, lag},
    {"lag_stderr_ns", REAL, OF_GPU, NULL, lag_error},
    {"metric", TEXT, OF_METRIC, NULL, metric_name},
    {"mean", REAL, OF_METRIC, "mean", NULL},
    {"stderr", REAL, OF_METRIC, "standardError", NULL},
    {"unit", TEXT, OF_METRIC, NULL, unit},
    {"windows", REAL, OF_METRIC, "windows", NULL},
    {"basis", TEXT, OF_METRIC, "basis", NULL},
    {"method", TEXT, OF_METRIC, "method", NULL},
    {"source", TEXT, OF_METRIC, "source", NULL},
    {"reason", TEXT, OF_METRIC, "reason", NULL},
    {"group_name", TEXT, OF_METRIC, "group", NULL},
    {"group_mean", REAL, OF_METRIC, "groupMean", NULL},
    {"group_stderr", REAL, OF_METRIC, "groupStandardError", NULL},
    {"elapsed_mean", REAL, OF_METRIC, NULL, elapsed_mean},
    {"amount_per_step", REAL, OF_METRIC, "perStep", NULL},
    {"amount_unit", TEXT, OF_METRIC, NULL, amount_unit},
    {"achieved", REAL, OF_METRIC, "achieved", NULL},
    {"peak", REAL, OF_METRIC, "peak", NULL},
    {"peak_unit", TEXT, OF_METRIC, NULL, peak_unit},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static bool is_of(type t, const json_t *value)
{
    return t == TEXT ? json_is_string(value)
                     : json_is_integer(value) || (t == REAL && json_is_real(value));
}

/* A new reference; NULL where it is not known, which is what a value of another type is, too. */
static json_t *value_of(const column *c, const source *s)
{
    const json_t *const objects[] = {
        [OF_TRAINING] = NULL, [OF_GPU] = s->gpu, [OF_ITEM] = s->item, [OF_METRIC] = s->metric};
    if (c->of == OF_METRIC && !s->metric)
        return NULL;
    if (c->make)
        return c->make(s);
    json_t *value = json_object_get(objects[c->of], c->key);
    if (!is_of(c->type, value))
        return NULL;
    return c->type == REAL && json_is_integer(value) ? json_real(json_number_value(value))
                                                     : json_incref(value);
}

/* ---- rows ---- */

typedef struct writer writer;

struct writer {
    FILE *to;
    size_t items;                            /* written so far */
    void (*begin)(writer *, const source *); /* of an item; may be NULL */
    void (*row)(writer *, const source *);   /* of a metric; of an item without any */
    void (*end)(writer *);                   /* of an item; may be NULL */
    size_t rows;                             /* of the item so far */
};

static void write_item(writer *w, source *s)
{
    const json_t *metrics = json_object_get(s->item, "metrics");
    const char *name;
    json_t *metric;
    w->rows = 0;
    if (w->begin)
        w->begin(w, s);
    json_object_foreach((json_t *)(uintptr_t)metrics, name, metric)
    {
        s->metric_name = name;
        s->metric = metric;
        w->row(w, s);
        w->rows++;
    }
    s->metric = NULL;
    if (w->rows == 0)
        w->row(w, s);
    if (w->end)
        w->end(w);
    w->items++;
}

static int write_rows(writer *w, const pp_training *trainings, size_t n, pp_error *err)
{
    for (size_t t = 0; t < n; t++) {
        size_t i, k;
        json_t *gpu, *item;
        json_array_foreach(json_object_get(trainings[t].results, "gpus"), i, gpu)
        {
            json_array_foreach(json_object_get(gpu, "items"), k, item)
            {
                source s = {.training = &trainings[t], .gpu = gpu, .item = item};
                write_item(w, &s);
            }
            if (ferror(w->to))
                return pp_error_errno(err, "writing the rows");
        }
    }
    return 0;
}

/* ---- CSV ---- */

static void put_time(FILE *to, const json_t *ns)
{
    char text[64];
    pp_time_format(json_integer_value(ns), 9, text, sizeof text);
    (void)fputs(text, to);
}

static void csv_row(writer *w, const source *s)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        PP_CLEANUP_JSON json_t *value = value_of(&columns[c], s);
        if (c > 0)
            (void)fputc(',', w->to);
        if (value && columns[c].type == TIME)
            put_time(w->to, value);
        else
            pp_csv_value(w->to, value);
    }
    (void)fputs(PP_CSV_END, w->to);
}

int pp_rows_csv(const pp_training *trainings, size_t n, FILE *to, pp_error *err)
{
    writer w = {.to = to, .row = csv_row};
    for (size_t c = 0; c < COLUMNS; c++)
        (void)fprintf(to, "%s%s", c ? "," : "", columns[c].name);
    (void)fputs(PP_CSV_END, to);
    return write_rows(&w, trainings, n, err);
}

/* ---- JSON ---- */

static void json_value(FILE *to, const json_t *value)
{
    char text[PP_NUMBER_TEXT];
    if (json_is_real(value))
        (void)fputs(pp_number_text(json_real_value(value), text), to);
    else if (value)
        (void)json_dumpf(value, to, JSON_ENCODE_ANY);
    else
        (void)fputs("null", to);
}

static void json_cell(FILE *to, const column *c, const source *s)
{
    PP_CLEANUP_JSON json_t *value = value_of(c, s);
    (void)fprintf(to, "\"%s\": ", c->name);
    if (value && c->type == TIME) {
        (void)fputc('"', to);
        put_time(to, value);
        (void)fputc('"', to);
        return;
    }
    json_value(to, value);
}

static bool is_name(const column *c)
{
    return c->make == metric_name;
}

static void json_begin(writer *w, const source *s)
{
    (void)fputs(w->items ? ",\n  {" : "\n  {", w->to);
    for (size_t c = 0; c < COLUMNS && columns[c].of != OF_METRIC; c++) {
        json_cell(w->to, &columns[c], s);
        (void)fputs(", ", w->to);
    }
    (void)fputs("\"metrics\": {", w->to);
}

static void json_row(writer *w, const source *s)
{
    bool first = true;
    PP_CLEANUP_JSON json_t *name = s->metric ? metric_name(s) : NULL;
    if (!name)
        return;
    (void)fputs(w->rows ? ",\n    " : "\n    ", w->to);
    json_value(w->to, name);
    (void)fputs(": {", w->to);
    for (size_t c = 0; c < COLUMNS; c++) {
        if (columns[c].of != OF_METRIC || is_name(&columns[c]))
            continue;
        (void)fputs(first ? "" : ", ", w->to);
        json_cell(w->to, &columns[c], s);
        first = false;
    }
    (void)fputc('}', w->to);
}

static void json_end(writer *w)
{
    (void)fputs("}}", w->to);
}

int pp_rows_json(const pp_training *trainings, size_t n, FILE *to, pp_error *err)
{
    writer w = {.to = to, .begin = json_begin, .row = json_row, .end = json_end};
    (void)fputs("{\"items\": [", to);
    if (write_rows(&w, trainings, n, err) < 0)
        return -1;
    (void)fputs(w.items ? "\n]}\n" : "]}\n", to);
    return 0;
}

/* ---- lines ---- */

static void line_row(writer *w, const source *s)
{
    for (size_t c = 0; c < COLUMNS; c++) {
        PP_CLEANUP_JSON json_t *value = value_of(&columns[c], s);
        (void)fputs(c ? ", " : "[", w->to);
        json_value(w->to, value);
    }
    (void)fputs("]\n", w->to);
}

int pp_rows_lines(const pp_training *trainings, size_t n, FILE *to, pp_error *err)
{
    static const char *const names[] = {
        [TEXT] = "text", [INTEGER] = "integer", [REAL] = "real", [TIME] = "time"};
    writer w = {.to = to, .row = line_row};
    for (size_t c = 0; c < COLUMNS; c++)
        (void)fprintf(to, "%s[\"%s\", \"%s\"]", c ? ", " : "[", columns[c].name,
                      names[columns[c].type]);
    (void)fputs("]\n", to);
    return write_rows(&w, trainings, n, err);
}
