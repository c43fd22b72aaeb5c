#include "sidecar/agent/reader.h"

#include "common/cleanup.h"
#include "sidecar/agent/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define COST_MAX (INT64_C(1) << 53) /* ns */

struct pp_reader {
    int fd;
    pp_ring_header header;
    uint64_t tail;     /* taken */
    uint64_t released; /* as the hook knows it */
    uint64_t kernel_tail;
    pp_ring_told told;
    uint32_t mode; /* as told to the hook last */
    uint32_t beat; /* the same */
    void *page;    /* the header, mapped only so that the kernel finds the futex; never touched */
};

/* In the order of the calls. */
static int read_at(const pp_reader *r, void *out, size_t size, size_t at, pp_error *err)
{
    ssize_t n = pread(r->fd, out, size, (off_t)at);
    if (n < 0)
        return pp_error_errno(err, "reading a ring");
    if ((size_t)n != size)
        return pp_error_set(err, PP_ERR_INVALID, "the ring was cut short");
    pp_read_fence();
    return 0;
}

static int write_at(const pp_reader *r, const void *data, size_t size, size_t at, pp_error *err)
{
    ssize_t n = pwrite(r->fd, data, size, (off_t)at);
    if (n != (ssize_t)size)
        return pp_error_errno(err, "writing to a ring");
    return 0;
}

static void terminate_texts(pp_ring_header *h)
{
    h->python[sizeof h->python - 1] = '\0';
    h->torch[sizeof h->torch - 1] = '\0';
    h->hostname[sizeof h->hostname - 1] = '\0';
    h->model[sizeof h->model - 1] = '\0';
    h->model_digest[sizeof h->model_digest - 1] = '\0';
    h->batch[sizeof h->batch - 1] = '\0';
    h->clock[sizeof h->clock - 1] = '\0';
    h->gpus[sizeof h->gpus - 1] = '\0';
    h->refusal[sizeof h->refusal - 1] = '\0';
    h->kernels[sizeof h->kernels - 1] = '\0';
    h->pm[sizeof h->pm - 1] = '\0';
    h->isolated[sizeof h->isolated - 1] = '\0';
    for (int i = 0; i < PP_RING_MODELS; i++)
        h->gpu_models[i][sizeof h->gpu_models[i] - 1] = '\0';
    for (int i = 0; i < PP_RING_DEVICES; i++)
        h->devices[i].uuid[sizeof h->devices[i].uuid - 1] = '\0';
}

static int check_layout(const pp_ring_header *h, pp_error *err)
{
    if (h->magic != PP_RING_MAGIC)
        return pp_error_set(err, PP_ERR_INVALID, "not a ring");
    if (h->version != PP_RING_VERSION || h->header_size != sizeof *h ||
        h->mark_size != sizeof(pp_mark) || h->mark_count != PP_RING_MARKS ||
        h->layer_size != sizeof(pp_ring_layer) || h->layer_capacity != PP_RING_LAYERS)
        return pp_error_set(err, PP_ERR_INVALID, "a ring of another build of the hook (version %u)",
                            h->version);
    return 0;
}

/* A head is copied without atomicity: two equal looks make it whole. */
static int read_head(const pp_reader *r, size_t at, uint64_t *ret, pp_error *err)
{
    uint64_t a = 0;
    uint64_t b = 1;
    for (int i = 0; i < 16 && a != b; i++) {
        if (read_at(r, &a, sizeof a, at, err) < 0 || read_at(r, &b, sizeof b, at, err) < 0)
            return -1;
    }
    *ret = a < b ? a : b; /* still moving after 16 looks: both are whole, the smaller is safe */
    return 0;
}

int pp_reader_refresh(pp_reader *r, pp_error *err)
{
    pp_ring_header h;
    uint64_t head, kernel_head;
    if (read_head(r, offsetof(pp_ring_header, head), &head, err) < 0 ||
        read_head(r, offsetof(pp_ring_header, kernel_head), &kernel_head, err) < 0 ||
        read_at(r, &h, sizeof h, 0, err) < 0 || check_layout(&h, err) < 0)
        return -1;
    terminate_texts(&h);
    h.head = head;
    h.kernel_head = kernel_head;
    if (h.layer_count > PP_RING_LAYERS)
        h.layer_count = PP_RING_LAYERS;
    if (h.graph_count > PP_RING_GRAPHS)
        h.graph_count = PP_RING_GRAPHS;
    if (h.cost < r->header.cost || h.cost > COST_MAX)
        h.cost = r->header.cost; /* it only grows */
    if (head < r->tail || head - r->tail > PP_RING_MARKS)
        return pp_error_set(err, PP_ERR_INVALID, "the ring's head %" PRIu64 " is impossible", head);
    if (kernel_head < r->kernel_tail || kernel_head - r->kernel_tail > PP_RING_KERNELS)
        return pp_error_set(err, PP_ERR_INVALID, "the ring's kernel head %" PRIu64 " is impossible",
                            kernel_head);
    r->header = h;
    return 0;
}

