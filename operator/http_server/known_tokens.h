/*
 * Tokens for the API that were good lately, and whose they are: plain bookkeeping, without sockets
 * or a clock. Whoever brings one of them is limited by who that is; anybody else by where it comes
 * from, which behind a proxy is the same for all. The tokens themselves are not kept.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_KNOWN_TOKENS_H
#define PP_OPERATOR_HTTP_SERVER_KNOWN_TOKENS_H

#include <stddef.h>
#include <stdint.h>

enum { KNOWN_TOKEN_DIGEST = 32, MAX_KNOWN_TOKENS = 4096 };

typedef struct known_tokens known_tokens;

/** NULL without memory. */
known_tokens *known_tokens_new(void);
/** Accepts NULL. */
void known_tokens_free(known_tokens *k);

/** It was good now (monotonic ns), and is `who`'s, not 0: known for a minute. Past the most the one
 * that has been there longest goes; without memory nothing is kept. */
void known_tokens_keep(known_tokens *k, const unsigned char *digest, uint64_t who, int64_t now);
/** It is good no more. */
void known_tokens_drop(known_tokens *k, const unsigned char *digest);
/** Whose it is; 0: it is not known. */
uint64_t known_tokens_find(known_tokens *k, const unsigned char *digest, int64_t now);

size_t known_tokens_count(const known_tokens *k);

#endif
