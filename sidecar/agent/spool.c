#include "sidecar/agent/spool.h"

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/file.h"
#include "common/json.h"
#include "common/log.h"
#include "common/wire.h"
#include "sidecar/agent/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum {
    HEAD_MAX = 4096, /* bytes of a file's first line */
    FILE_MAX = HEAD_MAX + PP_WIRE_MAX_MESSAGE,
    BLOCK = 4096,
    FILES_MAX = 1 << 16, /* more than fit into any limit of ours, a block each */
};

#define NAME_FRESH ".new"
#define NAME_BATCH "%020" PRId64 ".batch"

/* The first line of a file. */
typedef struct head {
    int64_t seq;
    int64_t events;
    int64_t tail;
    int64_t lost;
    int64_t marks;
    int64_t cost;
    int64_t paused;
    int64_t kernels_lost;
    int64_t process; /* its number, plus one */
    json_t *gpus;    /* the same of its GPUs */
    char *instance;
    char *ring;
} head;

static const pp_json_field head_fields[] = {
    {"seq", PP_JSON_INT, offsetof(head, seq), true, PP_WIRE_MAX_COUNT},
    {"events", PP_JSON_INT, offsetof(head, events), true, PP_WIRE_MAX_COUNT},
    {"tail", PP_JSON_INT, offsetof(head, tail), true, INT64_MAX},
    {"lost", PP_JSON_INT, offsetof(head, lost), true, INT64_MAX},
    {"marks", PP_JSON_INT, offsetof(head, marks), true, INT64_MAX},
    {"cost", PP_JSON_INT, offsetof(head, cost), true, INT64_MAX},
    {"paused", PP_JSON_INT, offsetof(head, paused), false, INT64_MAX},
    {"kernelsLost", PP_JSON_INT, offsetof(head, kernels_lost), false, INT64_MAX},
    {"process", PP_JSON_INT, offsetof(head, process), true, PP_WIRE_MAX_PROCESS + 1},
    {"gpus", PP_JSON_VALUE, offsetof(head, gpus), false, 0},
    {"instance", PP_JSON_STRING, offsetof(head, instance), true, PP_WIRE_MAX_ID},
    {"ring", PP_JSON_STRING, offsetof(head, ring), true, NAME_MAX},
    {0},
};

struct pp_spool {
    char *directory;
    char *text; /* of the file that was read last */
    head head;
    uint32_t gpus[PP_RING_DEVICES]; /* of that head */
};

pp_spool *pp_spool_new(const char *directory)
{
    pp_spool *s = calloc(1, sizeof *s);
    if (s)
        s->directory = strdup(directory);
    if (s && !s->directory) {
        free(s);
        return NULL;
    }
    return s;
}

static void forget(pp_spool *s)
{
    pp_json_free_fields(head_fields, &s->head);
    free(s->text);
    s->text = NULL;
}

void pp_spool_free(pp_spool *s)
{
    if (!s)
        return;
    forget(s);
    free(s->directory);
    free(s);
}

static int path_of(const pp_spool *s, const char *name, char *out, pp_error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", s->directory, name);
    return n > 0 && n < PATH_MAX ? 0 : pp_error_set(err, PP_ERR_INVALID, "a path is too long");
}

static int batch_path(const pp_spool *s, int64_t seq, char *out, pp_error *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, NAME_BATCH, seq);
    return path_of(s, name, out, err);
}

void pp_spool_remove(pp_spool *s, int64_t seq)
{
    char path[PATH_MAX];
    pp_error ignored;
    if (batch_path(s, seq, path, &ignored) == 0)
        (void)unlink(path);
}

/* ---- writing ---- */

/* Up to the last that has a number. */
static json_t *gpus_json(const pp_ring_told *told)
{
    PP_CLEANUP_JSON json_t *gpus = json_array();
    size_t n = PP_RING_DEVICES;
    while (n > 0 && told->gpus[n - 1] == 0)
        n--;
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(gpus, json_integer(told->gpus[i])) < 0)
            return NULL;
    return PP_TAKE(gpus);
}

static char *head_text(const pp_spool_batch *b)
{
    const pp_place *p = &b->place;
    PP_CLEANUP_JSON json_t *line =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:s}", "seq",
                  (json_int_t)b->seq, "events", (json_int_t)b->events, "tail", (json_int_t)p->tail,
                  "lost", (json_int_t)p->told.lost, "marks", (json_int_t)p->told.marks, "cost",
                  (json_int_t)p->told.cost, "paused", (json_int_t)p->told.paused, "kernelsLost",
                  (json_int_t)p->told.kernels_lost, "process", (json_int_t)p->told.process, "gpus",
                  gpus_json(&p->told), "instance", b->instance, "ring", p->ring);
    return line ? json_dumps(line, JSON_COMPACT) : NULL;
}