/* An agent before this one got so far. */
static int find_tail(pp_reader *r, pp_error *err)
{
    uint64_t tail[4];
    if (read_at(r, tail, sizeof tail, offsetof(pp_ring_header, tail), err) < 0)
        return -1;
    r->tail = r->released = tail[0] == ~tail[1] ? tail[0] : 0;
    r->kernel_tail = tail[2] == ~tail[3] ? tail[2] : 0;
    return 0;
}

int pp_reader_open(const char *path, pp_reader **ret, pp_error *err)
{
    PP_CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return pp_error_errno(err, "opening a ring");
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != PP_RING_SIZE)
        return pp_error_set(err, PP_ERR_INVALID, "not a ring: its size is wrong");
    pp_reader *r = calloc(1, sizeof *r);
    if (!r)
        return pp_error_nomem(err);
    r->fd = fd;
    fd = -1; /* NOLINT(clang-analyzer-deadcode.DeadStores): read by its cleanup */
    r->mode = UINT32_MAX;
    r->page = mmap(NULL, sizeof(pp_ring_header), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (r->page == MAP_FAILED)
        (void)pp_error_errno(err, "mapping a ring");
    else if (find_tail(r, err) == 0 && pp_reader_refresh(r, err) == 0) {
        r->told = r->header.told;
        r->beat = r->header.beat;
        *ret = r;
        return 0;
    }
    pp_reader_free(r);
    return -1;
}

void pp_reader_free(pp_reader *r)
{
    if (!r)
        return;
    if (r->page && r->page != MAP_FAILED)
        (void)munmap(r->page, sizeof(pp_ring_header));
    close(r->fd);
    free(r);
}

const pp_ring_header *pp_reader_header(const pp_reader *r)
{
    return &r->header;
}

/* Copies up to max elements of `size` bytes from a queue of `places` of them, a power of two. */
static long take(const pp_reader *r, uint64_t *tail, uint64_t head, size_t at, size_t size,
                 size_t places, char *out, size_t max, pp_error *err)
{
    uint64_t there = head - *tail;
    size_t n = there < max ? (size_t)there : max;
    size_t done = 0;
    while (done < n) {
        size_t from = (size_t)((*tail + done) & (places - 1));
        size_t run = n - done < places - from ? n - done : places - from;
        if (read_at(r, out + done * size, run * size, at + from * size, err) < 0)
            return -1;
        done += run;
    }
    *tail += n;
    return (long)n;
}

long pp_reader_take(pp_reader *r, pp_mark *marks, size_t max, pp_error *err)
{
    return take(r, &r->tail, r->header.head, PP_RING_MARKS_AT, sizeof *marks, PP_RING_MARKS,
                (char *)marks, max, err);
}

long pp_reader_take_kernels(pp_reader *r, pp_kernel *kernels, size_t max, pp_error *err)
{
    long n = take(r, &r->kernel_tail, r->header.kernel_head, PP_RING_KERNELS_AT, sizeof *kernels,
                  PP_RING_KERNELS, (char *)kernels, max, err);
    uint64_t tail[2] = {r->kernel_tail, ~r->kernel_tail};
    if (n > 0 && write_at(r, tail, sizeof tail, offsetof(pp_ring_header, kernel_tail), err) < 0)
        return -1;
    return n;
}

long pp_reader_names(pp_reader *r, uint32_t from, char *out, size_t max, pp_error *err)
{
    uint32_t size = 0;
    if (read_at(r, &size, sizeof size, offsetof(pp_ring_header, names_size), err) < 0)
        return -1;
    if (size > PP_RING_NAMES_SIZE || size <= from)
        return 0;
    size_t n = size - from < max ? size - from : max;
    return read_at(r, out, n, PP_RING_NAMES_AT + from, err) < 0 ? -1 : (long)n;
}

uint64_t pp_reader_kernels_taken(const pp_reader *r)
{
    return r->kernel_tail;
}

uint64_t pp_reader_taken(const pp_reader *r)
{
    return r->tail;
}

const pp_ring_told *pp_reader_told(const pp_reader *r)
{
    return &r->told;
}

/* What batches have told; those of no time have no marks. */
static int write_told(pp_reader *r, const pp_ring_told *told, pp_error *err)
{
    if (memcmp(told, &r->told, sizeof *told) == 0)
        return 0;
    if (write_at(r, told, sizeof *told, offsetof(pp_ring_header, told), err) < 0)
        return -1;
    r->told = *told;
    return 0;
}

