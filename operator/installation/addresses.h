/*
 * The addresses of the operator's own Service, watched, so that pods are injected with those it has
 * now: where it is deleted and made again it has others.
 */
#ifndef PP_OPERATOR_INSTALLATION_ADDRESSES_H
#define PP_OPERATOR_INSTALLATION_ADDRESSES_H

#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct pp_operator pp_operator;

/** Nothing is watched where agents connect to something else than the Service. */
int pp_addresses_start(pp_operator *op, pp_error *err);
void pp_addresses_stop(pp_operator *op);

/** The Service's namespace: its own where the configuration names none. */
const char *pp_addresses_namespace(const pp_operator *op);

/** Whether they are known, or will not be. */
bool pp_addresses_synced(const pp_operator *op);

enum { PP_ADDRESSES_TROUBLE = 400 }; /**< bytes of a text that says what is wrong */

/** What keeps the Service from bringing pods and webhook calls to this operator, written to `out`,
 * and that; NULL: nothing that is known. */
const char *pp_addresses_trouble(const pp_operator *op, char *out, size_t size);

/** Literal IPs, borrowed until the loop's next turn; none where there is no such Service, or a
 * headless one. */
const pp_strings *pp_addresses_of(const pp_operator *op);

#endif
