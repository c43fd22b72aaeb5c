/* cmocka wants these headers before its own, in this order. */
#ifndef PP_COMMON_TESTS_CMOCKA_ALL_H
#define PP_COMMON_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
