/*
 * What an image sets, and no field of a Pod shows. The hook's PYTHONPATH hides the image's own, so
 * a container in the trainer's image, with the trainer's user, writes that down before the
 * training, and the hook puts it back.
 *
 * Of the trainer's it has what decides whether it starts and what PYTHONPATH is: the image, envFrom
 * and the securityContext. Its env is left out, since no variable there is PYTHONPATH, and its
 * mounts, since it needs none.
 */
#include "controller/injection/inject_environment.h"
#include "common/cleanup.h"
#include "controller/injection/inject_patch.h"
#include "controller/injection/inject_refuse.h"
#include "controller/injection/inject_resources.h"

#include <stdio.h>
#include <string.h>

static const json_t *trainer_of(const pp_inject_turn *turn, size_t i)
{
    return json_array_get(json_object_get(turn->spec, "containers"), turn->trainers[i]);
}

/* What the pod itself says of PYTHONPATH is all that counts. */
static bool is_known(const pp_inject_turn *turn, const json_t *trainer)
{
    size_t at;
    return pp_inject_env(trainer, "PYTHONPATH", &at) ||
           pp_json_get_string(turn->pod, "metadata", "annotations", PP_ANNOTATION_PYTHONPATH, NULL);
}

static bool same(const json_t *a, const json_t *b, const char *key)
{
    json_t *one = json_object_get(a, key), *other = json_object_get(b, key);
    return one == other || json_equal(one, other);
}

/* The number of the record for a trainer, that of the first one like it; -1: none is needed. */
static int record_of(const pp_inject_turn *turn, size_t i)
{
    const json_t *trainer = trainer_of(turn, i);
    if (is_known(turn, trainer) || !json_is_string(json_object_get(trainer, "image")))
        return -1;
    for (size_t j = 0; j < i; j++) {
        const json_t *other = trainer_of(turn, j);
        if (!is_known(turn, other) && same(trainer, other, "image") &&
            same(trainer, other, "envFrom"))
            return (int)j;
    }
    return (int)i;
}

bool pp_inject_record(const pp_inject_turn *turn, size_t i, char *out, size_t size)
{
    const int number = record_of(turn, i);
    if (number >= 0)
        (void)snprintf(out, size, PP_INJECT_RING_PATH "/environment-%d", number);
    return number >= 0;
}

/* Without a GPU: images for training ask the container runtime for all that there are. Its folder
 * is one that every image has, and every user may enter. */
static json_t *recorder(const pp_inject_turn *turn, size_t i)
{
    static const char *const kept[] = {"envFrom", "securityContext", "imagePullPolicy"};
    const json_t *trainer = trainer_of(turn, i);
    char name[64], record[64];
    (void)snprintf(name, sizeof name, PP_INJECT_ENVIRONMENT "-%zu", i);
    (void)pp_inject_record(turn, i, record, sizeof record);
    json_t *value = json_pack(
        "{s:s, s:O, s:[s, s], s:s, s:[o], s:o, s:o}", "name", name, "image",
        json_object_get(trainer, "image"), "command",
        PP_INJECT_HOOK_PATH "/precisionprobe-environment", record, "workingDir", "/", "env",
        pp_inject_variable("NVIDIA_VISIBLE_DEVICES", "void"), "resources",
        pp_inject_early_resources(turn, turn->trainers[i]), "volumeMounts",
        pp_inject_without_token(
            turn->spec,
            json_pack("[o, o]", pp_inject_mount(PP_INJECT_HOOK, PP_INJECT_HOOK_PATH, true),
                      pp_inject_mount(PP_INJECT_RING, PP_INJECT_RING_PATH, false))));
    for (size_t k = 0; value && k < sizeof kept / sizeof kept[0]; k++) {
        const json_t *own = json_object_get(trainer, kept[k]);
        if (own && json_object_set_new(value, kept[k], json_deep_copy(own)) < 0) {
            json_decref(value);
            return NULL;
        }
    }
    return value;
}

int pp_inject_add_recorders(const pp_inject_turn *turn, json_t *patch)
{
    for (size_t i = 0; i < turn->n_trainers; i++) {
        if (record_of(turn, i) == (int)i &&
            pp_inject_add(patch, "/spec/initContainers/-", recorder(turn, i)) < 0)
            return -1;
    }
    return 0;
}
