#include "cli/recording/recording.h"

#include "cli/results/results.h"
#include "common/buf.h"
#include "common/cleanup.h"
#include "common/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_MAX = 512 << 20, /* what a solution can hold is a fraction of it */
    LINE_SAMPLES = 10000, /* well below a line's limit */
    GPUS_MAX = 64,
};

static const char batches_name[] = "batches.jsonl";
static const char samples_name[] = "samples.jsonl";
static const char results_name[] = "results.json";
static const char table_name[] = "layers.csv";

struct pp_recording {
    char folder[PATH_MAX];
    FILE *batches;
    bool made_folder, made_batches, begun;
    int64_t seq;
    pp_error failed; /* the first; nothing is written after it */
};

static int path_of(const char *folder, const char *name, char ret[PATH_MAX], pp_error *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", folder, name);
    return n < 0 || n >= PATH_MAX
               ? pp_error_set(err, PP_ERR_TOO_LARGE, "the folder's name is too long")
               : 0;
}

static int open_file(const char *folder, const char *name, const char *mode, FILE **ret,
                     pp_error *err)
{
    char path[PATH_MAX];
    if (path_of(folder, name, path, err) < 0)
        return -1;
    *ret = fopen(path, mode);
    return *ret ? 0 : pp_error_errno(err, "%s", path);
}

/* ---- writing ---- */

