/*
 * Decoding JSON objects into C structs by table (name, type, offset, needed or not), so that every
 * decoder refuses the same bad input with the same words and the field's full path.
 */
#ifndef PP_COMMON_JSON_H
#define PP_COMMON_JSON_H

#include "common/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pp_json_type {
    PP_JSON_STRING,   /**< char *, a copy owned by the struct */
    PP_JSON_BOOL,     /**< bool */
    PP_JSON_INT,      /**< int64_t */
    PP_JSON_NUMBER,   /**< double; JSON integers are accepted */
    PP_JSON_STRINGS,  /**< pp_strings, copies owned by the struct */
    PP_JSON_DURATION, /**< int64_t in ns from "90s", "2m30s", "1h", "250ms" */
    PP_JSON_TIME,     /**< int64_t in ns since 1970 from RFC 3339 */
    PP_JSON_VALUE,    /**< json_t *, a new reference owned by the struct */
} pp_json_type;

/** A list of owned strings. */
typedef struct pp_strings {
    char **items;
    size_t count;
} pp_strings;

typedef struct pp_json_field {
    const char *name;
    pp_json_type type;
    size_t offset;
    bool required;
    int64_t
        max; /**< INT: greatest value; STRING: longest; STRINGS: most items; 0: the default limit */
} pp_json_field;

/**
 * Decodes `object` into the struct at `out` (zero-initialised by the caller, defaults set before).
 * Absent optional fields and JSON null leave the struct untouched. `path` prefixes field names in
 * errors ("spec"). Unknown keys are ignored unless `strict`. The table ends with a NULL name.
 * On failure what was decoded so far stays in `out`: free it with pp_json_free_fields.
 */
int pp_json_decode(const json_t *object, const pp_json_field *fields, bool strict, const char *path,
                   void *out, pp_error *err);

/** Frees what the table's fields own in `out` and zeroes them. */
void pp_json_free_fields(const pp_json_field *fields, void *out);

/** Parses text of n bytes, refusing duplicate keys and nesting beyond jansson's limit. NULL on
 * error. */
json_t *pp_json_parse(const char *text, size_t n, pp_error *err);

/** Follows keys ("spec", "template", NULL-terminated) through nested objects; borrowed, or NULL. */
const json_t *pp_json_get(const json_t *object, ...) __attribute__((sentinel));

/** The string under the keys, borrowed, or NULL. */
const char *pp_json_get_string(const json_t *object, ...) __attribute__((sentinel));

/** The list's first object whose "name" is this; borrowed, or NULL. */
const json_t *pp_json_named(const json_t *list, const char *name);

/** Bytes of heap that a value and all in it take, about: 20 times its text where that is short keys
 * and numbers. */
size_t pp_json_bytes(const json_t *value);

/** A new string of a text that may have been cut within a character, whose bytes are then left out
 * at the end, and "?" elsewhere. NULL without memory. */
json_t *pp_json_text(const char *text);

void pp_strings_free(pp_strings *strings);
int pp_strings_add(pp_strings *strings, const char *text, pp_error *err);
/** As pp_strings_add, unless the text is there already. */
int pp_strings_add_once(pp_strings *strings, const char *text, pp_error *err);
bool pp_strings_contain(const pp_strings *strings, const char *text);
/** Where the text is first; `count` where it is not. */
size_t pp_strings_index(const pp_strings *strings, const char *text);

#endif
