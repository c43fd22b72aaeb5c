/*
 * Small numbers of the threads that make marks, by what CUPTI calls a thread: the lower half of its
 * pthread_t. A thread that has ended leaves its number to the next one with its pthread_t, so that
 * threads that are made anew in each step (DataParallel's) need no more of them.
 */
#include "sidecar/hook/hook.h"

#include <pthread.h>

enum { MOST = PP_THREAD_SHARED - 1 };

static _Atomic uint32_t ids[MOST];                   /* by number less 1 */
static atomic_uint count;                            /* written with the GIL held */
static atomic_bool has_pieces[PP_THREAD_SHARED + 1]; /* by number */

static unsigned find(uint32_t id)
{
    const unsigned n = atomic_load(&count);
    for (unsigned i = 0; i < n; i++)
        if (atomic_load_explicit(&ids[i], memory_order_relaxed) == id)
            return i + 1;
    return 0;
}

static unsigned add(uint32_t id)
{
    const unsigned n = atomic_load(&count);
    if (n == MOST)
        return PP_THREAD_SHARED;
    atomic_store_explicit(&ids[n], id, memory_order_relaxed);
    atomic_store(&count, n + 1);
    return n + 1;
}

uint8_t pp_thread_number(void)
{
    static _Thread_local uint8_t mine;
    if (mine == 0) {
        const uint32_t id = (uint32_t)(uintptr_t)pthread_self();
        const unsigned known = find(id);
        mine = (uint8_t)(known ? known : add(id));
    }
    return mine;
}

uint8_t pp_thread_number_of_pieces(void)
{
    static _Thread_local uint8_t mine;
    if (mine == 0) {
        mine = pp_thread_number();
        atomic_store(&has_pieces[mine], true);
    }
    return mine;
}

bool pp_thread_is_strange(uint32_t id)
{
    const uint8_t number = pp_thread_number_of(id);
    return number == PP_THREAD_STRANGER || (number != PP_THREAD_SHARED && !has_pieces[number]);
}

uint8_t pp_thread_number_of(uint32_t id)
{
    const unsigned known = find(id);
    if (known)
        return (uint8_t)known;
    return atomic_load(&count) == MOST ? PP_THREAD_SHARED : PP_THREAD_STRANGER;
}
