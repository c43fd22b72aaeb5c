/*
 * The names of ranges that the program marks (ranges.c), and the layers that they are.
 *
 * Names may be anything, and new at each step. So none is kept, but a hash. One is a layer once it
 * comes in a second step. Where too many did not, or there are too many layers, further names are
 * one layer together.
 */
#include "sidecar/hook/hook.h"

enum {
    ROWS = 256,   /* names that are layers, or torch's own */
    SLOTS = 512,  /* a power of two, above that */
    RECENT = 512, /* names that came in one step so far */
    STALE = 64,   /* of these, names that the step after did not bring again */
};

static struct {
    Py_hash_t hash;
    bool taken;
    uint32_t layer;
} slots[SLOTS];
static unsigned rows;
static struct {
    Py_hash_t hash;
    bool taken;
    int64_t step;
} recent[RECENT];
static unsigned next_recent;
static bool asking;  /* that may mark ranges itself */
static bool crowded; /* too many came in one step only */

/* `rest`: the layer of all that have none of their own. -1: exception. */
static int ask(PyObject *name, bool rest, uint32_t *ret)
{
    asking = true;
    const int rc = pp_marks_range_layer(name, rest, ret);
    asking = false;
    if (rc == 0 && *ret > 0)
        pp_ranges_tell(*ret);
    return rc;
}

static unsigned slot_of(Py_hash_t hash)
{
    unsigned at = (unsigned)hash & (SLOTS - 1);
    while (slots[at].taken && slots[at].hash != hash)
        at = (at + 1) & (SLOTS - 1);
    return at;
}

/* It has come in an earlier step: 1, in this one alone: 0, not as far as is known: -1. */
static int came_before(Py_hash_t hash, int64_t step)
{
    unsigned stale = 0;
    for (unsigned i = 0; i < RECENT; i++) {
        if (recent[i].taken && recent[i].hash == hash) {
            const int before = recent[i].step < step;
            recent[i].taken = !before;
            return before;
        }
        stale += recent[i].taken && recent[i].step + 1 < step;
    }
    crowded = crowded || stale >= STALE;
    recent[next_recent].hash = hash;
    recent[next_recent].taken = true;
    recent[next_recent].step = step;
    next_recent = (next_recent + 1) % RECENT;
    return -1;
}

int pp_range_names_find(PyObject *name, uint32_t *ret)
{
    *ret = 0;
    if (asking || !PyUnicode_CheckExact(name))
        return 0; /* comparing others runs their code */
    const Py_hash_t hash = PyObject_Hash(name);
    const unsigned at = slot_of(hash);
    if (slots[at].taken) {
        *ret = slots[at].layer;
        return 0;
    }
    if (rows == ROWS)
        return ask(name, true, ret);
    if (came_before(hash, pp_marks_steps()) <= 0)
        return crowded ? ask(name, true, ret) : 0;
    if (ask(name, false, ret) < 0)
        return -1;
    slots[at].hash = hash;
    slots[at].taken = true;
    slots[at].layer = *ret;
    rows++;
    return 0;
}
