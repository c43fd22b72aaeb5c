/* Amounts in units that go with their size. */
#ifndef PP_CLI_TABLES_AMOUNTS_H
#define PP_CLI_TABLES_AMOUNTS_H

#include <stddef.h>

enum { PP_AMOUNT_SIZE = 32 };

/** Four digits of an amount and its unit with a prefix of the SI, as "53 MB", "1.07 PFLOP/s". */
void pp_amount_format(double amount, const char *unit, char out[PP_AMOUNT_SIZE]);

#endif
