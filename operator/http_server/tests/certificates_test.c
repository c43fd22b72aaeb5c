#include "operator/http_server/certificates.h"

#include "common/cleanup.h"
#include "common/tests/cmocka_all.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#define NOW INT64_C(1770000000000000000)

static pp_strings two_names(void)
{
    pp_strings names = {0};
    assert_int_equal(pp_strings_add(&names, "operator.precisionprobe.svc", NULL), 0);
    assert_int_equal(pp_strings_add(&names, "operator", NULL), 0);
    return names;
}

/** Renews and says whether anything changed. */
static bool renew(pp_certificates *c, const pp_strings *names, int64_t now)
{
    bool changed = false;
    pp_error err = {0};
    if (pp_certificates_renew(c, names, now, &changed, &err) < 0)
        fail_msg("%s", err.message);
    return changed;
}

static X509 *read_one(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    return cert;
}

/** What a client does: does the serving certificate verify against a bundle, for a name, at a time.
 */
static bool verifies(const char *certificate, const char *bundle, const char *name, int64_t now)
{
    X509_STORE *store = X509_STORE_new();
    BIO *bio = BIO_new_mem_buf(bundle, -1);
    X509 *ca;
    while ((ca = PEM_read_bio_X509(bio, NULL, NULL, NULL))) {
        X509_STORE_add_cert(store, ca);
        X509_free(ca);
    }
    BIO_free(bio);
    X509 *cert = read_one(certificate);
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    X509_STORE_CTX_init(ctx, store, cert, NULL);
    X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
    X509_VERIFY_PARAM_set1_host(param, name, 0);
    X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_X509_STRICT);
    X509_VERIFY_PARAM_set_time(param, (time_t)(now / 1000000000));
    bool ok = X509_verify_cert(ctx) == 1;
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    X509_free(cert);
    return ok;
}

static void test_made_and_verified(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    assert_true(renew(&c, &names, NOW));
    PP_CLEANUP_FREE char *bundle = pp_certificates_bundle(&c, NULL);
    assert_true(verifies(c.certificate, bundle, "operator", NOW));
    assert_true(verifies(c.certificate, bundle, "operator.precisionprobe.svc", NOW));
    assert_true(verifies(c.certificate, bundle, "operator", NOW + 89 * PP_DAY));
    assert_false(verifies(c.certificate, bundle, "operator", NOW + 91 * PP_DAY));
    assert_false(verifies(c.certificate, bundle, "else", NOW));
    pp_certificates other = {0};
    assert_true(renew(&other, &names, NOW));
    PP_CLEANUP_FREE char *foreign = pp_certificates_bundle(&other, NULL);
    assert_false(verifies(c.certificate, foreign, "operator", NOW));
    pp_certificates_done(&c);
    pp_certificates_done(&other);
    pp_strings_free(&names);
}

static void test_renewed_at_two_thirds(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    assert_true(renew(&c, &names, NOW));
    PP_CLEANUP_FREE char *first = strdup(c.certificate);
    PP_CLEANUP_FREE char *ca = strdup(c.ca);
    assert_false(renew(&c, &names, NOW + 59 * PP_DAY));
    assert_string_equal(c.certificate, first);
    assert_true(renew(&c, &names, NOW + 61 * PP_DAY));
    assert_string_not_equal(c.certificate, first);
    assert_string_equal(c.ca, ca);
    assert_true(verifies(c.certificate, c.ca, "operator", NOW + 61 * PP_DAY));
    pp_certificates_done(&c);
    pp_strings_free(&names);
}

static void test_other_names_need_another_certificate(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    assert_true(renew(&c, &names, NOW));
    assert_int_equal(pp_strings_add(&names, "third", NULL), 0);
    assert_true(renew(&c, &names, NOW));
    assert_true(verifies(c.certificate, c.ca, "third", NOW));
    assert_false(renew(&c, &names, NOW));
    pp_certificates_done(&c);
    pp_strings_free(&names);
}

/**
 * Ten years and more in steps of five days. At every moment the serving certificate verifies
 * against the bundle of now and against one that a client took up to 60 days ago.
 */
