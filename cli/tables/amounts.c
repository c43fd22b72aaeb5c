#include "cli/tables/amounts.h"

#include <math.h>
#include <stdio.h>

void pp_amount_format(double amount, const char *unit, char out[PP_AMOUNT_SIZE])
{
    static const struct {
        double size;
        const char *prefix;
    } prefixes[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const size_t count = sizeof prefixes / sizeof *prefixes;
    size_t i = 0;
    while (i < count && fabs(amount) < prefixes[i].size)
        i++;
    (void)snprintf(out, PP_AMOUNT_SIZE, "%.4g %s%s", amount / (i < count ? prefixes[i].size : 1),
                   i < count ? prefixes[i].prefix : "", unit);
}
