/*
 * Starts the program that samples the GPU's performance monitors (sidecar/gpu/sampler.c), so that
 * nothing of the training is in it and the training does not notice:
 *
 *   hook's thread ──> a thread of its own ──clone──> keeper ──vfork──> sampler
 *
 * The keeper ends with no signal, and wait() finds it only where it is told to (__WCLONE). It has
 * closed all files before the sampler comes to be, which has a session, an environment and signals
 * of its own. A program cannot be hidden from its parent's wait(): so it has the keeper as its
 * parent, and as an orphan process 1 or the next subreaper. Where that is the training itself, as
 * in many containers, the keeper stays until the sampler has ended, and goes when its thread does.
 *
 * Keeper and sampler-to-be run in the training's memory, each on a stack of its own, and make
 * system calls only. The thread, whose errno they use, waits meanwhile.
 */
#include "sidecar/hook/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 16 << 10, SIGNALS = 64, SIGNALS_SIZE = SIGNALS / 8, NEWS_SIZE = 2048 };

typedef struct start {
    char *program, *folder, *gpu;
    char *paths, *libraries; /* PATH=..., LD_LIBRARY_PATH=... */
    char period[16];
    char id[32]; /* in the samples' name */
    char cupti[PATH_MAX];
    char *arguments[7], *environment[3];
    pid_t training;
    int device; /* CUDA's number; -1: of the one GPU */
    bool keeps; /* the keeper stays */
    int error;  /* errno of what failed */
    _Alignas(16) char stacks[2][STACK];
} start;

static _Atomic(start *) asked[PP_RING_DEVICES];

static void tell(const char *text)
{
    if (pp_ring())
        pp_copy_text(pp_ring()->pm, sizeof pp_ring()->pm, text);
}

static void set_bit(uint32_t *bits, int device)
{
    __atomic_fetch_or(bits, 1U << (unsigned)device % PP_RING_DEVICES, __ATOMIC_RELEASE);
}

/* Beside others that run, or do not. */
static void tell_started(int device)
{
    if (device < 0)
        tell("started");
    else if (pp_ring())
        set_bit(&pp_ring()->samplers_started, device);
}

static void tell_failed(int device, const char *why)
{
    tell(why);
    if (device >= 0 && pp_ring())
        set_bit(&pp_ring()->samplers_failed, device);
}

void pp_sampler_none(const char *why)
{
    tell(why);
}

static void free_start(start *s)
{
    if (!s)
        return;
    free(s->program);
    free(s->folder);
    free(s->gpu);
    free(s->paths);
    free(s->libraries);
    free(s);
}

/* ---- in the keeper and the sampler-to-be: system calls only ---- */

/* Runs `body` in a process of its own, on a stack that ends there. The process's id, or -errno.
 * (clone() of a glibc before 2.25 would overwrite what the thread knows of itself.) */
static long run_apart(unsigned long flags, int (*body)(void *), void *of, char *stack_end)
{
#if defined(__x86_64__)
    long pid;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "mov %[of], %%rdi\n\t"
                     "call *%[body]\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[leave], %%eax\n\t"
                     "syscall\n\t"
                     "1:"
                     : "=a"(pid)
                     : "0"((long)SYS_clone), "D"(flags), "S"(stack_end), "d"(0L), "r"(r10),
                       "r"(r8), [body] "r"(body), [of] "r"(of), [leave] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory");
    return pid;
#elif defined(__aarch64__)
    register unsigned long x0 __asm__("x0") = flags;
    register char *x1 __asm__("x1") = stack_end;
    register long x2 __asm__("x2") = 0;
    register long x3 __asm__("x3") = 0;
    register long x4 __asm__("x4") = 0;
    register long x8 __asm__("x8") = SYS_clone;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x0, %[of]\n\t"
                     "blr %[body]\n\t"
                     "mov x8, %[leave]\n\t"
                     "svc #0\n\t"
                     "1:"
                     : "+r"(x0)
                     : "r"(x1), "r"(x2), "r"(x3), "r"(x4),
                       "r"(x8), [body] "r"(body), [of] "r"(of), [leave] "i"(SYS_exit_group)
                     : "memory");
    return (long)x0;
#else
    (void)body, (void)of, (void)stack_end, (void)flags;
    return -ENOSYS;
#endif
}

/* The numbers in a list of entries of /proc/self/fd; how many files were closed. */
static int close_listed(const char *entries, long size, int but)
{
    int closed = 0;
    for (long at = 0; at < size;) {
        unsigned short length; /* struct linux_dirent64: 8 bytes, 8, this, a type, the name */
        int fd = 0;
        memcpy(&length, entries + at + 16, sizeof length);
        const char *name = entries + at + 19;
        while (*name >= '0' && *name <= '9')
            fd = 10 * fd + (*name++ - '0');
        if (*name == '\0' && fd != but && syscall(SYS_close, fd) == 0)
            closed++;
        at += length;
    }
    return closed;
}

/* Before Linux 5.9. The list is read anew after each piece, since closing moves it. */
static void close_by_list(void)
{
    char entries[NEWS_SIZE];
    int closed = 1;
    while (closed > 0) {
        int list = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY);
        long size;
        closed = 0;
        while (list >= 0 && closed == 0 &&
               (size = syscall(SYS_getdents64, list, entries, sizeof entries)) > 0)
            closed = close_listed(entries, size, list);
        if (list >= 0)
            (void)syscall(SYS_close, list);
    }
}

/* None of the training's files: as long as one is open here its lock holds, its pipe has no end. */
static void leave_files(void)
{
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
    if (syscall(SYS_close_range, 0U, ~0U, 0U) < 0)
        close_by_list();
    for (int fd = 0; fd < 3; fd++)
        (void)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);
}

