/*
 * Which optimizers' steps end a step of the training. Policy alone: numbers in, numbers out.
 *
 * What a training does tells it, not how many optimizers it has. Between two of an optimizer's
 * steps that belong to different steps of the training a forward has run, and it has made nodes of
 * the autograd graph: the number that the thread's next node will get has grown. So optimizers that
 * step with no forward between them are a burst, of one step of the training: two optimizers, one
 * called for each group of parameters, one for each parameter within backward. A step holds several
 * bursts where other optimizers step in each (a GAN's): it is over as soon as one comes again.
 *
 * Which event is the last of its step is only known once the next forward has run, so it is taken
 * to be the one that was the last before. Where that was wrong the step is counted late.
 */
#ifndef PP_SIDECAR_HOOK_MARKS_STEPS_H
#define PP_SIDECAR_HOOK_MARKS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

enum { PP_STEPS_OPTIMIZERS = 64 }; /* told apart within a step */

/** An optimizer's step has ended. */
typedef struct pp_steps_event {
    int64_t optimizer; /**< a number of its own */
    int64_t sequence;  /**< of the next node that this thread makes; -1: not known (torch < 2.1) */
    int64_t backward;  /**< id of the backward within which it stepped; -1: none, or not known */
} pp_steps_event;

typedef struct pp_steps_set {
    int64_t optimizers[PP_STEPS_OPTIMIZERS];
    unsigned count;
} pp_steps_set;

/** Zeroed: nothing is known. */
typedef struct pp_steps {
    int64_t last;        /**< the optimizer that ended the step before ... */
    unsigned last_place; /**< ... and its place in its burst, from 1; 0: none has */
    unsigned place;      /**< of the latest event in its burst; 0: there was none */
    bool closed;         /**< the burst has ended a step ... */
    bool late;           /**< ... and went on */
    bool late_before;    /**< as the one before it did */
    bool known;          /**< a step has ended, and another burst begun */
    pp_steps_set burst;  /**< its optimizers */
    pp_steps_set before; /**< those of the step's bursts before it */
    pp_steps_event latest;
    int64_t sequence;   /**< of the latest event outside of backward; -1: not known */
    unsigned unchanged; /**< events of optimizers that came again, and no node between them */
} pp_steps;

typedef struct pp_steps_ends {
    bool before; /**< a step had ended with an event before this one, which was not seen then */
    bool here;   /**< a step ends with this event */
    bool late;   /**< the step that ended with the event before goes on to this one */
} pp_steps_ends;

/** Takes an event; what it says of the training's steps. */
pp_steps_ends pp_steps_take(pp_steps *steps, const pp_steps_event *event);

#endif
