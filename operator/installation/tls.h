/* The serving certificate and the webhook's paths: kept in a Secret, renewed, told to the webhook.
 */
#ifndef PP_OPERATOR_INSTALLATION_TLS_H
#define PP_OPERATOR_INSTALLATION_TLS_H

#include "common/error.h"
#include "operator/http_server/certificates.h"
#include "operator/state/config.h"

typedef struct pp_operator pp_operator;

/** `ready` is called once, when there is a certificate; later renewals go to op->server. */
typedef void (*pp_tls_ready_fn)(pp_operator *op, const pp_certificates *certificates);
int pp_tls_start(pp_operator *op, pp_tls_ready_fn ready, pp_error *err);
/** The authorities of webhook.clientCaFile, PEM, owned; NULL where none is configured, or with err
 * set where it cannot be read. */
char *pp_tls_client_ca(const pp_config *config, pp_error *err);
/** What the paths of reviews begin with, borrowed until the loop's next turn; NULL: not known. */
const char *pp_tls_path_secret(const pp_operator *op);
enum { PP_TLS_TROUBLE = 400 }; /**< bytes of a text that says what is wrong */

/** What is wrong with the webhook's configuration, written to `out`, and that; NULL: nothing that
 * is known. */
const char *pp_tls_trouble(const pp_operator *op, char *out, size_t size);
void pp_tls_stop(pp_operator *op);

#endif
