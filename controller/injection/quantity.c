#include "controller/injection/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* Numbers are kept in 1e-9 of the unit until the suffix is known. */
static const uint64_t NANO = 1000000000;

typedef struct scale {
    const char *suffix;
    uint64_t times, parts;
} scale;

static const scale scales[] = {
    {"", 1, 1},
    {"n", 1, 1000000000},
    {"u", 1, 1000000},
    {"m", 1, 1000},
    {"k", 1000, 1},
    {"M", 1000000, 1},
    {"G", 1000000000, 1},
    {"T", UINT64_C(1000000000000), 1},
    {"P", UINT64_C(1000000000000000), 1},
    {"E", UINT64_C(1000000000000000000), 1},
    {"Ki", UINT64_C(1) << 10, 1},
    {"Mi", UINT64_C(1) << 20, 1},
    {"Gi", UINT64_C(1) << 30, 1},
    {"Ti", UINT64_C(1) << 40, 1},
    {"Pi", UINT64_C(1) << 50, 1},
    {"Ei", UINT64_C(1) << 60, 1},
};

/* "e3", "E-2": a power of ten in the suffix's place. */
static bool parse_exponent(const char *text, scale *ret)
{
    char *end;
    if (*text != 'e' && *text != 'E')
        return false;
    long power = strtol(text + 1, &end, 10);
    if (end == text + 1 || *end || power < -9 || power > 18)
        return false;
    *ret = (scale){text, 1, 1};
    for (; power > 0; power--)
        ret->times *= 10;
    for (; power < 0; power++)
        ret->parts *= 10;
    return true;
}

static bool parse_suffix(const char *text, scale *ret)
{
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        if (strcmp(text, scales[i].suffix) == 0) {
            *ret = scales[i];
            return true;
        }
    }
    return parse_exponent(text, ret);
}

static const wide TOO_LARGE = ~(wide)0;

/* Digits with a point among them, as 1e-9; what lies beyond nine places is rounded up. Returns
 * where they end, NULL where there are none. */
static const char *parse_digits(const char *text, wide *ret)
{
    const char *at = text;
    uint64_t place = NANO;
    bool point = false, any = false, rest = false, large = false;
    for (*ret = 0; *at; at++) {
        if (*at == '.' && !point) {
            point = true;
            continue;
        }
        if (*at < '0' || *at > '9')
            break;
        any = true;
        if (point)
            place /= 10;
        if (!place)
            rest = rest || *at != '0';
        else if (point)
            *ret += (wide)(*at - '0') * place;
        else if (*ret < (wide)INT64_MAX * NANO)
            *ret = *ret * 10 + (wide)(*at - '0') * NANO;
        else
            large = true;
    }
    *ret = large ? TOO_LARGE : *ret + rest;
    return any ? at : NULL;
}

bool pp_quantity_parse(const char *text, int64_t *ret)
{
    wide number, product;
    scale by;
    const char *end = parse_digits(text + (*text == '+'), &number);
    if (!end || !parse_suffix(end, &by))
        return false;
    const wide parts = (wide)NANO / 1000 * by.parts;
    if (number == TOO_LARGE || __builtin_mul_overflow(number, (wide)by.times, &product) ||
        product / parts >= INT64_MAX)
        *ret = INT64_MAX;
    else
        *ret = (int64_t)(product / parts + (product % parts > 0));
    return true;
}

bool pp_quantity_of(const json_t *value, int64_t *ret)
{
    char number[40];
    if (json_is_string(value))
        return pp_quantity_parse(json_string_value(value), ret);
    if (!json_is_number(value))
        return false;
    (void)snprintf(number, sizeof number, "%.9f", json_number_value(value));
    return pp_quantity_parse(number, ret);
}

int64_t pp_quantity_add(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}
