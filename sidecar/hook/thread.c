/*
 * The hook's own thread: it sleeps without the GIL until the agent wants something else, turns GPU
 * times into host times, and starts the sampler. Made with the system's means: Python's may have
 * been patched into green threads, in which a wait would stop the training.
 */
#include "sidecar/hook/hook.h"

#include <pthread.h>
#include <signal.h>

#define LEAVE_WAIT_NS INT64_C(500000000)
#define LEAVE_LOOK_NS INT64_C(200000)
/* CUPTI is left in a CUDA call of the training's, of which nobody tells this thread. */
#define LEFT_LOOK_NS INT64_C(1000000000)

static atomic_uint running; /* threads: in a spawned process the one that waits to know what it is
                               starts the hook's, and ends */
static atomic_bool closing;

static void *body(void *run)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *done = PyObject_CallObject(run, NULL);
    if (!done)
        PyErr_Clear();
    Py_XDECREF(done);
    Py_DECREF((PyObject *)run);
    PyGILState_Release(gil);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int pp_thread_start(PyObject *run)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return -1;
    Py_INCREF(run);
    atomic_fetch_add(&running, 1);
    int rc = pthread_create(&thread, NULL, body, run);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        atomic_fetch_sub(&running, 1);
        Py_DECREF(run);
        return -1;
    }
    (void)pthread_detach(thread);
    return 0;
}

static int64_t poll(bool last)
{
    int64_t kernels = pp_kernels_poll(last);
    int64_t clock = pp_clock_now->poll();
    return kernels < clock ? kernels : clock;
}

/* Whether CUPTI was left since this was asked last, and nothing is to be recorded. */
static bool was_left(uint32_t seen, bool *attached)
{
    const bool was = *attached;
    *attached = seen == PP_RING_IDLE && pp_kernels_active();
    return was && !*attached;
}

static void call(PyObject *function)
{
    PyObject *done = function ? PyObject_CallObject(function, NULL) : NULL;
    PyErr_Clear();
    Py_XDECREF(done);
}

int64_t pp_thread_wait(uint32_t seen, PyObject *left)
{
    static uint32_t session; /* a mode that came back for another session is news too */
    bool attached = seen == PP_RING_IDLE;
    Py_BEGIN_ALLOW_THREADS;
    while (!atomic_load(&closing) && pp_ring_mode_now() == seen && pp_ring_session() == session) {
        pp_sampler_poll();
        const int64_t ns = poll(false);
        if (was_left(seen, &attached)) {
            Py_BLOCK_THREADS;
            call(left);
            Py_UNBLOCK_THREADS;
        }
        pp_ring_wait(seen, attached && ns > LEFT_LOOK_NS ? LEFT_LOOK_NS : ns);
    }
    if (session != 0 && session != pp_ring_session())
        pp_sampler_forget();
    session = pp_ring_session();
    if (atomic_load(&closing))
        (void)poll(true);
    Py_END_ALLOW_THREADS;
    return atomic_load(&closing) ? -1 : (int64_t)pp_ring_mode_now();
}

void pp_thread_leave(void)
{
    atomic_store(&closing, true);
    Py_BEGIN_ALLOW_THREADS;
    pp_ring_wake(true);
    int64_t until = pp_now() + LEAVE_WAIT_NS;
    while (atomic_load(&running) > 0 && pp_now() < until)
        pp_sleep(LEAVE_LOOK_NS);
    Py_END_ALLOW_THREADS;
}

void pp_thread_forget(void)
{
    atomic_store(&running, 0);
}
