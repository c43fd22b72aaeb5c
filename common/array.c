#include "common/array.h"

#include <stdlib.h>

int pp_array_reserve(void *array, size_t *capacity, size_t needed, size_t size, pp_error *err)
{
    if (needed <= *capacity)
        return 0;
    size_t more = needed + needed / 2 + 256;
    void *grown = realloc(*(void **)array, more * size);
    if (!grown)
        return pp_error_nomem(err);
    *(void **)array = grown;
    *capacity = more;
    return 0;
}
