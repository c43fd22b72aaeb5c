#include "cli/results/results.h"

#include "cli/formats/csv.h"
#include "cli/results/item_spread.h"
#include "cli/results/row_results.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 256 << 20 };

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *estimate_object(const pp_estimate *e)
{
    json_t *object = json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "mean",
                               real(e->mean), "standardError", real(e->standard_error), "windows",
                               real(e->windows), "method", pp_method_name(e->method), "source",
                               text_or_null(e->source), "group", text_or_null(e->group_name),
                               "groupMean", real(e->group_mean), "groupStandardError",
                               real(e->group_standard_error), "reason", text_or_null(e->reason));
    if (object && isfinite(e->peak)) {
        (void)json_object_set_new(object, "achieved", real(e->achieved));
        (void)json_object_set_new(object, "peak", real(e->peak));
    }
    if (object && pp_basis_name(e->basis))
        (void)json_object_set_new(object, "basis", json_string(pp_basis_name(e->basis)));
    if (object && pp_metric_get(e->metric)->per_step)
        (void)json_object_set_new(object, "perStep", real(e->amount_per_step));
    return object;
}

static json_t *integer_or_null(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *per_step(const pp_estimates *s, int64_t ns)
{
    return real(s->step_count && ns >= 0 ? (double)ns / (double)s->step_count / 1e6 : (double)NAN);
}

/* Of a time in ms. */
static void set_error(json_t *to, const char *name, const pp_time_error *e)
{
    if (to)
        (void)pp_item_spread_set(to, name, e->standard_error / 1e6, e->freedom, NULL);
}

static json_t *item_object(const pp_estimates *s, const pp_estimates_item *i)
{
    const char *bound = pp_bound_told(i->bound, i->bound_likely);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "kind", pp_item_kind_name(i->kind), "layer", i->layer, "type", i->type, "phase",
        pp_phase_name(i->phase), "parameters", integer_or_null(i->parameters), "calls",
        (json_int_t)i->calls, "totalNs", (json_int_t)i->total_ns, "millisecondsPerStep",
        per_step(s, i->total_ns), "leastMillisecondsPerStep", per_step(s, i->least_ns), "share",
        real(i->share), "busyNs", integer_or_null(i->busy_ns), "busyMillisecondsPerStep",
        per_step(s, i->busy_ns), "idleShare", real(i->idle_share), "busyReason",
        text_or_null(i->busy_reason), "bound", text_or_null(bound), "boundLikely",
        real(bound ? i->bound_likely : (double)NAN), "metrics", json_object());
    if (object && i->whole_reason)
        (void)json_object_set_new(object, "wholeReason", json_string(i->whole_reason));
    if (object && i->memory_peak > 0) {
        (void)json_object_set_new(object, "memoryPeakBytes", json_integer(i->memory_peak));
        (void)json_object_set_new(object, "memoryLiveBytes", json_integer(i->memory_live));
    }
    set_error(object, "millisecondsPerStep", &i->step_error);
    set_error(object, "busyMillisecondsPerStep", &i->busy_error);
    return object;
}

/* How values of replays hold against windows that were held out; nothing where there are none. */
static void add_closures(json_t *gpu, const pp_estimates *s)
{
    json_t *all = s->n_closures ? json_object() : NULL;
    for (size_t i = 0; all && i < s->n_closures; i++) {
        const pp_hold_out *c = &s->closures[i];
        (void)json_object_set_new(all, pp_metric_get(c->metric)->spec_name,
                                  json_pack("{s:o, s:o, s:I}", "held", real(c->held), "difference",
                                            real(c->difference), "windows",
                                            (json_int_t)c->windows));
    }
    if (all)
        (void)json_object_set_new(gpu, "closure", all);
}

static json_t *quality_object(const pp_estimates_fit *f)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "method",
                     pp_method_name(PP_METHOD_REGRESSION), "doubt", text_or_null(f->doubt),
                     "untold", text_or_null(f->untold), "explained", real(f->explained), "miss",
                     real(f->miss), "expectedMiss", real(f->expected_miss), "items",
                     (json_int_t)f->items, "itemsZ", real(f->items_z), "idle", real(f->idle),
                     "idleStandardError", real(f->idle_stderr), "shiftMs", real(f->shift_ns / 1e6),
                     "shiftStandardErrorMs", real(f->shift_stderr_ns / 1e6));
}