static void test_authority_rotates_without_a_gap(void **state)
{
    (void)state;
    enum { STEP = 5, KEPT = 12, STEPS = 2 * 3650 / STEP };
    pp_strings names = two_names();
    pp_certificates c = {0};
    char *bundles[KEPT] = {0};
    PP_CLEANUP_FREE char *first_ca = NULL;
    int authorities = 1;
    PP_CLEANUP_FREE char *last_ca = NULL;
    for (int i = 0; i < STEPS; i++) {
        int64_t now = NOW + (int64_t)i * STEP * PP_DAY;
        (void)renew(&c, &names, now);
        free(bundles[i % KEPT]);
        bundles[i % KEPT] = pp_certificates_bundle(&c, NULL);
        for (int k = 0; k < KEPT; k++)
            assert_true(!bundles[k] || verifies(c.certificate, bundles[k], "operator", now));
        if (last_ca && strcmp(last_ca, c.ca) != 0)
            authorities++;
        free(last_ca);
        last_ca = strdup(c.ca);
        first_ca = first_ca ? first_ca : strdup(c.ca);
    }
    assert_true(authorities >= 3);
    assert_string_not_equal(first_ca, c.ca);
    for (int k = 0; k < KEPT; k++)
        free(bundles[k]);
    pp_certificates_done(&c);
    pp_strings_free(&names);
}

static void test_plan_is_pure(void **state)
{
    (void)state;
    const pp_certificates_state good = {
        .ca = {true, NOW - PP_DAY, NOW + 3000 * PP_DAY},
        .certificate = {true, NOW - PP_DAY, NOW + 80 * PP_DAY},
        .names_match = true,
        .signed_by_ca = true,
    };
    pp_certificates_plan plan;
    pp_certificates_plan_at(&good, NOW, &plan);
    assert_false(plan.make_ca || plan.introduce_ca || plan.promote_ca || plan.drop_old_ca ||
                 plan.issue);

    pp_certificates_state s = good;
    s.ca.valid = false;
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.make_ca && plan.issue);

    s = good;
    s.ca.not_after = NOW; /* ended, and nothing to follow */
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.make_ca && plan.issue);

    s = good;
    s.ca.not_before = NOW - 3000 * PP_DAY;
    s.ca.not_after = NOW + 600 * PP_DAY;
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.introduce_ca && !plan.promote_ca && !plan.issue);

    s.next_ca = (pp_certificate_state){true, NOW - 10 * PP_DAY, NOW + 3600 * PP_DAY};
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_false(plan.introduce_ca || plan.promote_ca || plan.issue);

    s.next_ca.not_before = NOW - 100 * PP_DAY;
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.promote_ca && plan.issue && !plan.make_ca);

    s = good;
    s.old_ca = (pp_certificate_state){true, NOW - 3000 * PP_DAY, NOW - PP_DAY};
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.drop_old_ca && !plan.issue);

    s = good;
    s.signed_by_ca = false;
    pp_certificates_plan_at(&s, NOW, &plan);
    assert_true(plan.issue && !plan.make_ca);
}

static void test_broken_parts_count_as_absent(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    pp_certificates other = {0};
    assert_true(renew(&c, &names, NOW));
    assert_true(renew(&other, &names, NOW));
    PP_CLEANUP_FREE char *ca = strdup(c.ca);
    free(c.key);
    c.key = strdup(other.key); /* of another certificate */
    assert_true(renew(&c, &names, NOW));
    assert_string_equal(c.ca, ca);
    assert_false(renew(&c, &names, NOW));
    free(c.ca_key);
    c.ca_key = strdup("rubbish");
    assert_true(renew(&c, &names, NOW));
    assert_string_not_equal(c.ca, ca);
    assert_true(verifies(c.certificate, c.ca, "operator", NOW));
    pp_certificates_done(&c);
    pp_certificates_done(&other);
    pp_strings_free(&names);
}

/** A clock that is behind: what others trust already is not made anew. */
static void test_an_authority_of_the_future_is_kept(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    bool changed = false;
    assert_true(renew(&c, &names, NOW));
    PP_CLEANUP_FREE char *ca = strdup(c.ca);
    pp_error err = {0};
    assert_int_equal(pp_certificates_renew(&c, &names, NOW - 2 * PP_DAY, &changed, &err), -1);
    assert_string_equal(c.ca, ca);
    assert_false(renew(&c, &names, NOW));

    const pp_certificates_state early = {
        .ca = {true, NOW - 3000 * PP_DAY, NOW + 600 * PP_DAY},
        .next_ca = {true, NOW + PP_DAY, NOW + 3600 * PP_DAY},
        .certificate = {true, NOW - PP_DAY, NOW + 80 * PP_DAY},
        .names_match = true,
        .signed_by_ca = true,
    };
    pp_certificates_plan plan;
    pp_certificates_plan_at(&early, NOW, &plan);
    assert_false(plan.introduce_ca || plan.promote_ca || plan.make_ca);
    pp_certificates_done(&c);
    pp_strings_free(&names);
}

