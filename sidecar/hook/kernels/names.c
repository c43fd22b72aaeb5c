/*
 * Names of kernels, each of which the ring holds once: a kernel has its number. By what they say,
 * not by where they lie: CUPTI frees its names when it is left. Called with the lock of
 * kernel_records.c.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum { SLOTS = 1 << 13 }; /* twice as many as there may be names */

static struct {
    uint64_t hash;
    uint32_t number; /* 0: the slot is free */
} slots[SLOTS];
static uint32_t count;
static bool full; /* the ring has no room for a further one */

/* Of 64 bits, so that two names of one process never share one in practice. */
static uint64_t hash_of(const char *name, size_t n)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ n;
    uint64_t word;
    for (; n >= sizeof word; n -= sizeof word, name += sizeof word) {
        memcpy(&word, name, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, name, n);
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

uint32_t pp_names_number(const char *name)
{
    if (!name || !*name)
        return 0;
    const size_t n = strnlen(name, PP_RING_KERNEL_NAME - 1);
    const uint64_t hash = hash_of(name, n);
    size_t at = hash & (SLOTS - 1);
    while (slots[at].number && slots[at].hash != hash)
        at = (at + 1) & (SLOTS - 1);
    if (slots[at].number)
        return slots[at].number;
    if (full || count == PP_RING_KERNEL_NAMES || !pp_ring_add_name(name, n)) {
        full = true; /* also for a shorter one, which would have room */
        return 0;
    }
    slots[at].hash = hash;
    slots[at].number = ++count;
    return count;
}

void pp_names_forget(void)
{
    memset(slots, 0, sizeof slots);
    count = 0;
    full = false;
}
