#include "operator/http_server/certificates.h"

#include "common/cleanup.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_NAMES = 20, MAX_NAME = 253, MAX_PEM = 65536, SECOND_NS = 1000000000 };

static void cleanup_x509(X509 **p)
{
    X509_free(*p);
}

static void cleanup_pkey(EVP_PKEY **p)
{
    EVP_PKEY_free(*p);
}

static void cleanup_bio(BIO **p)
{
    BIO_free(*p);
}

#define CLEANUP_X509 __attribute__((cleanup(cleanup_x509)))
#define CLEANUP_PKEY __attribute__((cleanup(cleanup_pkey)))
#define CLEANUP_BIO __attribute__((cleanup(cleanup_bio)))

/** Sets err with OpenSSL's first reason and empties its queue. */
static int refuse_openssl(pp_error *err, const char *what)
{
    char why[200] = "no reason given";
    unsigned long code = ERR_get_error();
    if (code)
        ERR_error_string_n(code, why, sizeof why);
    ERR_clear_error();
    return pp_error_set(err, PP_ERR_INTERNAL, "%s: %s", what, why);
}

void pp_certificates_done(pp_certificates *c)
{
    char **texts[] = {&c->ca,     &c->ca_key,      &c->next_ca, &c->next_ca_key,
                      &c->old_ca, &c->certificate, &c->key,     &c->path_secret};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (*texts[i] && texts[i] != &c->ca && texts[i] != &c->next_ca && texts[i] != &c->old_ca &&
            texts[i] != &c->certificate)
            OPENSSL_cleanse(*texts[i], strlen(*texts[i]));
        free(*texts[i]);
        *texts[i] = NULL;
    }
}

/* ---- PEM ---------------------------------------------------------------------------------------
 */

static X509 *read_certificate(const char *pem)
{
    CLEANUP_BIO BIO *bio = pem ? BIO_new_mem_buf(pem, -1) : NULL;
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    ERR_clear_error();
    return cert;
}

/** A key that wants a passphrase is no use to a process without a terminal: refuse, do not ask. */
static int no_passphrase(char *buf, int size, int writing, void *context)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static EVP_PKEY *read_key(const char *pem)
{
    CLEANUP_BIO BIO *bio = pem ? BIO_new_mem_buf(pem, -1) : NULL;
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    ERR_clear_error();
    return key;
}

static char *take_text(BIO *bio)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    return n > 0 ? strndup(data, (size_t)n) : NULL;
}

static char *write_certificate(X509 *cert)
{
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
    return bio && PEM_write_bio_X509(bio, cert) == 1 ? take_text(bio) : NULL;
}

static char *write_key(EVP_PKEY *key)
{
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio || PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
        return NULL;
    return take_text(bio);
}

/* ---- making certificates -----------------------------------------------------------------------
 */

/** 127 random bits: RFC 5280 wants positive serial numbers of at most 20 bytes. */
static int set_serial(X509 *cert)
{
    BIGNUM *number = BN_new();
    int ok = number && BN_rand(number, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) &&
             BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return ok;
}

static int set_times(X509 *cert, int64_t from, int64_t to)
{
    return ASN1_TIME_set(X509_getm_notBefore(cert), (time_t)(from / SECOND_NS)) &&
           ASN1_TIME_set(X509_getm_notAfter(cert), (time_t)(to / SECOND_NS));
}

static int set_name(X509_NAME *name, const char *common_name)
{
    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8,
                                      (const unsigned char *)"precisionprobe", -1, -1, 0) &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common_name,
                                      -1, -1, 0);
}

static int add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    int ok = extension && X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return ok;
}

/** The parts that an authority and a serving certificate have in common, but for the signature. */
static X509 *begin_certificate(EVP_PKEY *key, const char *common_name, int64_t from, int64_t to)
{
    CLEANUP_X509 X509 *cert = X509_new();
    if (!cert || !X509_set_version(cert, X509_VERSION_3) || !set_serial(cert) ||
        !set_times(cert, from, to) || !X509_set_pubkey(cert, key) ||
        !set_name(X509_get_subject_name(cert), common_name))
        return NULL;
    return PP_TAKE(cert);
}