static void test_secret_and_back(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    pp_certificates back = {0};
    pp_error err = {0};
    assert_true(renew(&c, &names, NOW));
    PP_CLEANUP_JSON json_t *data = pp_certificates_to_secret(&c, &err);
    assert_non_null(json_object_get(data, "tls.crt"));
    assert_null(json_object_get(data, "next-ca.crt"));
    assert_int_equal(pp_certificates_from_secret(data, &back, &err), 0);
    assert_string_equal(back.ca, c.ca);
    assert_string_equal(back.ca_key, c.ca_key);
    assert_string_equal(back.certificate, c.certificate);
    assert_string_equal(back.key, c.key);
    assert_null(back.next_ca);
    assert_false(renew(&back, &names, NOW));
    pp_certificates_done(&back);
    json_object_set_new(data, "tls.key", json_string("***"));
    assert_int_equal(pp_certificates_from_secret(data, &back, &err), -1);
    assert_string_equal(err.field, "tls.key");
    pp_certificates_done(&c);
    pp_strings_free(&names);
}

/** Made once, kept whatever becomes of the certificates, and made anew where it is none. */
static void test_the_path_has_a_secret(void **state)
{
    (void)state;
    pp_strings names = two_names();
    pp_certificates c = {0};
    pp_certificates other = {0};
    pp_certificates back = {0};
    pp_error err = {0};
    assert_true(renew(&c, &names, NOW));
    assert_true(renew(&other, &names, NOW));
    assert_true(pp_webhook_secret_valid(c.path_secret));
    assert_string_not_equal(c.path_secret, other.path_secret);
    /* A segment of a webhook's path is a DNS name in lower case, or the API server refuses it. */
    assert_int_equal(strspn(c.path_secret, "abcdefghijklmnopqrstuvwxyz0123456789"),
                     strlen(c.path_secret));
    PP_CLEANUP_FREE char *secret = strdup(c.path_secret);
    assert_true(renew(&c, &names, NOW + PP_CERTIFICATE_LIFE));
    free(c.ca);
    c.ca = NULL;
    assert_true(renew(&c, &names, NOW));
    assert_string_equal(c.path_secret, secret);
    PP_CLEANUP_JSON json_t *data = pp_certificates_to_secret(&c, &err);
    assert_int_equal(pp_certificates_from_secret(data, &back, &err), 0);
    assert_string_equal(back.path_secret, secret);
    back.path_secret[3] = '/';
    assert_true(renew(&back, &names, NOW)); /* as after a release that had none */
    assert_true(pp_webhook_secret_valid(back.path_secret));
    assert_string_equal(back.ca, c.ca);
    assert_string_equal(back.certificate, c.certificate);
    assert_false(pp_webhook_secret_valid(""));
    assert_false(pp_webhook_secret_valid(NULL));
    pp_certificates_done(&c);
    pp_certificates_done(&other);
    pp_certificates_done(&back);
    pp_strings_free(&names);
}

static void test_names_are_checked(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "a,DNS:b", "a b", "A", "a/b"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pp_strings names = {0};
        pp_certificates c = {0};
        bool changed = false;
        pp_error err = {0};
        assert_int_equal(pp_strings_add(&names, wrong[i], NULL), 0);
        assert_int_equal(pp_certificates_renew(&c, &names, NOW, &changed, &err), -1);
        assert_int_equal(err.code, PP_ERR_INVALID);
        assert_null(c.ca);
        pp_strings_free(&names);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_verified),
        cmocka_unit_test(test_renewed_at_two_thirds),
        cmocka_unit_test(test_other_names_need_another_certificate),
        cmocka_unit_test(test_authority_rotates_without_a_gap),
        cmocka_unit_test(test_plan_is_pure),
        cmocka_unit_test(test_the_path_has_a_secret),
        cmocka_unit_test(test_broken_parts_count_as_absent),
        cmocka_unit_test(test_an_authority_of_the_future_is_kept),
        cmocka_unit_test(test_secret_and_back),
        cmocka_unit_test(test_names_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
