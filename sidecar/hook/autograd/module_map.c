/*
 * Modules by their address: an open hash table, filled anew for every capture. It keeps nobody
 * alive; the Python side drops an address when its module dies.
 */
#include "sidecar/hook/hook.h"

#include <string.h>

enum {
    SIZE = 16384,    /* a power of two */
    MOST = SIZE / 2, /* places taken, those of dead modules included */
    HASH_BITS = 14,  /* log2(SIZE) */
    SHIFT = 64 - HASH_BITS,
};

static struct {
    const void *module; /* NULL: free; a search ends here */
    uint32_t place;     /* PP_PLACE_NONE: its module is gone */
} table[SIZE];
static unsigned taken;

static unsigned slot_of(const void *module)
{
    uint64_t hash = (uint64_t)(uintptr_t)module * UINT64_C(0x9E3779B97F4A7C15);
    unsigned at = (unsigned)(hash >> SHIFT);
    while (table[at].module && table[at].module != module)
        at = (at + 1) & (SIZE - 1);
    return at;
}

bool pp_module_map_put(const void *module, uint32_t place)
{
    unsigned at = slot_of(module);
    if (!table[at].module) {
        if (taken >= MOST)
            return false;
        taken++;
        table[at].module = module;
    } else if (table[at].place != PP_PLACE_NONE) {
        return false;
    }
    table[at].place = place;
    return true;
}

uint32_t pp_module_map_find(const void *module)
{
    unsigned at = slot_of(module);
    return table[at].module ? table[at].place : PP_PLACE_NONE;
}

void pp_module_map_drop(const void *module)
{
    unsigned at = slot_of(module);
    if (table[at].module)
        table[at].place = PP_PLACE_NONE;
}

void pp_module_map_clear(void)
{
    if (taken)
        memset(table, 0, sizeof table);
    taken = 0;
}