static int make_ca(int64_t now, char **ret_cert, char **ret_key, pp_error *err)
{
    CLEANUP_PKEY EVP_PKEY *key = EVP_EC_gen("P-256");
    char name[64];
    /* Its own name per authority: verifiers find an issuer by name before they look at keys. */
    (void)snprintf(name, sizeof name, "precisionprobe authority %lld",
                   (long long)(now / SECOND_NS));
    CLEANUP_X509 X509 *cert =
        key ? begin_certificate(key, name, now - PP_CLOCK_SKEW, now + PP_CA_LIFE) : NULL;
    if (!cert || !X509_set_issuer_name(cert, X509_get_subject_name(cert)) ||
        !add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(cert, cert, NID_subject_key_identifier, "hash") ||
        !X509_sign(cert, key, EVP_sha256()))
        return refuse_openssl(err, "make an authority");
    *ret_cert = write_certificate(cert);
    *ret_key = write_key(key);
    return *ret_cert && *ret_key ? 0 : refuse_openssl(err, "write an authority");
}

/** "DNS:a,DNS:b"; the names have been checked, so no comma can break out of theirs. */
static int alternative_names(const pp_strings *names, char *out, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < names->count; i++) {
        int n = snprintf(out + at, size - at, "%sDNS:%s", i ? "," : "", names->items[i]);
        if (n < 0 || (size_t)n >= size - at)
            return 0;
        at += (size_t)n;
    }
    return 1;
}

static int sign_serving(X509 *cert, X509 *ca, EVP_PKEY *ca_key, const pp_strings *names)
{
    char alternatives[MAX_NAMES * (MAX_NAME + 5) + 1];
    return alternative_names(names, alternatives, sizeof alternatives) &&
           X509_set_issuer_name(cert, X509_get_subject_name(ca)) &&
           add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, ca, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, ca, NID_ext_key_usage, "serverAuth") &&
           add_extension(cert, ca, NID_subject_key_identifier, "hash") &&
           add_extension(cert, ca, NID_authority_key_identifier, "keyid:always") &&
           add_extension(cert, ca, NID_subject_alt_name, alternatives) &&
           X509_sign(cert, ca_key, EVP_sha256());
}

/** ns since 1970; 0 when it cannot be read. */
static int64_t time_of(const ASN1_TIME *time)
{
    struct tm tm = {0};
    return ASN1_TIME_to_tm(time, &tm) ? (int64_t)timegm(&tm) * SECOND_NS : 0;
}

static int issue(const pp_certificates *c, const pp_strings *names, int64_t now, char **ret_cert,
                 char **ret_key, pp_error *err)
{
    CLEANUP_X509 X509 *ca = read_certificate(c->ca);
    CLEANUP_PKEY EVP_PKEY *ca_key = read_key(c->ca_key);
    CLEANUP_PKEY EVP_PKEY *key = EVP_EC_gen("P-256");
    if (!ca || !ca_key || !key)
        return refuse_openssl(err, "make a serving certificate");
    /* Never outlive the authority: verifiers would refuse the chain anyway. */
    int64_t ca_end = time_of(X509_get0_notAfter(ca));
    int64_t end = now + PP_CERTIFICATE_LIFE < ca_end ? now + PP_CERTIFICATE_LIFE : ca_end;
    /* A common name has at most 64 characters; the names that count are the alternative ones. */
    char common_name[64];
    (void)snprintf(common_name, sizeof common_name, "%s", names->items[0]);
    CLEANUP_X509 X509 *cert = begin_certificate(key, common_name, now - PP_CLOCK_SKEW, end);
    if (!cert || !sign_serving(cert, ca, ca_key, names))
        return refuse_openssl(err, "make a serving certificate");
    *ret_cert = write_certificate(cert);
    *ret_key = write_key(key);
    return *ret_cert && *ret_key ? 0 : refuse_openssl(err, "write a serving certificate");
}

/* ---- looking at what there is ------------------------------------------------------------------
 */

static pp_certificate_state inspect_pair(X509 *cert, const EVP_PKEY *key, bool needs_key)
{
    pp_certificate_state state = {0};
    if (!cert || (needs_key && (!key || X509_check_private_key(cert, key) != 1))) {
        ERR_clear_error();
        return state;
    }
    state.not_before = time_of(X509_get0_notBefore(cert));
    state.not_after = time_of(X509_get0_notAfter(cert));
    state.valid = state.not_after > state.not_before;
    return state;
}

