/*
 * ConsumptionPatterns past their retention: an object whose workload has no result in the store any
 * more is deleted. Only what this operator has made and finished, as it was when it was looked at.
 */
#ifndef PP_OPERATOR_PATTERNS_OLD_PATTERNS_H
#define PP_OPERATOR_PATTERNS_OLD_PATTERNS_H

typedef struct pp_operator pp_operator;

/** Something may be past its retention: another process has led, or results were deleted. */
void pp_old_patterns_due(pp_operator *op);

/** Looks at all of them, where that is due, results have a retention and this process leads. What
 * fails is due again. */
void pp_old_patterns_sweep(pp_operator *op);

#endif
