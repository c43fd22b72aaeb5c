/* Random numbers that are the same everywhere: splitmix64, and normal ones by Box and Muller. */
#ifndef PP_TESTS_RANDOM_H
#define PP_TESTS_RANDOM_H

#include <math.h>
#include <stdint.h>

/** 0 to below 1. */
static inline double sim_uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/** Mean 0, standard deviation 1. */
static inline double sim_normal(uint64_t *state)
{
    double u = 1 - sim_uniform(state), v = sim_uniform(state);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

#endif
