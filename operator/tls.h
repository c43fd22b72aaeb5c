/* The serving certificate: kept in a Secret, renewed, told to the webhook. */
#ifndef PP_OPERATOR_TLS_H
#define PP_OPERATOR_TLS_H

#include "common/error.h"

typedef struct pp_operator pp_operator;

/** `ready` is called once, when there is a certificate; later renewals go to op->server. */
typedef void (*pp_tls_ready_fn)(pp_operator *op, const char *certificate, const char *key);
int pp_tls_start(pp_operator *op, pp_tls_ready_fn ready, pp_error *err);
void pp_tls_stop(pp_operator *op);

#endif
