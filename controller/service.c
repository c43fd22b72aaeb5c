#include "controller/service.h"

#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* What begins with `prefix` goes on behind it; NULL: it begins otherwise. */
static const char *behind(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return text && strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

bool pp_service_has(const char *url, const char *name, const char *namespace_)
{
    const char *host = strstr(url, "://");
    const char *rest = behind(host ? behind(host, "://") : url, name);
    rest = behind(behind(rest, "."), namespace_);
    if (!rest)
        return false;
    const char *suffix = behind(rest, ".svc");
    const char *end = suffix ? suffix : rest;
    return *end == '\0' || strchr(":/", *end) || (suffix && *end == '.');
}

bool pp_service_selects(const json_t *service, const json_t *labels)
{
    const json_t *selector = pp_json_get(service, "spec", "selector", NULL);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)selector, key, value)
    {
        if (!json_equal(value, json_object_get(labels, key)))
            return false;
    }
    return true;
}

static int add(pp_strings *ret, const json_t *value, pp_error *err)
{
    const char *text = json_string_value(value);
    if (!text || !pp_wire_is_address(text) || ret->count >= PP_WIRE_MAX_ADDRESSES)
        return 0; /* "None", "" */
    return pp_strings_add_once(ret, text, err);
}

int pp_service_addresses(const json_t *service, pp_strings *ret, pp_error *err)
{
    const json_t *all = pp_json_get(service, "spec", "clusterIPs", NULL);
    *ret = (pp_strings){0};
    for (size_t i = 0; i < json_array_size(all); i++) {
        if (add(ret, json_array_get(all, i), err) < 0)
            return -1;
    }
    return ret->count ? 0 : add(ret, pp_json_get(service, "spec", "clusterIP", NULL), err);
}

/* 0: the slice has no such port. */
static int port_of(const json_t *slice, const char *name)
{
    size_t i;
    const json_t *port;
    json_array_foreach(json_object_get(slice, "ports"), i, port)
    {
        const char *its = pp_json_get_string(port, "name", NULL);
        const json_int_t number = json_integer_value(json_object_get(port, "port"));
        if (its && strcmp(its, name) == 0 && number > 0 && number < 65536)
            return (int)number;
    }
    return 0;
}

int pp_service_endpoints(const json_t *slice, const char *port, const char *self, pp_strings *ret,
                         pp_error *err)
{
    const int number = port_of(slice, port);
    size_t i;
    const json_t *endpoint;
    *ret = (pp_strings){0};
    json_array_foreach(json_object_get(slice, "endpoints"), i, endpoint)
    {
        char text[80];
        const char *pod = pp_json_get_string(endpoint, "targetRef", "name", NULL);
        /* All addresses of an endpoint are the same one. */
        const char *address =
            json_string_value(json_array_get(json_object_get(endpoint, "addresses"), 0));
        if (!number || !address || !pp_wire_is_address(address) ||
            (pod && self && strcmp(pod, self) == 0))
            continue;
        (void)snprintf(text, sizeof text, strchr(address, ':') ? "[%s]:%d" : "%s:%d", address,
                       number);
        if (pp_strings_add_once(ret, text, err) < 0)
            return -1;
    }
    return 0;
}
