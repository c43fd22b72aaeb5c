/* The HTTP edge's requests, given to those who decide: admission, agents, and whether we are ready.
 */
#ifndef PP_OPERATOR_SERVE_H
#define PP_OPERATOR_SERVE_H

#include "common/error.h"
#include "operator/http_server/certificates.h"

typedef struct pp_operator pp_operator;

/** Starts to listen with this certificate, and under this secret for reviews. */
int pp_serve_start(pp_operator *op, const pp_certificates *certificates, pp_error *err);

#endif
