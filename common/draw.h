/* Numbers drawn by a number: the same ones whenever it is asked for. */
#ifndef PP_COMMON_DRAW_H
#define PP_COMMON_DRAW_H

#include <stdint.h>

/** 64 bits, each set for half of all n, whatever rhythm these come in (splitmix64: Steele, Lea and
 * Flood, OOPSLA 2014). */
static inline uint64_t pp_draw(uint64_t n)
{
    uint64_t z = (n + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