/* How values of windows hold against windows that were held out; nothing where there are none. */
static void add_quality(json_t *gpu, const pp_estimates *s)
{
    json_t *all = json_object();
    for (size_t i = 0; i < s->n_fits; i++)
        if (s->fits[i].judged)
            (void)json_object_set_new(all, pp_metric_get(s->fits[i].metric)->spec_name,
                                      quality_object(&s->fits[i]));
    if (json_object_size(all) > 0)
        (void)json_object_set(gpu, "quality", all);
    json_decref(all);
}

json_t *pp_results_of_solution(const pp_estimates *s)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < s->n_items; i++)
        (void)json_array_append_new(items, item_object(s, &s->items[i]));
    for (size_t i = 0; items && i < s->n_estimates; i++) {
        const pp_estimate *e = &s->estimates[i];
        json_t *metrics = json_object_get(json_array_get(items, e->item), "metrics");
        (void)json_object_set_new(metrics, pp_metric_get(e->metric)->spec_name, estimate_object(e));
    }
    json_t *gpu = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}",
        "gpu", s->gpu, "captures", (json_int_t)s->captures, "firstStepNs",
        (json_int_t)s->first_step_ns, "lastStepNs", (json_int_t)s->last_step_ns, "steps",
        (json_int_t)s->step_count, "stepMs", real(s->step_mean_ns / 1e6), "observedNs",
        (json_int_t)s->observed_ns, "stepNs", (json_int_t)s->step_ns, "gapNs",
        integer_or_null(s->gap_ns), "countedSteps", (json_int_t)s->counted_steps, "countedStepMs",
        real(s->counted_steps ? (double)s->counted_ns / (double)s->counted_steps / 1e6
                              : (double)NAN),
        "countedIdleShare", real(s->counted_idle), "windows", (json_int_t)s->windows, "samples",
        (json_int_t)s->samples, "lagMs", real(s->lag_ns / 1e6), "lagStandardErrorMs",
        real(s->lag_stderr_ns / 1e6), "items", items);
    if (gpu) {
        set_error(gpu, "stepMs", &s->step_error);
        set_error(gpu, "countedStepMs", &s->counted_error);
        add_closures(gpu, s);
        add_quality(gpu, s);
    }
    return gpu;
}

/* ---- files ---- */

/* Nine digits: for people. results.json has all. */
static void csv_number(FILE *f, const json_t *number)
{
    (void)fputc(',', f);
    if (json_is_integer(number))
        pp_csv_value(f, number);
    else if (json_is_number(number))
        (void)fprintf(f, "%.9g", json_number_value(number));
}

static void csv_item(FILE *f, const char *gpu, const json_t *item)
{
    static const char *const texts[] = {"kind", "layer", "type", "phase"};
    static const char *const numbers[] = {"parameters",
                                          "calls",
                                          "totalNs",
                                          "millisecondsPerStep",
                                          "leastMillisecondsPerStep",
                                          "share",
                                          "busyNs",
                                          "busyMillisecondsPerStep",
                                          "idleShare",
                                          "memoryPeakBytes",
                                          "memoryLiveBytes"};
    pp_csv_plain_text(f, gpu);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        (void)fputc(',', f);
        pp_csv_plain_text(f, pp_results_text(item, texts[i]));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        csv_number(f, json_object_get(item, numbers[i]));
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const char *name = pp_metric_get((pp_metric)m)->spec_name;
        csv_number(f, pp_json_get(item, "metrics", name, "mean", NULL));
        csv_number(f, pp_json_get(item, "metrics", name, "standardError", NULL));
    }
    (void)fputs(PP_CSV_END, f);
}

static void csv_write(const json_t *results, FILE *f)
{
    (void)fputs(
        "gpu,kind,layer,type,phase,parameters,calls,total_ns,ms_per_step,least_ms_per_step,share,"
        "busy_ns,busy_ms_per_step,idle_share,memory_peak_bytes,memory_live_bytes",
        f);
    for (int m = 0; m < PP_METRIC_COUNT; m++) {
        const char *column = pp_metric_get((pp_metric)m)->column;
        (void)fprintf(f, ",%s,%s_stderr", column, column);
    }
    (void)fputs(PP_CSV_END, f);
    size_t i, k;
    json_t *gpu, *item;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
            csv_item(f, pp_results_text(gpu, "gpu"), item);
    }
}

