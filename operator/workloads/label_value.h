/*
 * What others have named as the value of a label in Prometheus' text format: bounded, printable,
 * escaped, and another for another name.
 */
#ifndef PP_OPERATOR_WORKLOADS_LABEL_VALUE_H
#define PP_OPERATOR_WORKLOADS_LABEL_VALUE_H

#include <stddef.h>

enum {
    PP_LABEL_BYTES = 120,                   /**< of a value, before it is escaped */
    PP_LABEL_VALUE = 2 * PP_LABEL_BYTES + 1 /**< escaped, with its NUL */
};

/** Stands for all that is not told apart; pp_label_value() gives no name that. */
#define PP_LABEL_REST "(rest)"

/**
 * The value for a name of any bytes. A name of PP_LABEL_BYTES at most that can be printed is its
 * own value, but for the escapes. What cannot be (bytes that are no UTF-8, controls but newlines,
 * what turns the direction of text, PP_LABEL_REST) is replaced, and of a longer one the middle is
 * left out: such a value holds a digest of the whole name. Empty without memory.
 */
void pp_label_value(const char *name, char ret[PP_LABEL_VALUE]);

#endif
