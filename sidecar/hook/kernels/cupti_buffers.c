/*
 * The buffers that CUPTI fills with records. It asks for one in the training's threads, which never
 * wait, and hands it back in the thread that flushes it, or in one of its own.
 */
#include "sidecar/hook/hook.h"
#include "sidecar/hook/kernels/kernels_internal.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

enum {
    BUFFERS = 32, /* of a capture */
    RESERVE = 2 * BUFFERS,
    BUFFER_SIZE = 128 << 10, /* 600 kernels */
};

static atomic_uint free_buffers; /* a bit for each of this capture's */
static atomic_bool ran_out;      /* of them */
static uint8_t *buffers;         /* two captures' in turn, and one in reserve */
static atomic_int pool;          /* which of the two */
static atomic_bool left;         /* CUPTI was: those that it had are nobody's */
/* Held as one is handed back and read, as all are given up, and as those of the other capture are
 * taken. No call of the training's waits for it while one may be read. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void wanted(uint8_t **buffer, size_t *size, size_t *max_records)
{
    unsigned mask = atomic_load(&free_buffers);
    size_t at = RESERVE;
    *max_records = 0;
    while (mask && at == RESERVE) {
        unsigned bit = mask & -mask;
        if (atomic_compare_exchange_weak(&free_buffers, &mask, mask & ~bit))
            at = (size_t)atomic_load(&pool) * BUFFERS + (size_t)__builtin_ctz(bit);
    }
    /* None at all would end the process: a CUPTI before CUDA 12.9 writes to it all the same. What
     * comes into the one in reserve, from several threads maybe, is lost, and CUPTI may never hand
     * over what comes behind it. */
    if (at == RESERVE)
        atomic_store(&ran_out, true);
    *buffer = buffers + at * BUFFER_SIZE;
    *size = BUFFER_SIZE;
}

/* One of a capture that was left, which a thread of CUPTI's may still hand over, is nobody's: the
 * names in it are CUPTI's, which frees them. */
static void filled(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)size;
    if (!buffer)
        return;
    const size_t at = (size_t)(buffer - buffers) / BUFFER_SIZE;
    (void)pthread_mutex_lock(&lock);
    if (at / BUFFERS == (size_t)atomic_load(&pool)) {
        if (!atomic_load(&left))
            pp_records_take(context, stream, buffer, valid);
        atomic_fetch_or(&free_buffers, 1U << at % BUFFERS);
    }
    (void)pthread_mutex_unlock(&lock);
}

bool pp_cupti_buffers_register(void)
{
    return pp_cupti.callbacks(wanted, filled) == PP_CUPTI_OK;
}

/* CUPTI keeps buffers that hold nothing yet, some for each thread that calls CUDA, and does not
 * hand them over when it is left: after some captures none would be free. Those of the next
 * capture are others, so that nothing that still comes of this one is taken for theirs. */
bool pp_cupti_buffers_take_back(void)
{
    if (!buffers)
        buffers = aligned_alloc(64, (size_t)(RESERVE + 1) * BUFFER_SIZE);
    else if (!atomic_load(&left))
        return true;
    (void)pthread_mutex_lock(&lock);
    atomic_store(&left, false);
    atomic_store(&pool, !atomic_load(&pool));
    atomic_store(&free_buffers, buffers ? UINT_MAX : 0);
    atomic_store(&ran_out, false);
    (void)pthread_mutex_unlock(&lock);
    return buffers != NULL;
}

bool pp_cupti_buffers_abandon(void)
{
    if (pthread_mutex_trylock(&lock) != 0)
        return false;
    atomic_store(&left, true);
    (void)pthread_mutex_unlock(&lock);
    return true;
}

void pp_cupti_buffers_keep(void)
{
    atomic_store(&left, false);
}

bool pp_cupti_buffers_few(void)
{
    return __builtin_popcount(atomic_load(&free_buffers)) < BUFFERS / 2;
}

bool pp_cupti_buffers_ran_out(void)
{
    return atomic_load(&ran_out);
}

void pp_cupti_buffers_forget(void)
{
    (void)pthread_mutex_init(&lock, NULL); /* another thread may have held it, which is not here */
    atomic_store(&left, true);             /* the parent's buffers: nobody here has them */
}