static int path_of(const char *folder, const char *name, char ret[PATH_MAX], pp_error *err)
{
    const int n = snprintf(ret, PATH_MAX, "%s/%s", folder, name);
    return n < 0 || n >= PATH_MAX
               ? pp_error_set(err, PP_ERR_TOO_LARGE, "the folder's name is too long")
               : 0;
}

static int open_file(const char *folder, const char *name, FILE **ret, pp_error *err)
{
    char path[PATH_MAX];
    if (path_of(folder, name, path, err) < 0)
        return -1;
    *ret = fopen(path, "we");
    return *ret ? 0 : pp_error_errno(err, "writing the results");
}

static int close_file(FILE *f, pp_error *err)
{
    bool bad = ferror(f) != 0;
    return fclose(f) == 0 && !bad ? 0 : pp_error_errno(err, "writing the results");
}

/* There is never a part of it: who looks meanwhile finds none, and so does a run after one that was
 * killed. */
static int write_json(const json_t *results, const char *folder, pp_error *err)
{
    static const char fresh[] = ".results.json", name[] = "results.json";
    char from[PATH_MAX], to[PATH_MAX];
    FILE *f = NULL;
    if (path_of(folder, fresh, from, err) < 0 || path_of(folder, name, to, err) < 0 ||
        open_file(folder, fresh, &f, err) < 0)
        return -1;
    (void)json_dumpf(results, f, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    (void)fputc('\n', f);
    int rc = close_file(f, err);
    if (rc == 0 && rename(from, to) < 0)
        rc = pp_error_errno(err, "writing the results");
    if (rc < 0)
        (void)unlink(from);
    return rc;
}

int pp_results_write(const json_t *results, const char *folder, pp_error *err)
{
    FILE *f = NULL;
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return pp_error_errno(err, "making the folder for the results");
    if (write_json(results, folder, err) < 0 || open_file(folder, "layers.csv", &f, err) < 0)
        return -1;
    csv_write(results, f);
    return close_file(f, err);
}

static int read_json(const char *path, json_t **ret, pp_error *err)
{
    size_t length = 0;
    PP_CLEANUP_FREE char *text = pp_file_read(path, FILE_MAX, &length, err);
    if (!text)
        return -1;
    pp_error why = {0};
    *ret = pp_json_parse(text, length, &why);
    return *ret ? 0 : pp_error_set(err, why.code, "%s: %s", path, why.message);
}

int pp_results_check_own(const char *folder, pp_error *err)
{
    char path[PATH_MAX];
    PP_CLEANUP_JSON json_t *results = NULL;
    pp_error why = {0};
    if (path_of(folder, "results.json", path, err) < 0)
        return -1;
    if (access(path, F_OK) < 0)
        return 0;
    if (read_json(path, &results, &why) == 0 && json_is_array(json_object_get(results, "gpus")) &&
        json_is_integer(json_object_get(results, "version")))
        return 0;
    return pp_error_field(err, "--output",
                          "names %s, whose results.json is none of an earlier run: name another "
                          "folder, or move that file away",
                          folder);
}

static int tell_missing(const char *from, pp_error *err)
{
    return errno == ENOENT ? pp_error_errno(err, "there is no file or folder \"%s\"", from)
                           : pp_error_errno(err, "%s", from);
}

/* Of a file that is no JSON. */
static int tell_foreign(pp_error *err)
{
    const pp_error why = *err;
    return pp_error_set(err, why.code,
                        "%s. It is no folder of results, nor the results.json of one", why.message);
}

/* Of a folder without results.json. */
static int tell_without(const char *folder, pp_error *err)
{
    char batches[PATH_MAX];
    if (path_of(folder, "batches.jsonl", batches, err) == 0 && access(batches, F_OK) == 0)
        return pp_error_set(err, PP_ERR_NOT_FOUND,
                            "%s has no results.json yet: its run still writes, or ended without "
                            "results. What it has so far: precisionprobe top %s",
                            folder, folder);
    return pp_error_set(err, PP_ERR_NOT_FOUND,
                        "%s is no folder of results: there is no results.json in it", folder);
}

int pp_results_read(const char *from, json_t **ret, pp_error *err)
{
    char path[PATH_MAX];
    struct stat s;
    if (stat(from, &s) < 0)
        return tell_missing(from, err);
    const bool file = !S_ISDIR(s.st_mode);
    int n = snprintf(path, sizeof path, "%s%s", from, file ? "" : "/results.json");
    if (n < 0 || (size_t)n >= sizeof path)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the name is too long");
    if (!file && access(path, F_OK) < 0)
        return tell_without(from, err);
    if (read_json(path, ret, err) < 0)
        return file && err->code == PP_ERR_INVALID ? tell_foreign(err) : -1;
    if (json_is_array(json_object_get(*ret, "items"))) {
        PP_CLEANUP_JSON json_t *rows = *ret;
        *ret = NULL;
        return pp_row_results(rows, ret, err);
    }
    if (!json_is_array(json_object_get(*ret, "gpus"))) {
        json_decref(*ret);
        *ret = NULL;
        return pp_error_field(err, "gpus", "is missing: %s is no results.json", path);
    }
    return 0;
}

/* The file system takes any bytes: those that are no character of UTF-8 become "?". */
static void make_text(char *name)
{
    while (*name) {
        size_t n = 1;
        json_t *character = NULL;
        while (n <= 4 && !memchr(name, '\0', n) && !(character = json_stringn(name, n)))
            n++;
        if (!character)
            *name = '?';
        name += character ? n : 1;
        json_decref(character);
    }
}

static int name_of_path(const char *from, char folder[PATH_MAX], char name[NAME_MAX + 1],
                        pp_error *err)
{
    struct stat s;
    if (!realpath(from, folder) || stat(folder, &s) < 0)
        return tell_missing(from, err);
    char *slash = strrchr(folder, '/');
    (void)snprintf(name, NAME_MAX + 1, "%s", slash + 1);
    if (S_ISDIR(s.st_mode))
        return 0;
    *slash = '\0';
    char *suffix = strrchr(name, '.');
    if (suffix && suffix != name && strcmp(suffix, ".json") == 0)
        *suffix = '\0';
    if (strcmp(name, "results") == 0 && *folder)
        (void)snprintf(name, NAME_MAX + 1, "%s", strrchr(folder, '/') + 1);
    return 0;
}

int pp_results_name(const char *from, char folder[PATH_MAX], char name[NAME_MAX + 1], pp_error *err)
{
    if (name_of_path(from, folder, name, err) < 0)
        return -1;
    make_text(name);
    return 0;
}

/* Results of earlier releases do not say why. */
const char *pp_results_unsampled(const json_t *results)
{
    const char *why = pp_results_text(results, "unsampled");
    if (*why)
        return why;
    return json_array_size(json_object_get(results, "gpus")) > 0
               ? NULL
               : "no optimizer stepped in a process with torch, or it ended too soon";
}

bool pp_results_have_gpu(const json_t *results)
{
    size_t i;
    const json_t *gpu;
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        if (*pp_results_text(gpu, "gpu"))
            return true;
    }
    return false;
}

bool pp_results_lack_layers(const json_t *results)
{
    size_t i, k;
    json_t *gpu, *item;
    const json_t *gpus = json_object_get(results, "gpus");
    json_array_foreach(gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
        {
            if (strcmp(pp_results_text(item, "kind"), "layer") == 0)
                return false;
        }
    }
    return json_array_size(gpus) > 0;
}

/* Of one layer: what its replays say of SM activity. True where there is a value, or no reason. */
static bool is_replayed(const json_t *item, const char **why)
{
    const json_t *active = pp_json_get(item, "metrics", "SMActive", NULL);
    if (strcmp(pp_results_text(item, "kind"), "layer") != 0)
        return false;
    if (json_is_number(json_object_get(active, "mean")))
        return true;
    if (!**why && *pp_results_text(active, "reason"))
        *why = pp_results_text(active, "reason");
    return false;
}

const char *pp_results_why_not_replayed(const json_t *results)
{
    size_t i, k;
    json_t *gpu, *item;
    const char *why = "";
    json_array_foreach(json_object_get(results, "gpus"), i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "items"), k, item)
        {
            if (is_replayed(item, &why))
                return NULL;
        }
    }
    return *why ? why : NULL;
}
