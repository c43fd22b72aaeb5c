/* What somebody wants to know first: the costliest layer, what bounds it, and how sure that is. */
#ifndef PP_CLI_TABLES_HEADLINE_H
#define PP_CLI_TABLES_HEADLINE_H

#include <jansson.h>
#include <stdio.h>

/**
 * Writes one line about one of results.json's gpus; nothing where no layer took time. The layer is
 * the one whose phases take most time of a step together; where marks may have lengthened that
 * (leastMillisecondsPerStep), it is chosen by what they surely take, and both are told. The bound
 * is that of its costliest phase. Names are written as they are.
 */
void pp_headline_print(FILE *to, const json_t *gpu);

/** What a bound of an item or a pattern is called for people; static, or the name itself. */
const char *pp_bound_phrase(const char *bound);

#endif
