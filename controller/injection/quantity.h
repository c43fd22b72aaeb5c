/*
 * Kubernetes' quantities ("250m", "1.5", "64Mi", "1e3") as numbers to compare and to sum:
 * thousandths of the unit (millicores, thousandths of a byte), rounded up as the API server rounds.
 */
#ifndef PP_CONTROLLER_INJECTION_QUANTITY_H
#define PP_CONTROLLER_INJECTION_QUANTITY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** False where the text is no quantity, or less than 0. What is too large becomes INT64_MAX. */
bool pp_quantity_parse(const char *text, int64_t *ret);

/** The same of a JSON string or number; NULL is none. */
bool pp_quantity_of(const json_t *value, int64_t *ret);

/** a + b; INT64_MAX where that is too large. Neither is less than 0. */
int64_t pp_quantity_add(int64_t a, int64_t b);

#endif
