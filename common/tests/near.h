/* Doubles that are to be so near each other. */
#ifndef PP_COMMON_TESTS_NEAR_H
#define PP_COMMON_TESTS_NEAR_H

#include "common/tests/cmocka_all.h"

#include <math.h>

#define assert_near(value, expected, within)                                                       \
    do {                                                                                           \
        const double near_value = (value), near_expected = (expected);                             \
        if (!(fabs(near_value - near_expected) <= (within)))                                       \
            fail_msg(#value ": %.17g, not %.17g", near_value, near_expected);                      \
    } while (0)

#endif
