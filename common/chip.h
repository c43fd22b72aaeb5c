/* What a GPU can do at most, from what its driver says of it. */
#ifndef PP_COMMON_CHIP_H
#define PP_COMMON_CHIP_H

#include <stdint.h>

/** As cuDeviceGetAttribute() tells it; 0 where it is not known. */
typedef struct pp_chip {
    int64_t capability; /**< compute capability: 10 times the major number, and the minor */
    int64_t multiprocessors;
    int64_t sm_khz; /**< the highest */
    int64_t memory_khz;
    int64_t memory_bits; /**< width of the bus */
} pp_chip;

typedef enum pp_peak {
    PP_PEAK_NONE,
    PP_PEAK_MEMORY, /**< bytes per second of the device's memory */
    PP_PEAK_FP32,   /**< FLOP per second of the FP32 units, an FMA being two */
    PP_PEAK_TENSOR, /**< FLOP per second of the tensor units: dense matrices of 16 bits */
    PP_PEAK_COUNT,
} pp_peak;

/** "bytes" or "FLOP" per second; NULL for PP_PEAK_NONE. Static. */
const char *pp_peak_unit(pp_peak which);

/**
 * The peak; NaN where it is not known. `sm_mhz` is the SMs' clock to count with, the highest where
 * it is 0; the memory's is the driver's figure, twice, since data moves on both edges.
 *
 * Sources: bytes as NVIDIA's deviceQuery counts them; FP32 operations a cycle from the table
 * "Arithmetic Instructions" of the CUDA C++ Programming Guide; tensor units' from the whitepapers
 * of V100, A100, H100, and the data sheets of A10, L40S and B200 over their multiprocessors and
 * clocks.
 */
double pp_chip_peak(const pp_chip *chip, pp_peak which, double sm_mhz);

#endif
