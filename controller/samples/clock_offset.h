/*
 * How far another's clock is off, from round trips, and what becomes of stamps that it has made.
 *
 * In a round trip the other one reads its clocks between our sending and our receiving: whatever
 * the ways there and back took, it is within half of the trip of what the middle says. Trips are
 * placed on our monotonic clock, so that steps of either CLOCK_REALTIME do not spoil them.
 *
 * Pure: no I/O and no clock of its own; whom to ask is the caller's. docs/clocks.md says the same
 * for people. Everything is in ns; CLOCK_REALTIME since 1970.
 */
#ifndef PP_CONTROLLER_SAMPLES_CLOCK_OFFSET_H
#define PP_CONTROLLER_SAMPLES_CLOCK_OFFSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PP_CLOCK_TRIPS 8                               /* that are kept */
#define PP_CLOCK_TRIP_MAX INT64_C(2000000000)          /* a longer one tells too little */
#define PP_CLOCK_TOLERANCE INT64_C(20000000)           /* beside the bound: the lag takes it */
#define PP_CLOCK_OFFSET_MAX INT64_C(86400000000000)    /* a day: farther off it is no clock */
#define PP_CLOCK_SLACK INT64_C(60000000000)            /* of stamps around the session */
#define PP_CLOCK_EVERY INT64_C(15000000000)            /* between questions, after the first few */
#define PP_CLOCK_TIME_MAX INT64_C(4102444800000000000) /* 2100-01-01 */

/** Both of our clocks at one moment. */
typedef struct pp_clock_now {
    int64_t real_ns;
    int64_t monotonic_ns;
} pp_clock_now;

typedef struct pp_clock_trip {
    int64_t sent_ns, received_ns; /**< on our monotonic clock */
    int64_t real_ns;              /**< the other's CLOCK_REALTIME in between */
    int64_t monotonic_ns;         /**< its CLOCK_MONOTONIC at that moment; 0: not told */
    int64_t grain_ns;             /**< how much earlier than the moment its clock may read */
} pp_clock_trip;

/** What is known of one other clock; zeroed: nothing. */
typedef struct pp_clock {
    pp_clock_trip trips[PP_CLOCK_TRIPS]; /**< a ring */
    size_t n;                            /**< ever taken */
    uint64_t asked;                      /**< number of the last question; 0: none was asked */
    int64_t asked_ns;                    /**< when, on our monotonic clock */
    bool awaited;                        /**< it is not answered yet */
    bool answers;                        /**< there was an answer to some question */
} pp_clock;

/** Begins a question: its number, to be sent now. An answer to the one before counts no more. */
uint64_t pp_clock_ask(pp_clock *clock, int64_t monotonic_ns);

/**
 * Takes an answer to question `number`. trip->sent_ns is filled in here. Returns -1 where that is
 * not the question that is awaited (an old answer, a made-up one), it took too long, or its times
 * are none.
 */
int pp_clock_answered(pp_clock *clock, uint64_t number, const pp_clock_trip *trip);

/** Whether to ask now: the first few at once after each answer, then every PP_CLOCK_EVERY; one that
 * never answers, never. */
bool pp_clock_is_due(const pp_clock *clock, int64_t monotonic_ns);

/** How far it is ahead of our CLOCK_REALTIME; negative where it is behind. */
typedef struct pp_clock_offset {
    bool known;
    int64_t ahead_ns;
    int64_t bound_ns; /**< it is within this of ahead_ns */
} pp_clock_offset;

pp_clock_offset pp_clock_offset_of(const pp_clock *clock, const pp_clock_now *now);

/** Whether its CLOCK_MONOTONIC (where it tells none, its CLOCK_REALTIME) keeps jumping. */
bool pp_clock_is_unsteady(const pp_clock *clock);

/** What is taken out of stamps: as it was while the clock is as far off as that, within its bound
 * and the tolerance; so what agrees with us is left as it is. */
int64_t pp_clock_shift(int64_t before_ns, const pp_clock_offset *offset);

/** A batch's stamps, as the other clock made them. */
typedef struct pp_clock_stamps {
    int64_t start_ns, end_ns; /**< what it covers */
    int64_t first_ns;         /**< begin of its first step; 0: it has none */
    int64_t monotonic_ns;     /**< start_ns on its CLOCK_MONOTONIC; 0: not told */
} pp_clock_stamps;

/** What they are held against. */
typedef struct pp_clock_frame {
    pp_clock_now now;
    int64_t session_ns, pod_ns; /**< creation, as the API server stamped it */
    int64_t shift_ns;           /**< taken out of the stamps before them */
} pp_clock_frame;

typedef enum pp_clock_verdict {
    PP_CLOCK_TAKEN,
    PP_CLOCK_FAR,      /**< farther off than PP_CLOCK_OFFSET_MAX */
    PP_CLOCK_UNSTEADY, /**< pp_clock_is_unsteady */
    PP_CLOCK_BEFORE,   /**< the stamps lie before the session or the pod */
    PP_CLOCK_AFTER,    /**< they lie after now */
    PP_CLOCK_VERDICTS,
} pp_clock_verdict;

/** "far", "unsteady", "before", "after"; "taken". */
const char *pp_clock_verdict_name(pp_clock_verdict verdict);

typedef struct pp_clock_ruling {
    pp_clock_verdict verdict;
    pp_clock_offset offset; /**< of these stamps */
    int64_t shift_ns;       /**< to be subtracted from every stamp */
    /** When the first step began, on our clock: never before session and pod, never after now;
     * where nothing is known of the clock, by when the batch came. 0: it has none. */
    int64_t began_ns;
    int64_t off_ns; /**< of BEFORE and AFTER: how far outside they lie, before the slack */
} pp_clock_ruling;

pp_clock_ruling pp_clock_judge(const pp_clock *clock, const pp_clock_stamps *stamps,
                               const pp_clock_frame *frame);

/** Why stamps of a node (NULL: not known) are refused, and what to do about it. */
void pp_clock_explain(const pp_clock_ruling *ruling, const char *node, char *out, size_t size);

/** Cuts a range to what a session of that creation can hold at `now_ns`, both since 1970; false:
 * nothing is left. Rows of earlier releases may hold any time. */
bool pp_clock_clip(int64_t session_ns, int64_t now_ns, int64_t *from_ns, int64_t *to_ns);

/** "3m2s ahead", "1h behind", "26 years behind"; out holds 64 bytes. */
void pp_clock_describe(int64_t ahead_ns, char *out, size_t size);

#endif
