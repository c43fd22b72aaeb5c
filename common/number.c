#include "common/number.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum { LEAST_DIGITS = 15, MOST_DIGITS = 17, MANTISSA = 53 };
#define POWER_OF_TWO (UINT64_C(1) << (MANTISSA - 1))

#define TEN_TO_19 UINT64_C(10000000000000000000)

/** 10^0 to 10^22: times 53 bits they fit into 128. */
static const wide tens[] = {1,
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
                            TEN_TO_19,
                            (wide)TEN_TO_19 * 10,
                            (wide)TEN_TO_19 * 100,
                            (wide)TEN_TO_19 * 1000};

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
    const uint64_t one = places < 20 ? (uint64_t)tens[places] : UINT64_MAX;
    out += write_digits(digits / one, 1, out);
    if (places == 0)
        return;
    *out++ = '.';
    (void)write_digits(digits % one, places, out);
}

/** The same with an exponent, of a number below 0.0001 and of 10^-9 at least. */
static void write_small(uint64_t digits, size_t places, char *out)
{
    char text[24];
    for (; digits % 10 == 0; places--)
        digits /= 10;
    const size_t n = write_digits(digits, 1, text);
    *out++ = text[0];
    if (n > 1) {
        *out++ = '.';
        out = mempcpy(out, text + 1, n - 1);
    }
    out = mempcpy(out, "e-0", 3);
    *out++ = (char)('0' + places + 1 - n);
    *out = '\0';
}

/**
 * mantissa / 2^shift, as so many decimal places tell it best, into *ret; whether that is read back
 * as the same number. All of it is exact, so it is what printf and strtod would say.
 */
static bool round_trips(uint64_t mantissa, int shift, int places, uint64_t *ret)
{
    const wide exact = mantissa * tens[places]; /* 53 and 74 bits */
    const wide half = (wide)1 << (shift - 1);
    wide digits = exact >> shift;
    const wide rest = exact - (digits << shift);
    digits += rest > half || (rest == half && (digits & 1));
    const wide told = digits << shift;
    const wide off = 2 * (told > exact ? told - exact : exact - told);
    *ret = (uint64_t)digits;
    return off < tens[places] || (off == tens[places] && mantissa % 2 == 0);
}

/** Digits before the point of a number from 10^-6 on; those of 0.001 are -2. */
static int digits_before(double size)
{
    static const double parts[] = {0.1, 0.01, 1e-3, 1e-4, 1e-5};
    int n = 0;
    while (n < LEAST_DIGITS && size >= (double)(uint64_t)tens[n])
        n++;
    for (size_t i = 0; n <= 0 && i < sizeof parts / sizeof *parts && size < parts[i]; i++)
        n--;
    return n;
}

/** Of numbers from 10^-6 to 10^15, which nearly all are; false: of another. */
static bool write_plain(double size, char *out)
{
    int exponent = 0;
    if (!(size >= 1e-6 && size < 1e15))
        return false;
    if (size == floor(size)) {
        (void)write_digits((uint64_t)size, 1, out);
        return true;
    }
    const uint64_t mantissa = (uint64_t)ldexp(frexp(size, &exponent), MANTISSA);
    if (mantissa == POWER_OF_TWO) /* the number below it is nearer than the one above */
        return false;
    const int before = digits_before(size);
    uint64_t digits = 0;
    for (int n = LEAST_DIGITS; n <= MOST_DIGITS; n++) {
        const int places = n - before;
        if (round_trips(mantissa, MANTISSA - exponent, places, &digits)) {
            (size < 1e-4 ? write_small : write_decimal)(digits, (size_t)places, out);
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
