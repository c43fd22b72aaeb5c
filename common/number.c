#include "common/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *pp_number_text(double value, char out[PP_NUMBER_TEXT])
{
    out[0] = '\0';
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        (void)snprintf(out, PP_NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}