static bool has_name(const pp_strings *names, const GENERAL_NAME *name)
{
    if (name->type != GEN_DNS)
        return false;
    const char *text = (const char *)ASN1_STRING_get0_data(name->d.dNSName);
    size_t n = (size_t)ASN1_STRING_length(name->d.dNSName);
    for (size_t i = 0; i < names->count; i++) {
        if (strlen(names->items[i]) == n && memcmp(names->items[i], text, n) == 0)
            return true;
    }
    return false;
}

/** Whether the certificate's alternative names are the wanted ones, no more and no fewer. */
static bool names_match(X509 *cert, const pp_strings *names)
{
    GENERAL_NAMES *have = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    bool same = have && (size_t)sk_GENERAL_NAME_num(have) == names->count;
    for (int i = 0; same && i < sk_GENERAL_NAME_num(have); i++)
        same = has_name(names, sk_GENERAL_NAME_value(have, i));
    GENERAL_NAMES_free(have);
    return same;
}

static bool is_signed_by(X509 *cert, X509 *ca)
{
    EVP_PKEY *key = X509_get0_pubkey(ca);
    bool yes = key && X509_check_issued(ca, cert) == X509_V_OK && X509_verify(cert, key) == 1;
    ERR_clear_error();
    return yes;
}

void pp_certificates_inspect(const pp_certificates *c, const pp_strings *names,
                             pp_certificates_state *ret)
{
    CLEANUP_X509 X509 *ca = read_certificate(c->ca);
    CLEANUP_X509 X509 *next_ca = read_certificate(c->next_ca);
    CLEANUP_X509 X509 *old_ca = read_certificate(c->old_ca);
    CLEANUP_X509 X509 *cert = read_certificate(c->certificate);
    CLEANUP_PKEY EVP_PKEY *ca_key = read_key(c->ca_key);
    CLEANUP_PKEY EVP_PKEY *next_ca_key = read_key(c->next_ca_key);
    CLEANUP_PKEY EVP_PKEY *key = read_key(c->key);
    *ret = (pp_certificates_state){
        .ca = inspect_pair(ca, ca_key, true),
        .next_ca = inspect_pair(next_ca, next_ca_key, true),
        .old_ca = inspect_pair(old_ca, NULL, false),
        .certificate = inspect_pair(cert, key, true),
        .names_match = cert && names_match(cert, names),
        .signed_by_ca = cert && ca && is_signed_by(cert, ca),
        .path_secret_missing = !pp_webhook_secret_valid(c->path_secret),
    };
}

/* ---- deciding ----------------------------------------------------------------------------------
 */

/** At 2/3 of its life: a third is left to notice that renewing fails. */
static int64_t renewal_time(const pp_certificate_state *state)
{
    return state->not_before + (state->not_after - state->not_before) / 3 * 2;
}

static bool is_current(const pp_certificate_state *state, int64_t now)
{
    return state->valid && state->not_before <= now && now < state->not_after;
}

/** The authority's part; returns the one that will sign after the plan. */
static const pp_certificate_state *plan_ca(const pp_certificates_state *s, int64_t now,
                                           pp_certificates_plan *plan)
{
    bool next_usable = is_current(&s->next_ca, now);
    bool next_early = s->next_ca.valid && s->next_ca.not_before > now;
    if (!is_current(&s->ca, now)) {
        plan->promote_ca = next_usable; /* what peers may already know beats what none can */
        plan->make_ca = !next_usable;
        return next_usable ? &s->next_ca : NULL;
    }
    if (now < renewal_time(&s->ca))
        return &s->ca;
    if (!next_usable) {
        plan->introduce_ca = !next_early;
        return &s->ca;
    }
    int64_t known_since = s->next_ca.not_before + PP_CLOCK_SKEW;
    if (now >= known_since + PP_CA_INTRODUCTION) {
        plan->promote_ca = true;
        return &s->next_ca;
    }
    return &s->ca;
}

void pp_certificates_plan_at(const pp_certificates_state *state, int64_t now,
                             pp_certificates_plan *ret)
{
    pp_certificates_plan plan = {0};
    const pp_certificate_state *signer = plan_ca(state, now, &plan);
    plan.drop_old_ca = plan.make_ca || (state->old_ca.valid && now >= state->old_ca.not_after);
    bool same_signer = signer == &state->ca && state->signed_by_ca;
    plan.issue = !same_signer || !state->names_match || !is_current(&state->certificate, now) ||
                 now >= renewal_time(&state->certificate);
    plan.make_path_secret = state->path_secret_missing;
    *ret = plan;
}

