/* The trainer's side of the shared memory: makes the file, writes marks into it. */
#include "sidecar/hook/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    pp_ring_header *header; /* NULL: no ring */
    pp_ring_layer *layers;
    pp_mark *marks;
    pp_kernel *kernels;
    char *names;
    pp_ring_site *sites;
    uint32_t site_count;
    pp_ring_graph *graphs;
    pp_ring_launch *launches;
    uint32_t graph_count, launch_count;
    uint32_t names_size;
    uint64_t kernel_head;
    uint64_t kernel_tail;
    uint64_t head;    /* private copies: the agent's side cannot spoil them */
    uint64_t tail;    /* the last that was believed */
    uint64_t pending; /* marks lost since the last one written */
    uint32_t layer_count;
    atomic_int memory; /* of all of the file: UNTRIED, WHOLE or FULL */
    int fd;
    dev_t device; /* and inode: of the file behind it */
    ino_t inode;
    char id[17];
    atomic_bool closed; /* let go; mapped all the same: another thread may be at it */
    char fresh[PATH_MAX];
    char final[PATH_MAX];
} ring = {.fd = -1};

/* Whether the agent is there, as the hook's own thread sees it. */
static struct {
    uint32_t beat;
    int64_t changed; /* when it did last, ns */
    atomic_bool gone;
} agent;

#define AGENT_GONE_AFTER INT64_C(30000000000)
#define LOOK_EVERY INT64_C(1000000000)

pp_ring_header *pp_ring(void)
{
    return atomic_load_explicit(&ring.closed, memory_order_relaxed) ? NULL : ring.header;
}

void pp_copy_text(char *out, size_t size, const char *text)
{
    size_t n = strlen(text);
    if (n >= size)
        n = size - 1;
    /* Not in the middle of a UTF-8 sequence. */
    while (n > 0 && text[n] != '\0' && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    memcpy(out, text, n);
    memset(out + n, 0, size - n);
}

/* Keeps the tail of a name that is too long: the end is what tells layers apart. */
static void copy_name(char *out, size_t size, const char *name)
{
    size_t n = strlen(name);
    if (n < size) {
        pp_copy_text(out, size, name);
        return;
    }
    const char *from = name + (n - (size - 4));
    while (((unsigned char)*from & 0xC0) == 0x80)
        from++;
    memcpy(out, "...", 3);
    pp_copy_text(out + 3, size - 3, from);
}

static int random_id(char *out, size_t size)
{
    unsigned char bytes[8];
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    if (n != (ssize_t)sizeof bytes || size < 2 * sizeof bytes + 1)
        return -1;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static const char full[] = "the ring directory is full";
static const char closed[] = "the program has closed a descriptor of the hook's";

enum { UNTRIED, TRYING, WHOLE, FULL };

/* Asked again where a signal came between. */
static int allocate(int fd, size_t size)
{
    enum { TRIES = 8 };
    int rc = EINTR;
    for (int i = 0; i < TRIES && rc == EINTR; i++)
        rc = posix_fallocate(fd, 0, (off_t)size);
    return rc;
}

/* Whether the descriptor is still the ring's: a program may close all that it did not open, and
 * then open a file of its own under the number. */
static bool has_descriptor(void)
{
    struct stat now;
    return fstat(ring.fd, &now) == 0 && now.st_dev == ring.device && now.st_ino == ring.inode;
}

/* A page that a full volume cannot give would end the process that writes it, so all are asked for
 * before the first is written; by one thread: what the others write meanwhile is lost. */
static bool get_memory(pp_ring_header *h)
{
    int untried = UNTRIED;
    if (!atomic_compare_exchange_strong(&ring.memory, &untried, TRYING))
        return false;
    const int64_t begun = pp_now();
    const int rc = has_descriptor() ? allocate(ring.fd, PP_RING_SIZE) : EBADF;
    pp_ring_cost_add(pp_now() - begun);
    if (rc != 0 && rc != EINTR)
        pp_copy_text(h->refusal, sizeof h->refusal, rc == EBADF ? closed : full);
    atomic_store_explicit(&ring.memory,
                          rc == 0       ? WHOLE
                          : rc == EINTR ? UNTRIED
                                        : FULL,
                          memory_order_release);
    return rc == 0;
}

/* Whether there is a ring that can be written behind its header. That part has no memory until
 * something is: most processes that import torch never make a step. */
static bool writable(void)
{
    pp_ring_header *h = ring.header;
    const int memory = atomic_load_explicit(&ring.memory, memory_order_acquire);
    return h && (memory == WHOLE || (memory == UNTRIED && get_memory(h)));
}

/* Any user may write: trainer and agent often run as different ones, in a volume of their own. */
static const char *make_file(const char *path, int *ret_fd)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return "the ring directory cannot be written";
    const char *why = NULL;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) /* first: what nobody holds may be removed */
        why = "the ring cannot be locked";
    else if (fchmod(fd, 0666) < 0)
        why = "the ring's mode cannot be set";
    else if (allocate(fd, sizeof(pp_ring_header)) != 0 || ftruncate(fd, (off_t)PP_RING_SIZE) != 0)
        why = full;
    if (why) {
        close(fd);
        (void)unlink(path);
        return why;
    }
    *ret_fd = fd;
    return NULL;
}

