/*
 * Rows of sums on their way to the wire: in the order of their keys, in parts, each as far as a
 * message has room for text. No I/O, no clock.
 */
#ifndef PP_AGENT_SUM_PART_H
#define PP_AGENT_SUM_PART_H

#include "sidecar/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Bytes that a layer takes of a batch's text at most: a quote in its name takes two. */
#define PP_SUM_LAYER_TEXT ((size_t)2 * (PP_RING_NAME + PP_RING_TYPE) + 128)

/** Less than 0, 0, more: keys of n numbers, compared one after the other. */
static inline int pp_sum_compare(const uint32_t *a, const uint32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i == n ? 0 : a[i] < b[i] ? -1 : 1;
}

/** The sum of what is not negative, `most` at most: what the user's process says may be anything.
 */
static inline int64_t pp_sum_capped(int64_t a, int64_t b, int64_t most)
{
    return b < most - a ? a + b : most;
}

/** A part that is made. Begins with room, `from` and `rows` alone. */
typedef struct pp_sum_part {
    size_t room;    /**< bytes that are left */
    size_t from;    /**< rows before this one are told */
    size_t rows;    /**< that it may have yet */
    size_t i;       /**< of the next row */
    uint32_t layer; /**< of the last row that was taken */
    bool any;       /**< one was */
    bool full;      /**< the next row is of another part */
} pp_sum_part;

/** Whether this part has the next row, of so many bytes at most without its layer; the layer is
 * named with the first row that is of it. Of rows that are not `told` no part has anything. */
static inline bool pp_sum_part_takes(pp_sum_part *part, bool told, uint32_t layer, size_t bytes)
{
    if (part->i < part->from || !told) {
        part->i++;
        return false;
    }
    bytes += part->any && part->layer == layer ? 0 : PP_SUM_LAYER_TEXT;
    part->full = bytes > part->room || part->rows == 0;
    if (part->full)
        return false;
    part->room -= bytes;
    part->rows--;
    part->i++;
    part->layer = layer;
    part->any = true;
    return true;
}

/** The row with which the next part begins; SIZE_MAX where there is none. */
static inline size_t pp_sum_part_end(const pp_sum_part *part)
{
    return part->full ? part->i : SIZE_MAX;
}

#endif
