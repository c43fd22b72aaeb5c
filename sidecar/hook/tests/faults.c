/*
 * Makes what the hook's extension asks of the system and of Python fail, and nothing else in the
 * process: loaded by LD_PRELOAD, steered by pp_fault() or, from the beginning, by PP_FAULT in the
 * environment (`name` or `name:n`, the n-th call from now on; without n every one).
 */
#include "sidecar/ring.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

static char fault[32];
static int nth; /* 0: every call */

API void pp_fault(const char *name);
API void pp_fault(const char *name)
{
    (void)snprintf(fault, sizeof fault, "%s", name);
    char *colon = strchr(fault, ':');
    nth = colon ? atoi(colon + 1) : 0;
    if (colon)
        *colon = '\0';
}

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("PP_FAULT");
    pp_fault(name ? name : "");
}

static bool of_hook(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, "/_marks.abi3.so");
}

static bool fails(const char *name, const void *caller)
{
    return strcmp(fault, name) == 0 && of_hook(caller) && (nth == 0 || --nth == 0);
}

/* "preempted": each n-th reading of the clock comes back 2 ms late, as where another thread has the
 * processor meanwhile. */
API int clock_gettime(clockid_t clock, struct timespec *ret)
{
    static int (*original)(clockid_t, struct timespec *);
    static int calls;
    if (!original)
        *(void **)&original = dlsym(RTLD_NEXT, "clock_gettime");
    const int rc = original(clock, ret);
    if (strcmp(fault, "preempted") == 0 && of_hook(__builtin_return_address(0)) &&
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % nth == 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    return rc;
}

/* A function of libc, under both of its names, that fails with errno or by its return value. */
#define FAIL(type, name, other, failed, error, parameters, arguments)                              \
    API type name parameters;                                                                      \
    API type name parameters                                                                       \
    {                                                                                              \
        if (fails(#other, __builtin_return_address(0))) {                                          \
            errno = error;                                                                         \
            return failed;                                                                         \
        }                                                                                          \
        type(*real) parameters;                                                                    \
        *(void **)&real = dlsym(RTLD_NEXT, #name);                                                 \
        return real arguments;                                                                     \
    }

FAIL(ssize_t, read, read, -1, EIO, (int fd, void *to, size_t n), (fd, to, n))
FAIL(int, fchmod, fchmod, -1, EPERM, (int fd, mode_t mode), (fd, mode))
FAIL(int, flock, flock, -1, ENOLCK, (int fd, int how), (fd, how))
FAIL(int, rename, rename, -1, EROFS, (const char *from, const char *to), (from, to))
FAIL(int, posix_fallocate, posix_fallocate, ENOSPC, 0, (int fd, off_t at, off_t n), (fd, at, n))
FAIL(int, posix_fallocate64, posix_fallocate, ENOSPC, 0, (int fd, off_t at, off_t n), (fd, at, n))
FAIL(void *, mmap, mmap, MAP_FAILED, ENOMEM,
     (void *at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset))
FAIL(void *, mmap64, mmap, MAP_FAILED, ENOMEM,
     (void *at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset))
/* What open() was given as its mode, if it was. */
#define MODE                                                                                       \
    ({                                                                                             \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                    \
        va_end(more);                                                                              \
        mode;                                                                                      \
    })
FAIL(int, open, open, -1, EMFILE, (const char *path, int flags, ...), (path, flags, MODE))
FAIL(int, open64, open, -1, EMFILE, (const char *path, int flags, ...), (path, flags, MODE))
FAIL(int, pthread_create, pthread_create, EAGAIN, 0,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *), void *of),
     (thread, attributes, body, of))

/* ---- Python's memory ---- */

/* PyMemAllocatorEx and the two domains whose users hold the GIL. */
typedef struct allocator {
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *);
} allocator;

enum { DOMAIN_MEM = 1, DOMAIN_OBJ = 2, SPARED = 100, FRAMES = 128, FRAMES_OF_C = 6 };

static allocator real[DOMAIN_OBJ + 1];
static unsigned one_in;     /* of the hook's allocations; 0: none fails */
static unsigned spared;     /* that succeed before one fails again: what cleans up is not hit */
static unsigned draws = 17; /* of a generator that gives the same numbers in every run */
static bool whole;
static int failed;
static uintptr_t hook_begin, hook_end;