/* ---- carrying it out ---------------------------------------------------------------------------
 */

static char *copy_or_null(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;
    *failed = *failed || (text && !copy);
    return copy;
}

static int copy_all(const pp_certificates *from, pp_certificates *to, pp_error *err)
{
    bool failed = false;
    *to = (pp_certificates){
        .ca = copy_or_null(from->ca, &failed),
        .ca_key = copy_or_null(from->ca_key, &failed),
        .next_ca = copy_or_null(from->next_ca, &failed),
        .next_ca_key = copy_or_null(from->next_ca_key, &failed),
        .old_ca = copy_or_null(from->old_ca, &failed),
        .certificate = copy_or_null(from->certificate, &failed),
        .key = copy_or_null(from->key, &failed),
        .path_secret = copy_or_null(from->path_secret, &failed),
    };
    return failed ? pp_error_nomem(err) : 0;
}

/** Replaces an owned text. */
static void put(char **slot, char *text)
{
    free(*slot);
    *slot = text;
}

static void promote(pp_certificates *c)
{
    put(&c->old_ca, PP_TAKE(c->ca));
    put(&c->ca, PP_TAKE(c->next_ca));
    put(&c->ca_key, PP_TAKE(c->next_ca_key));
}

/* The API server takes a path whose segments are lower-case DNS names, and no other. */
static const char secret_digits[] = "0123456789abcdef";

bool pp_webhook_secret_valid(const char *text)
{
    return text && strlen(text) == PP_WEBHOOK_SECRET &&
           strspn(text, secret_digits) == PP_WEBHOOK_SECRET;
}

static int make_path_secret(char **slot, pp_error *err)
{
    unsigned char bytes[PP_WEBHOOK_SECRET / 2];
    char text[PP_WEBHOOK_SECRET + 1] = "";
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return refuse_openssl(err, "make a path for the webhook");
    for (size_t i = 0; i < sizeof bytes; i++) {
        text[2 * i] = secret_digits[bytes[i] >> 4];
        text[2 * i + 1] = secret_digits[bytes[i] & 0xf];
    }
    put(slot, strdup(text));
    OPENSSL_cleanse(bytes, sizeof bytes);
    OPENSSL_cleanse(text, sizeof text);
    return *slot ? 0 : pp_error_nomem(err);
}

static int follow_plan(const pp_certificates_plan *plan, pp_certificates *c,
                       const pp_strings *names, int64_t now, pp_error *err)
{
    char *cert = NULL;
    char *key = NULL;
    if (plan->make_path_secret && make_path_secret(&c->path_secret, err) < 0)
        return -1;
    if (plan->make_ca) {
        char *path_secret = PP_TAKE(c->path_secret); /* is as good as before */
        pp_certificates_done(c);
        c->path_secret = path_secret;
        if (make_ca(now, &c->ca, &c->ca_key, err) < 0)
            return -1;
    }
    if (plan->drop_old_ca)
        put(&c->old_ca, NULL);
    if (plan->introduce_ca) {
        put(&c->next_ca, NULL);
        put(&c->next_ca_key, NULL);
        if (make_ca(now, &c->next_ca, &c->next_ca_key, err) < 0)
            return -1;
    }
    if (plan->promote_ca)
        promote(c);
    if (!plan->issue)
        return 0;
    int rc = issue(c, names, now, &cert, &key, err);
    put(&c->certificate, cert);
    put(&c->key, key);
    return rc;
}

static bool is_dns_name(const char *name)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyz0123456789-.*";
    size_t n = strlen(name);
    return n > 0 && n <= MAX_NAME && strspn(name, legal) == n;
}

static int check_names(const pp_strings *names, pp_error *err)
{
    if (names->count < 1 || names->count > MAX_NAMES)
        return pp_error_set(err, PP_ERR_INVALID, "1 to %d DNS names are needed", MAX_NAMES);
    for (size_t i = 0; i < names->count; i++) {
        if (!is_dns_name(names->items[i]))
            return pp_error_set(err, PP_ERR_INVALID, "%s is not a DNS name", names->items[i]);
    }
    return 0;
}

