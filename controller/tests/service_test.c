/* Where agents find the operator's Service. */
#include "controller/service.h"
#include "controller/tests/fixtures.h"

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        bool its;
    } cases[] = {
        {"wss://probe.system.svc/v1/ingest", true},
        {"wss://probe.system.svc:443/v1/ingest", true},
        {"wss://probe.system.svc.cluster.local:8443/v1/ingest", true},
        {"wss://probe.system/v1/ingest", true},
        {"wss://probe.system", true},
        {"probe.system.svc", true},
        {"wss://probe.systems.svc/v1/ingest", false},
        {"wss://probe.system.example.com/v1/ingest", false},
        {"wss://probe.system.svcs/v1/ingest", false},
        {"wss://probe.other.svc/v1/ingest", false},
        {"wss://probes.system.svc/v1/ingest", false},
        {"wss://probe", false},
        {"wss://probe.", false},
        {"wss://10.96.3.4/v1/ingest", false},
        {"wss://example.com/probe.system.svc", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (pp_service_has(cases[i].url, "probe", "system") != cases[i].its)
            fail_msg("%s", cases[i].url);
    }
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *service, *first, *second; /* NULL: none */
    } cases[] = {
        {"{'spec': {'clusterIP': '10.96.3.4', 'clusterIPs': ['10.96.3.4']}}", "10.96.3.4", NULL},
        {"{'spec': {'clusterIPs': ['fd00:10:96::1a2b', '10.96.3.4']}}", "fd00:10:96::1a2b",
         "10.96.3.4"},
        {"{'spec': {'clusterIPs': ['10.96.3.4', '10.96.3.4']}}", "10.96.3.4", NULL},
        {"{'spec': {'clusterIP': '10.96.3.4'}}", "10.96.3.4", NULL},
        {"{'spec': {'clusterIP': 'None', 'clusterIPs': ['None']}}", NULL, NULL},
        {"{'spec': {'clusterIP': ''}}", NULL, NULL},
        {"{'spec': {'type': 'ExternalName', 'externalName': 'probe.example.com'}}", NULL, NULL},
        {"{'spec': {'clusterIPs': [7, 'fe80::1%eth0', '10.96.3.4:443']}}", NULL, NULL},
        {"{}", NULL, NULL},
        {"[]", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_strings got;
        PP_CLEANUP_JSON json_t *service = fixture_json(cases[i].service);
        assert_int_equal(pp_service_addresses(service, &got, NULL), 0);
        assert_int_equal(got.count, !!cases[i].first + !!cases[i].second);
        if (cases[i].first)
            assert_string_equal(got.items[0], cases[i].first);
        if (cases[i].second)
            assert_string_equal(got.items[1], cases[i].second);
        pp_strings_free(&got);
    }
}

static void test_whom_it_selects(void **state)
{
    (void)state;
    static const struct {
        const char *selector;
        bool selects;
    } cases[] = {
        {"{'spec': {'selector': {'app': 'probe', 'release': 'one'}}}", true},
        {"{'spec': {'selector': {'app': 'probe'}}}", true},
        {"{'spec': {'selector': {}}}", true},
        {"{'spec': {}}", true},
        {"{'spec': {'selector': {'app': 'prober'}}}", false},
        {"{'spec': {'selector': {'app': 'probe', 'tier': 'a'}}}", false},
    };
    PP_CLEANUP_JSON json_t *labels = fixture_json("{'app': 'probe', 'release': 'one', 'x': 'y'}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PP_CLEANUP_JSON json_t *service = fixture_json(cases[i].selector);
        assert_int_equal(pp_service_selects(service, labels), cases[i].selects);
    }
}

static void test_not_more_than_agents_take(void **state)
{
    (void)state;
    pp_strings got;
    PP_CLEANUP_JSON json_t *service = json_pack("{s:{s:[]}}", "spec", "clusterIPs");
    json_t *all = json_object_get(json_object_get(service, "spec"), "clusterIPs");
    for (int i = 0; i < 20; i++)
        json_array_append_new(all, json_sprintf("10.96.3.%d", i));
    assert_int_equal(pp_service_addresses(service, &got, NULL), 0);
    assert_int_equal(got.count, 8);
    pp_strings_free(&got);
}

static void test_endpoints(void **state)
{
    (void)state;
    static const struct {
        const char *slice, *first, *second; /* NULL: none */
    } cases[] = {
        {"{'ports': [{'name': 'https', 'port': 9443}, {'name': 'metrics', 'port': 8080}],"
         " 'endpoints': [{'addresses': ['10.0.0.4'], 'targetRef': {'name': 'me'}},"
         " {'addresses': ['10.0.0.5'], 'targetRef': {'name': 'other'}},"
         " {'addresses': ['10.0.0.6'], 'conditions': {'ready': false, 'terminating': true}}]}",
         "10.0.0.5:9443", "10.0.0.6:9443"},
        {"{'ports': [{'name': 'https', 'port': 9443}], 'endpoints': [{'addresses': ['fd00::5']}]}",
         "[fd00::5]:9443", NULL},
        {"{'ports': [{'name': 'http', 'port': 9443}], 'endpoints': [{'addresses': ['10.0.0.5']}]}",
         NULL, NULL},
        {"{'ports': [{'name': 'https', 'port': 70000}], 'endpoints': [{'addresses': "
         "['10.0.0.5']}]}",
         NULL, NULL},
        {"{'ports': [{'name': 'https'}], 'endpoints': [{'addresses': ['10.0.0.5']}]}", NULL, NULL},
        {"{'ports': [{'name': 'https', 'port': 9443}], 'endpoints': [{'addresses': ['a.b:1/x']}, "
         "{'addresses': []}, {}, 7]}",
         NULL, NULL},
        {"{'ports': null, 'endpoints': null}", NULL, NULL},
        {"[]", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pp_strings got;
        PP_CLEANUP_JSON json_t *slice = fixture_json(cases[i].slice);
        assert_int_equal(pp_service_endpoints(slice, "https", "me", &got, NULL), 0);
        assert_int_equal(got.count, !!cases[i].first + !!cases[i].second);
        if (cases[i].first)
            assert_string_equal(got.items[0], cases[i].first);
        if (cases[i].second)
            assert_string_equal(got.items[1], cases[i].second);
        pp_strings_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),           cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_whom_it_selects), cmocka_unit_test(test_not_more_than_agents_take),
        cmocka_unit_test(test_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