static int find_hook(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (!strstr(info->dlpi_name, "/_marks.abi3.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
            hook_begin = info->dlpi_addr + part->p_vaddr;
            hook_end = hook_begin + part->p_memsz;
        }
    }
    return 1;
}

/* Whether the hook is what asks: its C by a call of Python's API, or with more frames its Python
 * too. */
static bool hook_asks(void)
{
    void *frames[FRAMES];
    int n = backtrace(frames, whole ? FRAMES : FRAMES_OF_C);
    for (int i = 0; i < n; i++)
        if ((uintptr_t)frames[i] >= hook_begin && (uintptr_t)frames[i] < hook_end)
            return true;
    return false;
}

static bool refuses(void)
{
    if (one_in == 0 || !hook_asks())
        return false;
    if (spared > 0) {
        spared--;
        return false;
    }
    draws = draws * 1103515245U + 12345U;
    if ((draws >> 16) % one_in != 0)
        return false;
    failed++;
    spared = SPARED;
    return true;
}

static void *own_malloc(void *of, size_t n)
{
    allocator *a = of;
    return refuses() ? NULL : a->malloc(a->context, n);
}

static void *own_calloc(void *of, size_t n, size_t size)
{
    allocator *a = of;
    return refuses() ? NULL : a->calloc(a->context, n, size);
}

static void *own_realloc(void *of, void *p, size_t n)
{
    allocator *a = of;
    return refuses() ? NULL : a->realloc(a->context, p, n);
}

static void own_free(void *of, void *p)
{
    allocator *a = of;
    a->free(a->context, p);
}

/** From now on one of n of the hook's allocations fails, of its C or with `python` of all of it; 0:
 * none. With the GIL held. */
API void pp_fault_memory(unsigned n, bool python);
API void pp_fault_memory(unsigned n, bool python)
{
    void (*get)(int, allocator *), (*set)(int, allocator *);
    *(void **)&get = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    *(void **)&set = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    one_in = n;
    whole = python;
    (void)dl_iterate_phdr(find_hook, NULL);
    for (int domain = DOMAIN_MEM; domain <= DOMAIN_OBJ && !real[domain].malloc; domain++) {
        get(domain, &real[domain]);
        allocator own = {&real[domain], own_malloc, own_calloc, own_realloc, own_free};
        set(domain, &own);
    }
}

/** How many allocations have failed. */
API int pp_fault_count(void);
API int pp_fault_count(void)
{
    return failed;
}

/* ---- what the ring says ---- */

/** Writes what a ring's header counts as JSON; returns 0, or -1 where it cannot be read. */
API int pp_fault_ring(const char *path, char *out, size_t size);
API int pp_fault_ring(const char *path, char *out, size_t size)
{
    pp_ring_header h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, &h, sizeof h);
    close(fd);
    if (n != (ssize_t)sizeof h)
        return -1;
    (void)snprintf(
        out, size,
        "{\"head\": %llu, \"lost\": %llu, \"marks\": %llu, \"failures\": %u, "
        "\"detached\": %u, \"state\": %u, \"capacity\": %u, \"clock\": \"%.15s\", "
        "\"kernels\": \"%.63s\", \"fine\": \"%.63s\", \"kernel_head\": %llu, "
        "\"kernels_lost\": %llu, \"refusal\": \"%.63s\", \"gpus\": \"%.255s\", \"steps\": %lld}",
        (unsigned long long)h.head, (unsigned long long)h.lost, (unsigned long long)h.marks,
        h.failures, h.detached, h.state, h.mark_count, h.clock, h.kernels, h.pm,
        (unsigned long long)h.kernel_head, (unsigned long long)h.kernels_lost, h.refusal, h.gpus,
        (long long)h.steps);
    return 0;
}

/** Writes the session's number, as an agent does; returns 0, or -1 where it cannot be written. */
API int pp_fault_session(const char *path, uint32_t number);
API int pp_fault_session(const char *path, uint32_t number)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pwrite(fd, &number, sizeof number, offsetof(pp_ring_header, session));
    close(fd);
    return n == (ssize_t)sizeof number ? 0 : -1;
}