/* What was told goes first: an agent killed in between has its spool, which says both. */
int pp_reader_release(pp_reader *r, uint64_t tail, const pp_ring_told *told, pp_error *err)
{
    if (tail < r->released || tail > r->tail)
        return 0;
    uint64_t pair[2] = {tail, ~tail};
    if (write_told(r, told, err) < 0)
        return -1;
    if (tail > r->released &&
        write_at(r, pair, sizeof pair, offsetof(pp_ring_header, tail), err) < 0)
        return -1;
    r->released = tail;
    return 0;
}

/* Counters only grow. */
static bool is_later(const pp_ring_told *a, const pp_ring_told *b)
{
    return a->lost > b->lost || a->marks > b->marks || a->cost > b->cost || a->paused > b->paused ||
           a->kernels_lost > b->kernels_lost;
}

int pp_reader_resume(const char *directory, const pp_place *place, pp_error *err)
{
    char path[PATH_MAX];
    pp_reader *r = NULL;
    int n = snprintf(path, sizeof path, "%s/%s", directory, place->ring);
    if (n < 0 || (size_t)n >= sizeof path || strchr(place->ring, '/'))
        return pp_error_set(err, PP_ERR_INVALID, "not the name of a ring");
    if (pp_reader_open(path, &r, err) < 0 || !r)
        return -1;
    int rc = 0;
    if (place->tail <= r->header.head &&
        (place->tail > r->tail || is_later(&place->told, &r->told))) {
        r->tail = place->tail > r->released ? place->tail : r->released;
        rc = pp_reader_release(r, r->tail, &place->told, err);
    }
    pp_reader_free(r);
    return rc;
}

int pp_reader_layer(pp_reader *r, uint32_t id, pp_ring_layer *ret, pp_error *err)
{
    if (id < 1 || id > r->header.layer_count)
        return pp_error_set(err, PP_ERR_INVALID, "layer %u is not in the ring's table", id);
    if (read_at(r, ret, sizeof *ret, PP_RING_LAYERS_AT + (id - 1) * sizeof *ret, err) < 0)
        return -1;
    ret->name[sizeof ret->name - 1] = '\0';
    ret->type[sizeof ret->type - 1] = '\0';
    return 0;
}

int pp_reader_site(const pp_reader *r, uint32_t number, pp_ring_site *ret, pp_error *err)
{
    if (number < 1 || number > PP_RING_SITES)
        return pp_error_set(err, PP_ERR_INVALID, "line %u is not in the ring's table", number);
    if (read_at(r, ret, sizeof *ret, PP_RING_SITES_AT + (number - 1) * sizeof *ret, err) < 0)
        return -1;
    ret->file[sizeof ret->file - 1] = '\0';
    return 0;
}

int pp_reader_graph(const pp_reader *r, uint32_t at, pp_ring_graph *ret, pp_error *err)
{
    if (at >= r->header.graph_count)
        return pp_error_set(err, PP_ERR_INVALID, "graph %u is not in the ring's table", at);
    if (read_at(r, ret, sizeof *ret, PP_RING_GRAPHS_AT + at * sizeof *ret, err) < 0)
        return -1;
    if (ret->first > PP_RING_LAUNCHES || ret->count > PP_RING_LAUNCHES - ret->first)
        ret->first = ret->count = 0;
    return 0;
}

int pp_reader_launches(const pp_reader *r, const pp_ring_graph *graph, pp_ring_launch *ret,
                       pp_error *err)
{
    return read_at(r, ret, graph->count * sizeof *ret,
                   PP_RING_LAUNCHES_AT + graph->first * sizeof *ret, err);
}

int pp_reader_set_mode(pp_reader *r, pp_ring_mode mode, pp_error *err)
{
    uint32_t value = mode;
    if (r->mode == value)
        return 0;
    if (write_at(r, &value, sizeof value, offsetof(pp_ring_header, mode), err) < 0)
        return -1;
    r->mode = value;
    /* On a file that was cut short this is EFAULT, not a signal. */
    char *word = (char *)r->page + offsetof(pp_ring_header, mode);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return 0;
}

int pp_reader_set_session(const pp_reader *r, uint32_t session, pp_error *err)
{
    return write_at(r, &session, sizeof session, offsetof(pp_ring_header, session), err);
}

int pp_reader_beat(pp_reader *r, pp_error *err)
{
    r->beat++;
    return write_at(r, &r->beat, sizeof r->beat, offsetof(pp_ring_header, beat), err);
}

bool pp_reader_gone(const pp_reader *r)
{
    if (flock(r->fd, LOCK_SH | LOCK_NB) < 0)
        return false;
    (void)flock(r->fd, LOCK_UN);
    return true;
}
