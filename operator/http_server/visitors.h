/*
 * Who is connected without having proved who they are, and how many of them there may be: plain
 * bookkeeping, without sockets or a clock. A visitor is named by a pointer that is never followed
 * (the server's wsi). Times are monotonic ns.
 *
 * Connections are counted in shares, so that those of one kind cannot keep out another's. Within a
 * share no address has more than its part, and where the share is full, a newcomer takes the place
 * of the address that has most. Nobody loses a place to its own address within VISITOR_GRACE, so
 * that a crowd behind one address is served one after another, instead of nobody. Who waits for an
 * answer of ours keeps its place only where reviews are answered; elsewhere it goes after those
 * that wait for nothing. Who does not read an answer waits for nothing.
 */
#ifndef PP_OPERATOR_HTTP_SERVER_VISITORS_H
#define PP_OPERATOR_HTTP_SERVER_VISITORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VISITOR_GRACE INT64_C(1000000000)

typedef enum visitor_share {
    SHARE_UNPROVEN, /**< the TLS port, before anything was proved */
    SHARE_REVIEW,   /**< has asked for a review where only the API server knows to */
    SHARE_API,      /**< has read results with a good token */
    SHARE_PLAIN,    /**< the plain port, and that on loopback */
    SHARES,
} visitor_share;

typedef struct visitor_limits {
    size_t total;       /**< connections in the share */
    size_t each;        /**< of these from one address; 0: as many as there may be */
    int64_t to_request; /**< ns from coming to a whole request, TLS handshake included */
    int64_t idle;       /**< ns that a connection is kept after an answer */
} visitor_limits;

/** An address as 16 bytes: IPv4 as ::ffff:a.b.c.d, of IPv6 the first 8 alone (a host has a /64). */
typedef struct visitor_address {
    unsigned char bytes[16];
} visitor_address;

struct sockaddr;
/** Of any family; others than IPv4 and IPv6 give zeros. */
visitor_address visitor_address_of(const struct sockaddr *address);

typedef struct visitors visitors;

/** NULL without memory. */
visitors *visitors_new(const visitor_limits limits[SHARES]);
void visitors_free(visitors *v);

/**
 * A newcomer: whether it may stay. Where it may only in another's place, *ret_victim is that one,
 * else NULL; the victim is not counted any more and is to be cut (visitors_overdue names it again
 * until visitors_leave).
 */
bool visitors_admit(visitors *v, const void *who, visitor_share share,
                    const visitor_address *address, int64_t now, const void **ret_victim);

/** What was admitted under one name is known by another from now on. */
void visitors_rename(visitors *v, const void *who, const void *name);

/** It has proved what it is and goes into another share; as visitors_admit. False: it stays. */
bool visitors_promote(visitors *v, const void *who, visitor_share share, int64_t now,
                      const void **ret_victim);

/** Its request has come, and waits for its answer in times of its own. */
void visitors_busy(visitors *v, const void *who);
/** Its answer is there to be read. */
void visitors_idle(visitors *v, const void *who, int64_t now);
/** The time of all in a share that wait for no answer is over. */
void visitors_end_idle(visitors *v, visitor_share share, int64_t now);
/** It is gone, or has become an agent's connection, which is counted elsewhere. */
void visitors_leave(visitors *v, const void *who);

/** Where it comes from; false: it is not known. */
bool visitors_address(const visitors *v, const void *who, visitor_address *ret);

/** One whose time is over, or that lost its place; NULL when there is none. Each is named once a
 * call of visitors_sweep. */
const void *visitors_overdue(visitors *v, int64_t now);
/** Begins anew to name those that are overdue. */
void visitors_sweep(visitors *v);

size_t visitors_count(const visitors *v, visitor_share share);

#endif
