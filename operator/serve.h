/* The HTTP edge's requests, given to those who decide: admission, intake, and whether we are ready.
 */
#ifndef PP_OPERATOR_SERVE_H
#define PP_OPERATOR_SERVE_H

#include "common/error.h"

typedef struct pp_operator pp_operator;

/** Starts to listen with this certificate and key (PEM). */
int pp_serve_start(pp_operator *op, const char *certificate, const char *key, pp_error *err);

#endif
