#include "common/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__extension__ typedef unsigned __int128 wide;

enum { LEAST_DIGITS = 15, MOST_DIGITS = 17, MANTISSA = 53 };
#define POWER_OF_TWO (UINT64_C(1) << (MANTISSA - 1))

/** 10^0 to 10^19. */
static const uint64_t tens[] = {1,
                                10,
                                100,
                                1000,
                                10000,
                                100000,
                                1000000,
                                10000000,
                                100000000,
                                1000000000,
                                10000000000,
                                100000000000,
                                1000000000000,
                                10000000000000,
                                100000000000000,
                                1000000000000000,
                                10000000000000000,
                                100000000000000000,
                                1000000000000000000,
                                UINT64_C(10000000000000000000)};

/** Decimal digits into out, at least so many; returns how many. */
static size_t write_digits(uint64_t value, size_t least, char *out)
{
    char reversed[24];
    size_t n = 0;
    for (; value || n < least; value /= 10)
        reversed[n++] = (char)('0' + value % 10);
    for (size_t i = 0; i < n; i++)
        out[i] = reversed[n - 1 - i];
    out[n] = '\0';
    return n;
}

/** digits / 10^places, without zeros at its end. */
static void write_decimal(uint64_t digits, size_t places, char *out)
{
    for (; places > 0 && digits % 10 == 0; places--)
        digits /= 10;
    out += write_digits(digits / tens[places], 1, out);
    if (places == 0)
        return;
    *out++ = '.';
    (void)write_digits(digits % tens[places], places, out);
}

/**
 * mantissa / 2^shift, as so many decimal places tell it best, into *ret; whether that is read back
 * as the same number. All of it is exact, so it is what printf and strtod would say.
 */
static bool round_trips(uint64_t mantissa, int shift, int places, uint64_t *ret)
{
    const wide exact = (wide)mantissa * tens[places]; /* 53 and 64 bits */
    const wide half = (wide)1 << (shift - 1);
    wide digits = exact >> shift;
    const wide rest = exact - (digits << shift);
    digits += rest > half || (rest == half && (digits & 1));
    const wide told = digits << shift;
    const wide off = 2 * (told > exact ? told - exact : exact - told);
    *ret = (uint64_t)digits;
    return off < tens[places] || (off == tens[places] && mantissa % 2 == 0);
}

/** Of numbers from 0.001 to 10^15, which nearly all are; false: of another. */
static bool write_plain(double size, char *out)
{
    int exponent = 0, before = 0; /* digits before the point; those of 0.001 are -2 */
    if (!(size >= 1e-3 && size < 1e15))
        return false;
    if (size == floor(size)) {
        (void)write_digits((uint64_t)size, 1, out);
        return true;
    }
    const uint64_t mantissa = (uint64_t)ldexp(frexp(size, &exponent), MANTISSA);
    if (mantissa == POWER_OF_TWO) /* the number below it is nearer than the one above */
        return false;
    while (size >= (double)tens[before])
        before++;
    before -= before == 0 && size < 0.1;
    before -= before == -1 && size < 0.01;
    uint64_t digits = 0;
    for (int n = LEAST_DIGITS; n <= MOST_DIGITS; n++) {
        const int places = n - before;
        if (round_trips(mantissa, MANTISSA - exponent, places, &digits)) {
            write_decimal(digits, (size_t)places, out);
            return true;
        }
    }
    return false;
}

const char *pp_number_text(double value, char out[PP_NUMBER_TEXT])
{
    const bool negative = value < 0;
    out[0] = '-';
    if (write_plain(fabs(value), out + negative))
        return out;
    out[0] = '\0';
    for (int digits = LEAST_DIGITS; isfinite(value) && digits <= MOST_DIGITS; digits++) {
        (void)snprintf(out, PP_NUMBER_TEXT, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}