static int write_file(const char *path, const pp_spool_batch *batch, size_t *ret_size,
                      pp_error *err)
{
    PP_CLEANUP_FREE char *first = head_text(batch);
    if (!first)
        return pp_error_nomem(err);
    PP_CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return pp_error_errno(err, "opening %s", path);
    size_t n = strlen(first);
    first[n++] = '\n'; /* in the place of its NUL */
    if (pp_file_write(fd, first, n) < 0 || pp_file_write(fd, batch->text, batch->length) < 0)
        return pp_error_errno(err, "writing to the spool");
    *ret_size = (n + batch->length + BLOCK - 1) / BLOCK * BLOCK;
    return 0;
}

int pp_spool_put(pp_spool *s, const pp_spool_batch *batch, size_t *ret_size, pp_error *err)
{
    char fresh[PATH_MAX], path[PATH_MAX];
    if (path_of(s, NAME_FRESH, fresh, err) < 0 || batch_path(s, batch->seq, path, err) < 0)
        return -1;
    if (write_file(fresh, batch, ret_size, err) == 0) {
        if (rename(fresh, path) == 0)
            return 0;
        (void)pp_error_errno(err, "renaming %s", fresh);
    }
    (void)unlink(fresh);
    return -1;
}

/* ---- reading ---- */

static int read_file(const char *path, char **ret, size_t *ret_n, pp_error *err)
{
    struct stat st;
    PP_CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return pp_error_errno(err, "opening %s", path);
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return pp_error_set(err, PP_ERR_INVALID, "no file of at most %d bytes", FILE_MAX);
    PP_CLEANUP_FREE char *text = malloc((size_t)st.st_size + 1);
    if (!text)
        return pp_error_nomem(err);
    if (read(fd, text, (size_t)st.st_size) != st.st_size)
        return pp_error_set(err, PP_ERR_IO, "the file was cut short");
    text[st.st_size] = '\0';
    *ret_n = (size_t)st.st_size;
    *ret = PP_TAKE(text);
    return 0;
}

static int decode_gpus(const json_t *gpus, uint32_t ret[PP_RING_DEVICES], pp_error *err)
{
    size_t i;
    json_t *one;
    memset(ret, 0, PP_RING_DEVICES * sizeof *ret);
    if (gpus && (!json_is_array(gpus) || json_array_size(gpus) > PP_RING_DEVICES))
        return pp_error_field(err, "gpus", "must be an array of at most %d numbers",
                              PP_RING_DEVICES);
    json_array_foreach(gpus, i, one)
    {
        const json_int_t number = json_integer_value(one);
        if (!json_is_integer(one) || number < 0 || number > PP_WIRE_MAX_PROCESS + 1)
            return pp_error_field(err, "gpus", "must be numbers of processes");
        ret[i] = (uint32_t)number;
    }
    return 0;
}

static int decode_head(pp_spool *s, size_t n, pp_error *err)
{
    PP_CLEANUP_JSON json_t *object = pp_json_parse(s->text, n, err);
    if (!object || pp_json_decode(object, head_fields, true, "", &s->head, err) < 0)
        return -1;
    const head *h = &s->head;
    bool negative = h->events < 0 || h->tail < 0 || h->lost < 0 || h->marks < 0 || h->cost < 0 ||
                    h->paused < 0 || h->kernels_lost < 0 || h->process < 0;
    if (negative)
        return pp_error_set(err, PP_ERR_INVALID, "a negative count");
    return decode_gpus(h->gpus, s->gpus, err);
}

static void fill(const pp_spool *s, size_t first, size_t n, pp_spool_batch *ret)
{
    const head *h = &s->head;
    *ret = (pp_spool_batch){.seq = h->seq,
                            .events = h->events,
                            .instance = h->instance,
                            .place = {.ring = h->ring,
                                      .tail = (uint64_t)h->tail,
                                      .told = {.lost = (uint64_t)h->lost,
                                               .marks = (uint64_t)h->marks,
                                               .cost = h->cost,
                                               .paused = h->paused,
                                               .kernels_lost = (uint64_t)h->kernels_lost,
                                               .process = (uint32_t)h->process}},
                            .text = s->text + first,
                            .length = n - first};
    memcpy(ret->place.told.gpus, s->gpus, sizeof s->gpus);
}

