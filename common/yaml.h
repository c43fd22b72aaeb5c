/* YAML text into jansson values, through libyaml's document API. */
#ifndef PP_COMMON_YAML_H
#define PP_COMMON_YAML_H

#include "common/error.h"

#include <jansson.h>
#include <stddef.h>

/**
 * Parses one YAML document. Plain scalars are typed by the YAML 1.2 core schema (null, true/false,
 * integers, floats), quoted ones are strings. Duplicate keys, non-string keys, merge keys, more
 * than 100,000 nodes or nesting deeper than 64 are refused (an alias bomb hits the node limit).
 * Returns a new reference or NULL with the line in the message.
 */
json_t *pp_yaml_parse(const char *text, size_t n, pp_error *err);

#endif
