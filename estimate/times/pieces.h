/* A pod's activity as steps and their pieces, for spread.h. */
#ifndef PP_ESTIMATE_TIMES_PIECES_H
#define PP_ESTIMATE_TIMES_PIECES_H

#include "estimate/activity/activity.h"
#include "estimate/times/spread.h"

/** What a piece is of. */
typedef struct pp_piece_name {
    const char *layer; /**< "" for a phase of the step as a whole */
    const char *type;  /**< of the layer; "" where there is none, or it is not known */
    pp_wire_phase phase;
} pp_piece_name;

/** The caller's number of an item; PP_SPREAD_REST where it has none of that name. Each name is
 * asked for once at least. Returns -1 and sets *err where memory is out. */
typedef int pp_piece_number(void *context, const pp_piece_name *name, uint32_t *ret, pp_error *err);

/**
 * The marked steps, pieces and counted runs of the processes that used `gpu`; "": of those that
 * named none. Time in which layers were replayed is not among them. *ret is settled, and the
 * caller frees it.
 */
int pp_pieces_collect(const pp_activity *activity, const char *gpu, pp_piece_number *number,
                      void *context, pp_spread **ret, pp_error *err);

#endif