static int become_sampler(void *of)
{
    start *s = of;
    const uint64_t as_ever[4] = {0}; /* a sigaction of the kernel's: SIG_DFL */
    for (int signal = 1; signal <= SIGNALS; signal++)
        (void)syscall(SYS_rt_sigaction, signal, as_ever, NULL, SIGNALS_SIZE);
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, as_ever, NULL, SIGNALS_SIZE);
    (void)syscall(SYS_execve, s->program, s->arguments, s->environment);
    s->error = errno;
    return 1;
}

/* Ends with its thread, and so with the training: else that one's memory would stay. */
static int keep(void *of)
{
    start *s = of;
    (void)syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    if (syscall(SYS_getppid) != s->training)
        return 1;
    leave_files();
    (void)syscall(SYS_setsid);
    long sampler = run_apart(CLONE_VM | CLONE_VFORK | SIGCHLD, become_sampler, s,
                             s->stacks[1] + STACK); /* goes on when that is a program */
    if (sampler < 0)
        s->error = (int)-sampler;
    if (!s->error)
        tell_started(s->device);
    if (s->keeps && sampler > 0) /* also for one that could not become a program */
        (void)syscall(SYS_wait4, (int)sampler, NULL, 0, NULL);
    return s->error != 0;
}

/* ---- in the training ---- */

/* The thread that waits for the keeper. */
static void *stand_by(void *of)
{
    start *s = of;
    int subreaper = 0, status = 0;
    s->training = getpid();
    s->keeps = s->training == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper);
    long keeper = run_apart(CLONE_VM, keep, s, s->stacks[0] + STACK);
    if (keeper < 0)
        s->error = (int)-keeper;
    else
        (void)waitpid((pid_t)keeper, &status, __WCLONE); /* no signal comes to this thread */
    if (s->error) {
        char text[PP_RING_TYPE];
        tell_failed(s->device, strerror_r(s->error, text, sizeof text));
    }
    if (!WIFSIGNALED(status)) /* else the sampler-to-be may still be at it */
        free_start(s);
    return NULL;
}

/* The folder of a library of the process, with a colon behind it; "": not loaded. */
static void folder_of(const char *library, char out[PATH_MAX + 1])
{
    if (!pp_find_library(library, out))
        out[0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        (void)snprintf(slash, 2, ":");
}

/* LD_LIBRARY_PATH: where this process has the libraries from goes first. */
static bool add_folders(start *s)
{
    char cupti[PATH_MAX + 1], cuda[PATH_MAX + 1];
    char *all = NULL;
    folder_of("libcupti.so", cupti);
    folder_of("libcuda.so", cuda);
    if (asprintf(&all, "LD_LIBRARY_PATH=%s%s%s", cupti, cuda, s->libraries) < 0)
        return false;
    char *end = strrchr(all, ':');
    if (end && !end[1]) /* what is empty would be the working directory */
        *end = '\0';
    free(s->libraries);
    s->libraries = all;
    return true;
}

static const char *begin(start *s)
{
    pthread_t thread;
    if (!pp_find_library("libcupti.so", s->cupti))
        return "no CUPTI is loaded";
    if (!add_folders(s))
        return "out of memory";
    char *arguments[] = {s->program, s->folder, s->id, s->gpu, s->period, s->cupti, NULL};
    memcpy(s->arguments, arguments, sizeof arguments);
    s->environment[0] = s->paths;
    s->environment[1] = s->libraries;
    if (pthread_create(&thread, NULL, stand_by, s) != 0) /* its signals are masked as this one's */
        return "no thread";
    (void)pthread_detach(thread);
    return NULL;
}

static bool copy_texts(start *s, const char *program, const char *folder, const char *gpu,
                       const char *paths, const char *libraries)
{
    s->program = strdup(program);
    s->folder = strdup(folder);
    s->gpu = strdup(gpu);
    s->libraries = strdup(libraries);
    if (asprintf(&s->paths, "PATH=%s", paths) < 0)
        s->paths = NULL;
    return s->program && s->folder && s->gpu && s->libraries && s->paths;
}

void pp_sampler_ask(const char *program, const char *folder, const char *gpu, int device,
                    uint32_t period, const char *paths, const char *libraries)
{
    const unsigned slot = device < 0 ? 0 : (unsigned)device % PP_RING_DEVICES;
    start *s = calloc(1, sizeof *s);
    if (pp_ring() && device >= 0)
        set_bit(&pp_ring()->samplers, device);
    if (!s || !copy_texts(s, program, folder, gpu, paths, libraries)) {
        free_start(s);
        tell_failed(device, "out of memory");
        return;
    }
    s->device = device;
    (void)snprintf(s->period, sizeof s->period, "%u", period);
    if (device < 0)
        (void)snprintf(s->id, sizeof s->id, "%s", pp_ring_id());
    else
        (void)snprintf(s->id, sizeof s->id, "%s-%u", pp_ring_id(), slot);
    free_start(atomic_exchange(&asked[slot], s));
}

void pp_sampler_poll(void)
{
    for (int i = 0; i < PP_RING_DEVICES; i++) {
        start *s = atomic_exchange(&asked[i], NULL);
        const char *why = s ? begin(s) : NULL;
        if (why) {
            tell_failed(s->device, why);
            free_start(s);
        }
    }
}

void pp_sampler_forget(void)
{
    for (int i = 0; i < PP_RING_DEVICES; i++)
        free_start(atomic_exchange(&asked[i], NULL));
    if (pp_ring()) {
        __atomic_store_n(&pp_ring()->samplers, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&pp_ring()->samplers_started, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&pp_ring()->samplers_failed, 0, __ATOMIC_RELAXED);
    }
    tell("");
}
