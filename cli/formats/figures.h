/* Single figures of a training's results. What is not known is NaN, or NULL. */
#ifndef PP_CLI_FORMATS_FIGURES_H
#define PP_CLI_FORMATS_FIGURES_H

#include "cli/formats/training.h"
#include "common/metric.h"

/** The number under a key; NaN where it is none. */
double pp_figure_number(const json_t *object, const char *key);

/** The text under a key; "" where it is none. Borrowed. */
const char *pp_figure_text(const json_t *object, const char *key);

/** GPUs that the training named, without its part that named none. */
size_t pp_figure_gpus(const json_t *results);

/** Of one of results.json's gpus: a metric's mean over all of its time, in the metric's unit. */
double pp_figure_of_gpu(const json_t *gpu, pp_metric metric);

/** The mean of that over the training's GPUs, where all have it. */
double pp_figure_of_gpus(const json_t *results, pp_metric metric);

/** How long a step takes, in ms: of steps in which nothing was marked, where any were counted. */
double pp_figure_step_ms(const json_t *results);

/** Share of a step in which no kernel runs. */
double pp_figure_idle_share(const json_t *results);

/** Share of a step that something bounds ("Data"), by results.json's pattern: 0 where others have
 * all of it. */
double pp_figure_bound_share(const json_t *results, const char *bound);

/** Class of the model that is trained; NULL too where there are several. Borrowed. */
const char *pp_figure_model(const json_t *results);

/** First dimension of the first tensor that the model gets, by its shape in results.json. */
double pp_figure_batch(const json_t *results);

/** To twelve digits, which is what results.json has: for what is made of its numbers. */
double pp_figure_rounded(double value);

#endif