static void fill_header(pp_ring_header *h)
{
    h->version = PP_RING_VERSION;
    h->header_size = sizeof *h;
    h->mark_size = sizeof(pp_mark);
    h->mark_count = PP_RING_MARKS;
    h->layer_size = sizeof(pp_ring_layer);
    h->layer_capacity = PP_RING_LAYERS;
    h->tail_check = h->kernel_tail_check = ~UINT64_C(0);
    h->process_id = getpid();
    h->magic = PP_RING_MAGIC;
}

static const char *map_file(int fd)
{
    struct stat file;
    if (fstat(fd, &file) < 0)
        return "the ring cannot be mapped";
    char *base = mmap(NULL, PP_RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return "the ring cannot be mapped";
    ring.device = file.st_dev;
    ring.inode = file.st_ino;
    ring.header = (pp_ring_header *)(void *)base;
    ring.layers = (pp_ring_layer *)(void *)(base + PP_RING_LAYERS_AT);
    ring.marks = (pp_mark *)(void *)(base + PP_RING_MARKS_AT);
    ring.kernels = (pp_kernel *)(void *)(base + PP_RING_KERNELS_AT);
    ring.names = base + PP_RING_NAMES_AT;
    ring.names_size = ring.site_count = 0;
    ring.sites = (pp_ring_site *)(void *)(base + PP_RING_SITES_AT);
    ring.graphs = (pp_ring_graph *)(void *)(base + PP_RING_GRAPHS_AT);
    ring.launches = (pp_ring_launch *)(void *)(base + PP_RING_LAUNCHES_AT);
    ring.graph_count = ring.launch_count = 0;
    ring.head = ring.tail = ring.pending = 0;
    ring.kernel_head = ring.kernel_tail = 0;
    ring.layer_count = 0;
    atomic_store(&ring.memory, UNTRIED);
    ring.fd = fd;
    fill_header(ring.header);
    return NULL;
}

const char *pp_ring_open(const char *directory)
{
    if (ring.header)
        return "there is a ring already";
    if (random_id(ring.id, sizeof ring.id) < 0)
        return "no random id";
    int n = snprintf(ring.fresh, sizeof ring.fresh, "%s/" PP_RING_UNNAMED "%s", directory, ring.id);
    int m = snprintf(ring.final, sizeof ring.final, "%s/%s" PP_RING_SUFFIX, directory, ring.id);
    if (n < 0 || (size_t)n >= sizeof ring.fresh || m < 0 || (size_t)m >= sizeof ring.final)
        return "the ring directory's name is too long";
    int fd = -1;
    const char *why = make_file(ring.fresh, &fd);
    if (why)
        return why;
    why = map_file(fd);
    if (why) {
        (void)unlink(ring.fresh);
        close(fd);
    }
    return why;
}

char *pp_ring_id(void)
{
    return ring.id;
}

const char *pp_ring_publish(void)
{
    if (rename(ring.fresh, ring.final) == 0)
        return NULL;
    (void)unlink(ring.fresh);
    pp_ring_close(true);
    return "the ring cannot be named";
}

void pp_ring_close(bool abandon)
{
    pp_ring_header *h = ring.header;
    if (!h)
        return;
    if (!abandon) {
        /* Still locked until the process is gone. */
        atomic_store(&ring.closed, true);
        __atomic_store_n(&h->state, PP_RING_IDLE, __ATOMIC_RELEASE);
        __atomic_store_n(&h->detached, 1, __ATOMIC_RELEASE);
        return;
    }
    ring.header = NULL;
    (void)munmap(h, PP_RING_SIZE);
    /* The lock belongs to the open file, which the forked child's parent still has. */
    if (has_descriptor())
        close(ring.fd);
    ring.fd = -1;
}

void pp_ring_refuse(const char *why)
{
    pp_ring_header *h = pp_ring();
    if (h && atomic_load(&ring.memory) != FULL) /* which has said why */
        pp_copy_text(h->refusal, sizeof h->refusal, why);
}

uint32_t pp_ring_add_layer(const char *name, const char *type, int64_t parameters)
{
    if (ring.layer_count >= PP_RING_LAYERS || !writable())
        return 0;
    pp_ring_layer *layer = &ring.layers[ring.layer_count];
    layer->parameters = parameters;
    copy_name(layer->name, sizeof layer->name, name);
    pp_copy_text(layer->type, sizeof layer->type, type);
    ring.layer_count++;
    __atomic_store_n(&ring.header->layer_count, ring.layer_count, __ATOMIC_RELEASE);
    return ring.layer_count;
}

uint32_t pp_ring_add_site(const char *file, uint32_t line)
{
    if (!writable())
        return 0;
    pp_ring_site new = {.line = line};
    copy_name(new.file, sizeof new.file, file);
    for (uint32_t i = 0; i < ring.site_count; i++)
        if (ring.sites[i].line == line && strcmp(ring.sites[i].file, new.file) == 0)
            return i + 1;
    if (ring.site_count >= PP_RING_SITES)
        return 0;
    ring.sites[ring.site_count++] = new;
    __atomic_store_n(&ring.header->site_count, ring.site_count, __ATOMIC_RELEASE);
    return ring.site_count;
}

bool pp_ring_add_graph(uint32_t graph, uint32_t region, const pp_ring_launch *launches,
                       uint32_t count)
{
    if (ring.graph_count >= PP_RING_GRAPHS || count > PP_RING_LAUNCHES - ring.launch_count ||
        !writable())
        return false;
    if (count > 0)
        memcpy(&ring.launches[ring.launch_count], launches, count * sizeof *launches);
    ring.graphs[ring.graph_count++] = (pp_ring_graph){
        .graph = graph, .region = region, .first = ring.launch_count, .count = count};
    ring.launch_count += count;
    __atomic_store_n(&ring.header->graph_count, ring.graph_count, __ATOMIC_RELEASE);
    return true;
}

void pp_ring_leave_out(uint32_t layer, unsigned phase, unsigned reason)
{
    if (ring.header && layer > 0 && layer <= ring.layer_count && phase < 2 &&
        reason < PP_LEFT_COUNT)
        ring.layers[layer - 1].skip_reason[phase] = (uint8_t)reason;
}

void pp_ring_tell_whole(uint32_t layer, unsigned reason)
{
    if (ring.header && layer > 0 && layer <= ring.layer_count && reason < PP_WHOLE_COUNT)
        ring.layers[layer - 1].whole_reason = (uint8_t)reason;
}

/* Takes the reader's word for how far it is where it is whole and possible. */
static void follow(const uint64_t *theirs, const uint64_t *check, uint64_t head, uint64_t *tail)
{
    uint64_t now = __atomic_load_n(theirs, __ATOMIC_ACQUIRE);
    if (now == ~__atomic_load_n(check, __ATOMIC_ACQUIRE) && now >= *tail && now <= head)
        *tail = now;
}

/* Free places. */
static uint64_t room(void)
{
    follow(&ring.header->tail, &ring.header->tail_check, ring.head, &ring.tail);
    return PP_RING_MARKS - (ring.head - ring.tail);
}

static void write_mark(const pp_mark *mark)
{
    ring.marks[ring.head & (PP_RING_MARKS - 1)] = *mark;
    ring.head++;
    __atomic_store_n(&ring.header->head, ring.head, __ATOMIC_RELEASE);
}

void pp_ring_count_lost(uint64_t count)
{
    if (ring.header)
        __atomic_fetch_add(&ring.header->lost, count, __ATOMIC_RELAXED);
}

void pp_ring_lost_here(uint64_t count)
{
    ring.pending += count;
}

/* One that is about to be written. */
static void lose_mark(void)
{
    pp_ring_count_lost(1);
    pp_ring_lost_here(1);
}

void pp_ring_push(const pp_mark *mark)
{
    if (!ring.header)
        return;
    __atomic_fetch_add(&ring.header->marks, 1, __ATOMIC_RELAXED);
    if (!writable()) {
        lose_mark();
        return;
    }
    /* Two places: what was lost is told before the first mark that is not. */
    if (PP_RING_MARKS - (ring.head - ring.tail) < 2 && room() < 2) {
        lose_mark();
        return;
    }
    if (ring.pending) {
        pp_mark lost = *mark;
        lost.kind = PP_MARK_LOST;
        lost.value = (int64_t)ring.pending;
        ring.pending = 0;
        write_mark(&lost);
        if (PP_RING_MARKS - (ring.head - ring.tail) < 1 && room() < 1) {
            lose_mark();
            return;
        }
    }
    write_mark(mark);
}

void pp_ring_lose_kernels(uint64_t count)
{
    if (ring.header)
        __atomic_fetch_add(&ring.header->kernels_lost, count, __ATOMIC_RELEASE);
}

uint64_t pp_ring_kernels_lost(void)
{
    return ring.header ? __atomic_load_n(&ring.header->kernels_lost, __ATOMIC_RELAXED) : 0;
}

void pp_ring_push_kernel(const pp_kernel *kernel)
{
    pp_ring_header *h = ring.header;
    if (!writable()) {
        pp_ring_lose_kernels(1);
        return;
    }
    if (ring.kernel_head - ring.kernel_tail >= PP_RING_KERNELS)
        follow(&h->kernel_tail, &h->kernel_tail_check, ring.kernel_head, &ring.kernel_tail);
    if (ring.kernel_head - ring.kernel_tail >= PP_RING_KERNELS) {
        pp_ring_lose_kernels(1);
        return;
    }
    ring.kernels[ring.kernel_head & (PP_RING_KERNELS - 1)] = *kernel;
    ring.kernel_head++;
    __atomic_store_n(&h->kernel_head, ring.kernel_head, __ATOMIC_RELEASE);
}

bool pp_ring_add_name(const char *name, size_t n)
{
    if (n + 1 > PP_RING_NAMES_SIZE - ring.names_size || !writable())
        return false;
    memcpy(ring.names + ring.names_size, name, n);
    ring.names[ring.names_size + n] = '\0';
    ring.names_size += (uint32_t)n + 1;
    __atomic_store_n(&ring.header->names_size, ring.names_size, __ATOMIC_RELEASE);
    return true;
}

static struct {
    bool on;
    int64_t ns;
} held;

void pp_ring_cost_add(int64_t ns)
{
    if (ring.header && ns > 0)
        __atomic_fetch_add(&ring.header->cost, ns, __ATOMIC_RELAXED);
}

void pp_ring_cost(int64_t ns)
{
    if (held.on)
        held.ns += ns > 0 ? ns : 0;
    else
        pp_ring_cost_add(ns);
}

int64_t pp_ring_cost_hold(bool hold)
{
    int64_t ns = held.ns;
    held.ns = 0;
    held.on = hold;
    return ns;
}

uint32_t pp_ring_mode_now(void)
{
    const pp_ring_header *h = pp_ring();
    if (!h || atomic_load_explicit(&agent.gone, memory_order_relaxed))
        return PP_RING_IDLE;
    return __atomic_load_n(&h->mode, __ATOMIC_ACQUIRE);
}

uint32_t pp_ring_session(void)
{
    const pp_ring_header *h = pp_ring();
    return h ? __atomic_load_n(&h->session, __ATOMIC_ACQUIRE) : 0;
}

/* An agent that is gone asks for nothing, whatever its last word was. */
static void look_after_agent(const pp_ring_header *h)
{
    uint32_t beat = __atomic_load_n(&h->beat, __ATOMIC_RELAXED);
    int64_t now = pp_now();
    if (beat != agent.beat || agent.changed == 0) {
        agent.beat = beat;
        agent.changed = now;
    }
    atomic_store(&agent.gone, now - agent.changed > AGENT_GONE_AFTER);
}

void pp_ring_wait(uint32_t seen, int64_t ns)
{
    pp_ring_header *h = pp_ring();
    if (!h)
        return;
    uint32_t word = __atomic_load_n(&h->mode, __ATOMIC_ACQUIRE);
    if (word == PP_RING_IDLE) {
        agent.changed = 0; /* nothing to look after */
    } else {
        look_after_agent(h);
        ns = ns < LOOK_EVERY ? ns : LOOK_EVERY;
    }
    if (pp_ring_mode_now() != seen)
        return;
    struct timespec timeout = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)syscall(SYS_futex, &h->mode, FUTEX_WAIT, word, &timeout, NULL, 0);
}

void pp_ring_wake(bool for_good)
{
    pp_ring_header *h = ring.header;
    if (!h)
        return;
    /* A wait that is about to begin finds another word than it has seen. */
    if (for_good)
        __atomic_store_n(&h->mode, UINT32_MAX, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &h->mode, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