int pp_certificates_renew(pp_certificates *certificates, const pp_strings *names, int64_t now,
                          bool *ret_changed, pp_error *err)
{
    pp_certificates_state state;
    pp_certificates_plan plan;
    if (check_names(names, err) < 0)
        return -1;
    pp_certificates_inspect(certificates, names, &state);
    /* It is this clock that is behind: peers that trust the authority would trust no other. */
    if (state.ca.valid && state.ca.not_before > now)
        return pp_error_set(err, PP_ERR_INVALID,
                            "the authority begins only later: is this node's clock behind?");
    pp_certificates_plan_at(&state, now, &plan);
    bool changed = plan.make_ca || plan.introduce_ca || plan.promote_ca || plan.drop_old_ca ||
                   plan.issue || plan.make_path_secret;
    if (changed) {
        pp_certificates fresh;
        if (copy_all(certificates, &fresh, err) < 0 ||
            follow_plan(&plan, &fresh, names, now, err) < 0) {
            pp_certificates_done(&fresh);
            return -1;
        }
        pp_certificates_done(certificates);
        *certificates = fresh;
    }
    *ret_changed = changed;
    return 0;
}

char *pp_certificates_bundle(const pp_certificates *c, pp_error *err)
{
    char *bundle = NULL;
    const char *const parts[] = {c->ca, c->next_ca, c->old_ca};
    const char *texts[3];
    for (size_t i = 0; i < 3; i++)
        texts[i] = parts[i] ? parts[i] : "";
    if (asprintf(&bundle, "%s%s%s", texts[0], texts[1], texts[2]) < 0) {
        (void)pp_error_nomem(err);
        return NULL;
    }
    return bundle;
}

/* ---- Secret data -------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    size_t offset;
} secret_keys[] = {
    {"tls.crt", offsetof(pp_certificates, certificate)},
    {"tls.key", offsetof(pp_certificates, key)},
    {"ca.crt", offsetof(pp_certificates, ca)},
    {"ca.key", offsetof(pp_certificates, ca_key)},
    {"next-ca.crt", offsetof(pp_certificates, next_ca)},
    {"next-ca.key", offsetof(pp_certificates, next_ca_key)},
    {"old-ca.crt", offsetof(pp_certificates, old_ca)},
    {"webhook-path", offsetof(pp_certificates, path_secret)},
};

enum { SECRET_KEYS = sizeof secret_keys / sizeof *secret_keys };

static char *decode_base64(const char *text)
{
    size_t n = strlen(text);
    unsigned char *out = malloc(n / 4 * 3 + 4);
    int length = out ? EVP_DecodeBlock(out, (const unsigned char *)text, (int)n) : -1;
    if (length < 0) {
        free(out);
        ERR_clear_error();
        return NULL;
    }
    /* DecodeBlock counts the padding as zero bytes; PEM holds none of its own. */
    out[length] = '\0';
    return (char *)out;
}

static char *encode_base64(const char *text)
{
    size_t n = strlen(text);
    unsigned char *out = malloc((n + 2) / 3 * 4 + 1);
    if (out)
        EVP_EncodeBlock(out, (const unsigned char *)text, (int)n);
    return (char *)out;
}

int pp_certificates_from_secret(const json_t *data, pp_certificates *ret, pp_error *err)
{
    pp_certificates c = {0};
    for (size_t i = 0; i < SECRET_KEYS; i++) {
        const json_t *value = json_object_get(data, secret_keys[i].name);
        if (!value)
            continue;
        const char *text = json_string_value(value);
        char *decoded = text && strlen(text) <= MAX_PEM ? decode_base64(text) : NULL;
        if (!decoded) {
            pp_certificates_done(&c);
            return pp_error_field(err, secret_keys[i].name, "is not base64 of a text");
        }
        *(char **)(void *)((char *)&c + secret_keys[i].offset) = decoded;
    }
    *ret = c;
    return 0;
}

json_t *pp_certificates_to_secret(const pp_certificates *certificates, pp_error *err)
{
    PP_CLEANUP_JSON json_t *data = json_object();
    for (size_t i = 0; data && i < SECRET_KEYS; i++) {
        const char *slot = (const char *)certificates + secret_keys[i].offset;
        const char *text = *(char *const *)(const void *)slot;
        if (!text)
            continue;
        PP_CLEANUP_FREE char *encoded = encode_base64(text);
        if (!encoded || json_object_set_new(data, secret_keys[i].name, json_string(encoded)) < 0) {
            (void)pp_error_nomem(err);
            return NULL;
        }
    }
    if (!data)
        (void)pp_error_nomem(err);
    return PP_TAKE(data);
}
