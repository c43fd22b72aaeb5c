#include "sidecar/agent/sampler.h"

#include "common/cleanup.h"
#include "sidecar/agent/fence.h"
#include "sidecar/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

struct pp_sampler {
    int fd;
    pp_samples_header header;
    uint64_t tail;
    uint32_t want, beat;
};

/* In the order of the calls. */
static int read_at(const pp_sampler *s, void *out, size_t size, size_t at, pp_error *err)
{
    ssize_t n = pread(s->fd, out, size, (off_t)at);
    if (n < 0)
        return pp_error_errno(err, "reading samples");
    if ((size_t)n != size)
        return pp_error_set(err, PP_ERR_INVALID, "the samples' file was cut short");
    pp_read_fence();
    return 0;
}

static int write_at(const pp_sampler *s, const void *data, size_t size, size_t at, pp_error *err)
{
    if (pwrite(s->fd, data, size, (off_t)at) != (ssize_t)size)
        return pp_error_errno(err, "writing to a samples' file");
    return 0;
}

static int check_layout(const pp_samples_header *h, pp_error *err)
{
    if (h->magic != PP_SAMPLES_MAGIC || h->version != PP_SAMPLES_VERSION ||
        h->header_size != sizeof *h || h->sample_size != sizeof(pp_samples_one) ||
        h->sample_count != PP_SAMPLES_COUNT)
        return pp_error_set(err, PP_ERR_INVALID, "samples of another build of the sampler");
    return 0;
}

static void terminate_texts(pp_samples_header *h)
{
    h->gpu[sizeof h->gpu - 1] = '\0';
    h->chip[sizeof h->chip - 1] = '\0';
    h->why[sizeof h->why - 1] = '\0';
    for (int m = 0; m < PP_SAMPLES_METRICS; m++)
        h->sources[m][sizeof h->sources[m] - 1] = '\0';
}

/* A number that may be written meanwhile is whole where two looks agree; the smaller is safe. */
static int read_number(const pp_sampler *s, size_t at, uint64_t *ret, pp_error *err)
{
    uint64_t a = 0, b = 1;
    for (int i = 0; i < 16 && a != b; i++)
        if (read_at(s, &a, sizeof a, at, err) < 0 || read_at(s, &b, sizeof b, at, err) < 0)
            return -1;
    *ret = a < b ? a : b;
    return 0;
}

int pp_sampler_refresh(pp_sampler *s, pp_error *err)
{
    pp_samples_header h;
    uint64_t head;
    /* The state goes first: samples written before it are in the head that is read after it. */
    if (read_at(s, &h, sizeof h, 0, err) < 0 || check_layout(&h, err) < 0 ||
        read_number(s, offsetof(pp_samples_header, head), &head, err) < 0)
        return -1;
    terminate_texts(&h);
    h.head = head;
    if (head < s->tail || head - s->tail > PP_SAMPLES_COUNT)
        return pp_error_set(err, PP_ERR_INVALID, "the samples' head %" PRIu64 " is impossible",
                            head);
    s->header = h;
    return 0;
}

bool pp_sampler_path(const char *ring, int device, char *out, size_t size)
{
    const size_t suffix = sizeof PP_RING_SUFFIX - 1, n = strlen(ring);
    char of_gpu[16] = "";
    if (device >= 0)
        (void)snprintf(of_gpu, sizeof of_gpu, "-%d", device);
    int length = n > suffix ? snprintf(out, size, "%.*s%s" PP_SAMPLES_SUFFIX, (int)(n - suffix),
                                       ring, of_gpu)
                            : -1;
    return length >= 0 && (size_t)length < size;
}

int pp_sampler_open(const char *path, pp_sampler **ret, pp_error *err)
{
    PP_CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 && errno == ENOENT)
        return pp_error_set(err, PP_ERR_NOT_FOUND, "no sampler is there");
    if (fd < 0 || fstat(fd, &st) < 0)
        return pp_error_errno(err, "opening samples");
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != PP_SAMPLES_SIZE)
        return pp_error_set(err, PP_ERR_INVALID, "not a sampler's file: its size is wrong");
    PP_CLEANUP_FREE pp_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return pp_error_nomem(err);
    s->fd = fd;
    uint64_t tail[2];
    if (read_at(s, tail, sizeof tail, offsetof(pp_samples_header, tail), err) < 0)
        return -1;
    s->tail = tail[0] == ~tail[1] ? tail[0] : 0; /* an agent before this one got so far */
    if (pp_sampler_refresh(s, err) < 0)
        return -1;
    s->want = s->header.want;
    s->beat = s->header.beat;
    fd = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its cleanup */
    *ret = PP_TAKE(s);
    return 0;
}

void pp_sampler_free(pp_sampler *s, bool leave)
{
    pp_error err = {0};
    if (!s)
        return;
    (void)pp_sampler_set_want(s, leave ? PP_SAMPLES_LEAVE : PP_SAMPLES_REST, &err);
    close(s->fd);
    free(s);
}

const pp_samples_header *pp_sampler_header(const pp_sampler *s)
{
    return &s->header;
}

long pp_sampler_take(pp_sampler *s, pp_samples_one *samples, size_t max, pp_error *err)
{
    uint64_t there = s->header.head - s->tail;
    size_t n = there < max ? (size_t)there : max, done = 0;
    while (done < n) {
        size_t from = (size_t)((s->tail + done) % PP_SAMPLES_COUNT);
        size_t run = n - done < PP_SAMPLES_COUNT - from ? n - done : PP_SAMPLES_COUNT - from;
        if (read_at(s, samples + done, run * sizeof *samples,
                    PP_SAMPLES_AT + from * sizeof *samples, err) < 0)
            return -1;
        done += run;
    }
    uint64_t tail[2] = {s->tail + n, ~(s->tail + n)};
    if (n > 0 && write_at(s, tail, sizeof tail, offsetof(pp_samples_header, tail), err) < 0)
        return -1;
    s->tail += n;
    return (long)n;
}

int pp_sampler_set_want(pp_sampler *s, pp_samples_want want, pp_error *err)
{
    uint32_t value = want;
    if (s->want == value)
        return 0;
    if (write_at(s, &value, sizeof value, offsetof(pp_samples_header, want), err) < 0)
        return -1;
    s->want = value;
    return 0;
}

int pp_sampler_beat(pp_sampler *s, pp_error *err)
{
    s->beat++;
    return write_at(s, &s->beat, sizeof s->beat, offsetof(pp_samples_header, beat), err);
}

bool pp_sampler_gone(const pp_sampler *s)
{
    if (flock(s->fd, LOCK_SH | LOCK_NB) < 0)
        return false;
    (void)flock(s->fd, LOCK_UN);
    return true;
}
