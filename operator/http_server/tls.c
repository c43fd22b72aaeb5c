/*
 * Certificates into a live SSL_CTX. libwebsockets' own reload (lws_tls_cert_updated) reports
 * success for a broken pair and then fails every handshake, so the pair is tried elsewhere first.
 */
#include "operator/http_server/http_server_internal.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

typedef struct pair {
    X509 *certificate;
    EVP_PKEY *key;
    STACK_OF(X509) * chain;
} pair;

static void pair_done(pair *p)
{
    X509_free(p->certificate);
    EVP_PKEY_free(p->key);
    sk_X509_pop_free(p->chain, X509_free);
}

static int no_passphrase(char *buf, int size, int writing, void *context)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

/** The first certificate, then those that lead from it to an authority. */
static int read_chain(const char *pem, pair *ret)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    ret->certificate = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
    ret->chain = sk_X509_new_null();
    X509 *next;
    while (ret->certificate && ret->chain &&
           (next = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
        if (!sk_X509_push(ret->chain, next)) {
            X509_free(next);
            break;
        }
    }
    BIO_free(bio);
    return ret->certificate && ret->chain ? 0 : -1;
}

static int read_pair(const char *certificate, const char *key, pair *ret, pp_error *err)
{
    if (!certificate || read_chain(certificate, ret) < 0)
        return pp_error_set(err, PP_ERR_INVALID, "the serving certificate is not PEM");
    BIO *bio = key ? BIO_new_mem_buf(key, -1) : NULL;
    ret->key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    if (!ret->key)
        return pp_error_set(err, PP_ERR_INVALID, "the serving certificate's key is not PEM");
    return 0;
}

int http_tls_use(SSL_CTX *ctx, const char *certificate, const char *key, pp_error *err)
{
    pair p = {0};
    int rc = read_pair(certificate, key, &p, err);
    if (rc == 0 && SSL_CTX_use_cert_and_key(ctx, p.certificate, p.key, p.chain, 1) != 1) {
        char why[160] = "";
        ERR_error_string_n(ERR_peek_error(), why, sizeof why);
        rc = pp_error_set(err, PP_ERR_INVALID, "certificate and key do not fit: %s", why);
    }
    ERR_clear_error();
    pair_done(&p);
    return rc;
}

int http_tls_try(const char *certificate, const char *key, pp_error *err)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return pp_error_nomem(err);
    int rc = http_tls_use(ctx, certificate, key, err);
    SSL_CTX_free(ctx);
    return rc;
}

/** Whoever shows none, or a foreign one, is no reviewer, and may be an agent. */
static int accept_any(int known, X509_STORE_CTX *store)
{
    (void)known;
    (void)store;
    return 1;
}

static X509_STORE *read_authorities(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509_STORE *store = X509_STORE_new();
    int count = 0;
    X509 *next;
    while (bio && store && (next = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL))) {
        count += X509_STORE_add_cert(store, next);
        X509_free(next);
    }
    BIO_free(bio);
    ERR_clear_error();
    if (count)
        return store;
    X509_STORE_free(store);
    return NULL;
}

int http_tls_ask_clients(SSL_CTX *ctx, const char *pem, pp_error *err)
{
    X509_STORE *store = pem ? read_authorities(pem) : NULL;
    if (pem && !store)
        return pp_error_set(err, PP_ERR_INVALID, "the clients' authorities are not PEM");
    (void)SSL_CTX_set0_verify_cert_store(ctx, store);
    SSL_CTX_set_verify(ctx, pem ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, accept_any);
    return 0;
}

bool http_tls_client_known(struct lws *wsi)
{
    const SSL *ssl = lws_get_ssl(wsi);
    return ssl && SSL_get0_peer_certificate(ssl) && SSL_get_verify_result(ssl) == X509_V_OK;
}

void http_tls_configure(SSL_CTX *ctx)
{
    static const unsigned char name[] = "precisionprobe"; /* resumption wants one beside clients' */
    (void)SSL_CTX_set_session_id_context(ctx, name, sizeof name - 1);
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    /* Nothing is kept for a peer that has gone: OpenSSL would, of 20,480 of them. */
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
}