static int get(pp_spool *s, const char *path, int64_t seq, pp_spool_batch *ret, pp_error *err)
{
    size_t n = 0;
    forget(s);
    s->head = (head){0};
    if (read_file(path, &s->text, &n, err) < 0 || !s->text)
        return -1;
    const char *end = memchr(s->text, '\n', n < HEAD_MAX ? n : HEAD_MAX);
    if (!end)
        return pp_error_set(err, PP_ERR_INVALID, "no first line");
    if (decode_head(s, (size_t)(end - s->text), err) < 0)
        return -1;
    if (s->head.seq != seq)
        return pp_error_field(err, "seq", "is another than in its name");
    fill(s, (size_t)(end - s->text) + 1, n, ret);
    return 0;
}

int pp_spool_get(pp_spool *s, int64_t seq, pp_spool_batch *ret, pp_error *err)
{
    char path[PATH_MAX];
    return batch_path(s, seq, path, err) < 0 ? -1 : get(s, path, seq, ret, err);
}

/* ---- what an agent before this one has left ---- */

/* It must be what the operator takes, which closes the connection over anything else. */
int pp_spool_check(const pp_spool_batch *found, pp_error *err)
{
    pp_wire_type type;
    pp_wire_batch *batch = NULL;
    PP_CLEANUP_JSON json_t *message = pp_json_parse(found->text, found->length, err);
    if (!message || pp_wire_type_of(message, &type, err) < 0)
        return -1;
    if (type != PP_WIRE_BATCH)
        return pp_error_field(err, "type", "is no batch");
    if (pp_wire_batch_decode(message, &batch, err) < 0)
        return -1;
    bool same = batch->seq == found->seq && strcmp(batch->instance, found->instance) == 0;
    pp_wire_batch_free(batch);
    return same ? 0 : pp_error_field(err, "seq", "or instance differs from the first line's");
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x != y ? (x < y ? -1 : 1) : 0;
}

/* The number in a name as batch_path makes it; anything else is removed. */
static bool number_of(const pp_spool *s, const char *name, int64_t *ret)
{
    char again[64], path[PATH_MAX];
    pp_error ignored;
    errno = 0;
    *ret = strtoll(name, NULL, 10);
    (void)snprintf(again, sizeof again, NAME_BATCH, *ret);
    if (errno == 0 && *ret >= 0 && *ret < PP_WIRE_MAX_COUNT && strcmp(again, name) == 0)
        return true;
    if (strcmp(name, PP_SETTINGS_KEPT) == 0 || strcmp(name, PP_SPOOL_SAID) == 0)
        return false; /* the agent's, beside the batches */
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
        path_of(s, name, path, &ignored) == 0 && unlink(path) == 0 && strcmp(name, NAME_FRESH) != 0)
        pp_warn(path, "no batch: it was removed");
    return false;
}

static int list(const pp_spool *s, int64_t **ret, size_t *ret_n, pp_error *err)
{
    DIR *directory = opendir(s->directory);
    if (!directory)
        return pp_error_errno(err, "opening %s", s->directory);
    int64_t *seqs = calloc(FILES_MAX, sizeof *seqs);
    size_t n = 0;
    const struct dirent *entry;
    while (seqs && n < FILES_MAX && (entry = readdir(directory)))
        n += number_of(s, entry->d_name, &seqs[n]);
    (void)closedir(directory);
    if (!seqs)
        return pp_error_nomem(err);
    qsort(seqs, n, sizeof *seqs, compare);
    *ret = seqs;
    *ret_n = n;
    return 0;
}

int pp_spool_load(pp_spool *s, pp_spool_found found, void *user, pp_error *err)
{
    PP_CLEANUP_FREE int64_t *seqs = NULL;
    size_t n = 0;
    if (list(s, &seqs, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        pp_error why = {0};
        pp_spool_batch batch = {0};
        if (pp_spool_get(s, seqs[i], &batch, &why) == 0) {
            size_t size = (size_t)(batch.text - s->text) + batch.length;
            found(user, &batch, (size + BLOCK - 1) / BLOCK * BLOCK);
            continue;
        }
        pp_warn(s->directory, "batch %" PRId64 " is not whole and is removed: %s%s%s", seqs[i],
                why.field, *why.field ? " " : "", why.message);
        pp_spool_remove(s, seqs[i]);
    }
    return 0;
}
