/* Arrays that grow. */
#ifndef PP_COMMON_ARRAY_H
#define PP_COMMON_ARRAY_H

#include "common/error.h"

#include <stddef.h>

/**
 * Makes room for `needed` elements of `size` bytes, and for half as many more, in the array whose
 * pointer lies at `array`; *capacity is what it holds. Where memory is out (-1) it is as it was.
 */
int pp_array_reserve(void *array, size_t *capacity, size_t needed, size_t size, pp_error *err);

#endif