/* Not truncated: its text may be an earlier run's. */
static int open_batches(pp_recording *r, pp_error *err)
{
    char path[PATH_MAX];
    if (path_of(r->folder, batches_name, path, err) < 0)
        return -1;
    r->made_batches = access(path, F_OK) < 0;
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    r->batches = fd < 0 ? NULL : fdopen(fd, "w");
    if (r->batches)
        return 0;
    const int rc = pp_error_errno(err, "%s", path);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

static void remove_file(const pp_recording *r, const char *name)
{
    char path[PATH_MAX];
    pp_error err = {0};
    if (path_of(r->folder, name, path, &err) == 0)
        (void)unlink(path);
}

int pp_recording_open(const char *folder, pp_recording **ret, pp_error *err)
{
    PP_CLEANUP_FREE pp_recording *r = calloc(1, sizeof *r);
    if (!r)
        return pp_error_nomem(err);
    if (pp_results_check_own(folder, err) < 0)
        return -1;
    r->made_folder = mkdir(folder, 0777) == 0;
    if (!r->made_folder && errno != EEXIST)
        return pp_error_errno(err, "making the folder %s", folder);
    (void)snprintf(r->folder, sizeof r->folder, "%s", folder);
    if (open_batches(r, err) < 0)
        return -1;
    *ret = PP_TAKE(r);
    return 0;
}

/* Until results.json is there again the folder holds no results. */
void pp_recording_begin(pp_recording *r)
{
    static const char *const earlier[] = {results_name, table_name, samples_name};
    r->begun = true;
    for (size_t i = 0; i < sizeof earlier / sizeof *earlier; i++)
        remove_file(r, earlier[i]);
    if (ftruncate(fileno(r->batches), 0) < 0)
        (void)pp_error_errno(&r->failed, "%s", batches_name);
}

static void leave_as_it_was(const pp_recording *r)
{
    if (r->made_batches)
        remove_file(r, batches_name);
    if (r->made_folder)
        (void)rmdir(r->folder);
}

static int put(FILE *f, const pp_buf *text, pp_error *err)
{
    return fwrite(text->data, 1, text->len, f) == text->len && fputc('\n', f) != EOF
               ? 0
               : pp_error_errno(err, "writing the recording");
}

void pp_recording_add(pp_recording *r, pp_wire_batch *batch)
{
    pp_buf text;
    if (r->failed.code != PP_OK)
        return;
    pp_buf_init(&text, PP_WIRE_MAX_MESSAGE);
    batch->session = batch->session ? batch->session : strdup("local");
    batch->instance = batch->instance ? batch->instance : strdup("local");
    batch->seq = r->seq++;
    if (!batch->session || !batch->instance)
        (void)pp_error_nomem(&r->failed);
    else if (pp_wire_batch_encode(batch, &text, &r->failed) == 0)
        (void)put(r->batches, &text, &r->failed);
    pp_buf_done(&text);
}

/* One line: samples of one GPU and metric, from *next on; *next goes past the last. */
static json_t *samples_line(const pp_activity *a, uint32_t gpu, pp_metric metric, size_t *next)
{
    json_t *at = json_array();
    json_t *values = json_array();
    int64_t before = 0;
    for (; *next < a->n_samples && json_array_size(at) < LINE_SAMPLES; (*next)++) {
        const pp_activity_sample *s = &a->samples[*next];
        if (s->gpu != gpu || s->metric != metric)
            continue;
        (void)json_array_append_new(at, json_integer(s->stamp_ns - before));
        (void)json_array_append_new(values, json_real(s->value));
        before = s->stamp_ns;
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "gpu", a->gpus.items[gpu], "metric",
                     pp_metric_get(metric)->spec_name, "at", at, "value", values);
}

static int write_samples(FILE *f, const pp_activity *a, uint32_t gpu, pp_metric metric,
                         pp_error *err)
{
    size_t next = 0;
    while (next < a->n_samples) {
        PP_CLEANUP_JSON json_t *line = samples_line(a, gpu, metric, &next);
        if (!line)
            return pp_error_nomem(err);
        if (json_array_size(json_object_get(line, "at")) == 0)
            return 0;
        if (json_dumpf(line, f, JSON_COMPACT) < 0 || fputc('\n', f) == EOF)
            return pp_error_errno(err, "writing the recording");
    }
    return 0;
}

static int close_file(FILE *f, pp_error *err)
{
    bool bad = ferror(f) != 0;
    return fclose(f) == 0 && !bad ? 0 : pp_error_errno(err, "writing the recording");
}

static int write_all_samples(const char *folder, const pp_activity *a, pp_error *err)
{
    FILE *f = NULL;
    int rc = 0;
    if (open_file(folder, samples_name, "we", &f, err) < 0)
        return -1;
    for (uint32_t g = 0; rc == 0 && g < a->gpus.count; g++) {
        for (int m = 0; rc == 0 && m < PP_METRIC_COUNT; m++)
            rc = write_samples(f, a, g, (pp_metric)m, err);
    }
    pp_error closed = {0};
    if (close_file(f, &closed) < 0 && rc == 0) {
        *err = closed;
        rc = -1;
    }
    return rc;
}

int pp_recording_end(pp_recording *recording, const pp_activity *activity, pp_error *err)
{
    PP_CLEANUP_FREE pp_recording *r = recording;
    if (!r)
        return 0;
    pp_error closed = {0};
    (void)close_file(r->batches, &closed);
    if (!r->begun) {
        leave_as_it_was(r);
        return 0;
    }
    if (r->failed.code == PP_OK)
        r->failed = closed;
    if (r->failed.code == PP_OK)
        return write_all_samples(r->folder, activity, err);
    *err = r->failed;
    return -1;
}

/* ---- reading ---- */

/* Puts file and line before the field's name. */
static int locate(const char *name, int64_t line, pp_error *err)
{
    char field[sizeof err->field];
    (void)snprintf(field, sizeof field, "%s:%" PRId64 ": %.100s", name, line, err->field);
    memcpy(err->field, field, sizeof field);
    return -1;
}

typedef int (*line_fn)(void *user, const json_t *object, int64_t line, pp_error *err);

static int take_line(const char *text, size_t n, int64_t line, line_fn each, void *user,
                     pp_error *err)
{
    if (n > PP_WIRE_MAX_MESSAGE)
        return pp_error_set(err, PP_ERR_TOO_LARGE, "the line has more than %d bytes",
                            PP_WIRE_MAX_MESSAGE);
    PP_CLEANUP_JSON json_t *object = pp_json_parse(text, n, err);
    if (!object)
        return -1;
    if (!json_is_object(object))
        return pp_error_set(err, PP_ERR_INVALID, "the line is no JSON object");
    return each(user, object, line, err);
}

/* getline holds a line of any length: the file's size is its bound. */
static int check_size(FILE *f, const char *name, pp_error *err)
{
    struct stat at;
    if (fstat(fileno(f), &at) < 0)
        return pp_error_errno(err, "%s", name);
    return S_ISREG(at.st_mode) && at.st_size <= FILE_MAX
               ? 0
               : pp_error_field(err, name, "must be a file of at most %d bytes", FILE_MAX);
}

/* A last line that does not end yet is left out where the file is still `written`. */
static int read_lines(const char *folder, const char *name, bool written, line_fn each, void *user,
                      pp_error *err)
{
    PP_CLEANUP_FILE FILE *f = NULL;
    PP_CLEANUP_FREE char *text = NULL;
    size_t room = 0;
    ssize_t n;
    if (open_file(folder, name, "re", &f, err) < 0 || check_size(f, name, err) < 0)
        return -1;
    for (int64_t line = 1; (n = getline(&text, &room, f)) > 0; line++) {
        if (written && text[n - 1] != '\n')
            break;
        if (take_line(text, (size_t)n - (text[n - 1] == '\n'), line, each, user, err) < 0)
            return locate(name, line, err);
    }
    return ferror(f) ? pp_error_errno(err, "%s", name) : 0;
}

typedef struct batch_reader {
    pp_recording_batch_fn each;
    void *user;
} batch_reader;

static int take_batch(void *user, const json_t *object, int64_t line, pp_error *err)
{
    const batch_reader *reader = user;
    pp_wire_batch *batch = NULL;
    if (pp_wire_batch_decode(object, &batch, err) < 0)
        return -1;
    int rc = batch->seq == line - 1 ? reader->each(reader->user, batch, err)
                                    : pp_error_field(err, "seq", "must be %" PRId64, line - 1);
    pp_wire_batch_free(batch);
    return rc;
}

int pp_recording_batches(const char *folder, pp_recording_batch_fn each, void *user, pp_error *err)
{
    batch_reader reader = {each, user};
    char results[PATH_MAX];
    if (path_of(folder, results_name, results, err) < 0)
        return -1;
    return read_lines(folder, batches_name, access(results, F_OK) < 0, take_batch, &reader, err);
}

/* The last stamp of each GPU and metric: those of one come in order. */
typedef struct sample_reader {
    pp_activity_builder *to;
    pp_strings gpus;
    int64_t last[GPUS_MAX][PP_METRIC_COUNT];
} sample_reader;

typedef struct samples {
    char *gpu;
    char *metric;
    json_t *at;
    json_t *value;
} samples;

static const pp_json_field samples_fields[] = {
    {"gpu", PP_JSON_STRING, offsetof(samples, gpu), true, PP_WIRE_MAX_GPU},
    {"metric", PP_JSON_STRING, offsetof(samples, metric), true, 64},
    {"at", PP_JSON_VALUE, offsetof(samples, at), true, 0},
    {"value", PP_JSON_VALUE, offsetof(samples, value), true, 0},
    {NULL, PP_JSON_VALUE, 0, false, 0},
};

static int find_last(sample_reader *r, const samples *s, pp_metric *ret_metric, int64_t **ret,
                     pp_error *err)
{
    size_t i = 0;
    if (!pp_wire_is_id(s->gpu, PP_WIRE_MAX_GPU))
        return pp_error_field(err, "gpu", "is no GPU's UUID");
    if (pp_metric_from_name(s->metric, ret_metric) < 0)
        return pp_error_field(err, "metric", "no such metric");
    if (pp_strings_add_once(&r->gpus, s->gpu, err) < 0)
        return -1;
    if (r->gpus.count > GPUS_MAX)
        return pp_error_field(err, "gpu", "is one of more than %d", GPUS_MAX);
    while (strcmp(r->gpus.items[i], s->gpu) != 0)
        i++;
    *ret = &r->last[i][*ret_metric];
    return 0;
}

static int add_sample(sample_reader *r, const samples *s, size_t i, pp_metric metric, int64_t *at,
                      int64_t *last, pp_error *err)
{
    const json_t *step = json_array_get(s->at, i);
    const json_t *value = json_array_get(s->value, i);
    char field[32];
    (void)snprintf(field, sizeof field, "at[%zu]", i);
    if (!json_is_integer(step) || __builtin_add_overflow(*at, json_integer_value(step), at) ||
        *at < PP_WIRE_TIME_MIN || *at > PP_WIRE_TIME_MAX)
        return pp_error_field(err, field, "is no time");
    if (*at <= *last)
        return pp_error_field(err, field, "is not later than the one before");
    (void)snprintf(field, sizeof field, "value[%zu]", i);
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return pp_error_field(err, field, "must be a number");
    *last = *at;
    return pp_activity_builder_sample(r->to, s->gpu, metric, *at, json_number_value(value), err);
}

static int add_samples(sample_reader *r, const samples *s, pp_error *err)
{
    pp_metric metric = PP_METRIC_COUNT;
    int64_t *last = NULL;
    int64_t at = 0;
    if (find_last(r, s, &metric, &last, err) < 0)
        return -1;
    if (!json_is_array(s->at) || !json_is_array(s->value) ||
        json_array_size(s->at) != json_array_size(s->value))
        return pp_error_field(err, "value", "must be an array as long as at");
    for (size_t i = 0; i < json_array_size(s->at); i++) {
        if (add_sample(r, s, i, metric, &at, last, err) < 0)
            return -1;
    }
    return 0;
}

static int take_samples(void *user, const json_t *object, int64_t line, pp_error *err)
{
    samples s = {0};
    (void)line;
    int rc = pp_json_decode(object, samples_fields, false, "", &s, err);
    if (rc == 0)
        rc = add_samples(user, &s, err);
    pp_json_free_fields(samples_fields, &s);
    return rc;
}

int pp_recording_samples(const char *folder, pp_activity_builder *to, pp_error *err)
{
    PP_CLEANUP_FREE sample_reader *r = calloc(1, sizeof *r);
    if (!r)
        return pp_error_nomem(err);
    r->to = to;
    int rc = read_lines(folder, samples_name, false, take_samples, r, err);
    pp_strings_free(&r->gpus);
    return rc;
}

/* ---- the folder's identity ---- */

static int digest_file(EVP_MD_CTX *digest, const char *folder, const char *name, pp_error *err)
{
    PP_CLEANUP_FILE FILE *f = NULL;
    char piece[16384];
    size_t n;
    if (open_file(folder, name, "re", &f, err) < 0 || check_size(f, name, err) < 0)
        return -1;
    bool ok = EVP_DigestUpdate(digest, name, strlen(name) + 1) == 1;
    while (ok && (n = fread(piece, 1, sizeof piece, f)) > 0)
        ok = EVP_DigestUpdate(digest, piece, n) == 1;
    return ok && !ferror(f) ? 0 : pp_error_set(err, PP_ERR_IO, "cannot read %s", name);
}

int pp_recording_uid(const char *folder, char ret[37], pp_error *err)
{
    static const char *const names[] = {results_name, batches_name, samples_name};
    unsigned char b[EVP_MAX_MD_SIZE] = {0};
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    int rc = digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 ? 0 : pp_error_nomem(err);
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = digest_file(digest, folder, names[i], err);
    if (rc == 0 && EVP_DigestFinal_ex(digest, b, NULL) != 1)
        rc = pp_error_set(err, PP_ERR_INTERNAL, "no digest");
    EVP_MD_CTX_free(digest);
    if (rc < 0)
        return -1;
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x80); /* RFC 9562, version 8: of our own making */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    size_t at = 0;
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(ret + at, 37 - at,
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
    return 0;
}
