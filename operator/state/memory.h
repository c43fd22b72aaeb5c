/*
 * What glibc keeps of memory that was freed. Batches come in bursts: each is a tree of small pieces
 * for a moment, and between the holes that they leave there are things that stay, so that the heap
 * would remain as large as the largest burst made it.
 */
#ifndef PP_OPERATOR_STATE_MEMORY_H
#define PP_OPERATOR_STATE_MEMORY_H

/** Before anything large is allocated: large blocks go back to the system when they are freed. */
void pp_memory_configure(void);

/** Gives back what is free, where that is a lot. To be called every few seconds; takes a few
 * milliseconds where there is something to do. */
void pp_memory_trim(void);

#endif
