/*
 * The operator's own certificates: a certificate authority and a serving certificate signed by it,
 * made with OpenSSL and renewed before they end. What is decided (pp_certificates_plan) is pure;
 * where they are kept (a Secret) is the caller's.
 *
 * A new authority is introduced in two steps, so that no peer ever meets a certificate that its
 * bundle does not know: first its certificate joins the bundle while the old one still signs, and
 * only when PP_CA_INTRODUCTION has passed does it sign. Pods carry the bundle they were injected
 * with; an agent older than that must be told the new one (its pod's annotation) or be restarted.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_CERTIFICATES_H
#define PP_OPERATOR_HTTP_SERVER_CERTIFICATES_H

#include "common/error.h"
#include "common/json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define PP_DAY INT64_C(86400000000000)
#define PP_CA_LIFE (3650 * PP_DAY) /**< of an authority */
#define PP_CA_INTRODUCTION                                                                         \
    (90 * PP_DAY)                         /**< a new authority is known this long before it signs  \
                                           */
#define PP_CERTIFICATE_LIFE (90 * PP_DAY) /**< of a serving certificate; renewed at 2/3 of it */
/** Certificates begin this long before they are made: as far as a node's clock may be behind that
 * is taken out of its agents' stamps (docs/clocks.md). */
#define PP_CLOCK_SKEW PP_DAY

/** Characters of the path's secret: 32 random bytes in hexadecimal. */
#define PP_WEBHOOK_SECRET 64

/** PEM texts, and what only the API server knows to ask for; owned; NULL where there is none. */
typedef struct pp_certificates {
    char *ca;          /**< certificate of the authority that signs */
    char *ca_key;      /**< its private key */
    char *next_ca;     /**< the authority that will sign next, already in the bundle */
    char *next_ca_key; /**< its private key */
    char *old_ca;      /**< the authority that signed before; in the bundle until it ends */
    char *certificate; /**< serving certificate */
    char *key;         /**< its private key */
    char *path_secret; /**< first segment of the webhook's paths */
} pp_certificates;

/** Frees the texts and leaves NULLs. */
void pp_certificates_done(pp_certificates *certificates);

/** What there is, for the plan: times are ns since 1970; an absent certificate has valid = false.
 */
typedef struct pp_certificate_state {
    bool valid; /**< present, readable, fits its key */
    int64_t not_before;
    int64_t not_after;
} pp_certificate_state;

typedef struct pp_certificates_state {
    pp_certificate_state ca;
    pp_certificate_state next_ca;
    pp_certificate_state old_ca;
    pp_certificate_state certificate;
    bool names_match;  /**< the serving certificate has exactly the wanted names */
    bool signed_by_ca; /**< the serving certificate was signed by ca */
    bool path_secret_missing;
} pp_certificates_state;

/** What is to be done, in this order. */
typedef struct pp_certificates_plan {
    bool make_ca;      /**< there is no usable authority: make one, forget the others */
    bool introduce_ca; /**< make next_ca */
    bool promote_ca;   /**< ca becomes old_ca, next_ca becomes ca */
    bool drop_old_ca;  /**< old_ca has ended */
    bool issue;        /**< make a serving certificate with the ca there is then */
    bool make_path_secret;
} pp_certificates_plan;

/** Decides. Pure. */
void pp_certificates_plan_at(const pp_certificates_state *state, int64_t now,
                             pp_certificates_plan *ret);

/** Reads what the plan needs; what cannot be read, or does not fit its key, counts as absent. */
void pp_certificates_inspect(const pp_certificates *certificates, const pp_strings *names,
                             pp_certificates_state *ret);

/**
 * Brings the certificates to what is right at `now` for these DNS names (1 to 20; the first is the
 * common name) and says whether anything changed; call again every now and then. On failure nothing
 * is changed; an authority that begins only after `now` is one (PP_ERR_INVALID), and not replaced.
 * Takes about a millisecond (P-256), so it may run on the loop.
 */
int pp_certificates_renew(pp_certificates *certificates, const pp_strings *names, int64_t now,
                          bool *ret_changed, pp_error *err);

/** Whether it is a secret as renew makes them. */
bool pp_webhook_secret_valid(const char *text);

/** The bundle for clients (caBundle of the webhook, the agents' CA file): PEM, the caller frees it.
 */
char *pp_certificates_bundle(const pp_certificates *certificates, pp_error *err);

/*
 * A Secret's `data` (base64 values): tls.crt, tls.key, ca.crt, ca.key and, while there are any,
 * next-ca.crt, next-ca.key, old-ca.crt; and webhook-path. Unknown keys are ignored, absent ones
 * give NULL.
 */
int pp_certificates_from_secret(const json_t *data, pp_certificates *ret, pp_error *err);
json_t *pp_certificates_to_secret(const pp_certificates *certificates, pp_error *err);

#endif
