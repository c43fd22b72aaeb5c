#include "cli/kubectl/remedies.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *reason, *remedy;
} remedies[] = {
    /* the operator and what it stands on */
    {"RightsMissing", "bring the chart's ClusterRoleBindings back: helm upgrade"},
    {"ServiceUnavailable",
     "bring the operator's Service back: helm upgrade; pods created meanwhile have no hook"},
    {"WebhookMissing",
     "bring the MutatingWebhookConfiguration back: helm upgrade; create the pods anew"},
    {"AnotherInstallation", "uninstall one of the two"},
    {"StoreUnavailable",
     "see that Postgres runs and that the connection string in postgres.existingSecret is right"},
    {"PrometheusUnavailable",
     "see that Prometheus runs, and that prometheus.url, its token and its CA are right"},
    {"PrometheusNotConfigured", "set prometheus.url, or do without metrics"},
    {"AttributionFailing", "look at the operator's log"},
    {"AttributionFailed", "look at the operator's log; what was measured is stored"},
    {"FinishingTimedOut", "look at the operator's log; what was measured is stored"},
    /* specs */
    {"InvalidSpec", "correct the field and create the session anew; upgrade the CRD"},
    {"NotAllowed", "use another method, or have config.replay.allow set"},
    /* values */
    {"InDoubt",
     "let nobody else use the GPU; result_quality says what speaks against which metric"},
    /* pods without the hook */
    {"NoMatchingPods",
     "start the training, or correct the labels in its pods' template or the session's selector"},
    {"NoPodInjected", "see the reasons of its pods"},
    {"CreatedBefore",
     "create the pod anew: kubectl rollout restart, or delete the Job and apply it"},
    {"WebhookMissed",
     "see that the operator is ready and that the API server reaches it (NetworkPolicy, firewall, "
     "webhook selectors); then create the pod anew"},
    {"NamespaceExcluded", "run the training in another namespace"},
    {"OptedOut", "take precisionprobe.io/inject: \"false\" out of the pod's template"},
    {"OtherContainers",
     "name those of its annotation precisionprobe.io/containers, or delete the pod"},
    {"ContainerNotFound", "correct spec.containers of the session"},
    {"PythonPathFromSource", "give PYTHONPATH as a value"},
    {"PythonIsolated", "start Python without -I, -E and -S"},
    {"MountPathClash", "mount it elsewhere"},
    {"NameClash", "rename or remove the volume or container that has one of our names"},
    {"PodLevelResources", "set resources per container"},
    {"QuotaExceeded", "raise the ResourceQuota: it has no room for the agent"},
    {"LimitRangeExceeded", "raise the LimitRange: the pod with the agent is above it"},
    {"OthersDidNotStart", "mend what kept the others, then create the pod's controller anew"},
    {"AnnotationsTooLarge", "shorten the pod's annotations"},
    {"StaticPod", "run the training as a Job"},
    /* pods that do not start or are not heard from */
    {"ImageNotPulled",
     "let the nodes, and the pull secrets of the pod's namespace, pull the chart's image"},
    {"TrainerImageNotPulled", "correct the training's image or its pull secrets"},
    {"AddedContainerFails", "look at its log: kubectl logs POD -c precisionprobe-hook (or -agent)"},
    {"NoRoomForAgent", "make room on a node, or leave config.injection.cpu and memory empty"},
    {"CreationRefused", "raise the quota, or mend the policy or webhook that the message names"},
    {"PodsPending", "see the pod's Events: GPUs that others have, an image, a volume"},
    {"AgentNotConnected",
     "look at its log: kubectl logs POD -c precisionprobe-agent; a NetworkPolicy, DNS, or a clock"},
    {"ProcessRefused", "see docs/frameworks.md for what is profiled"},
    {"HookNotLoaded",
     "see that it starts Python in an image with glibc, without -I, -E and -S, and prepends to "
     "PYTHONPATH; a download or a wait before that clears by itself"},
    {"NoAgent", "kubectl describe pod has how the container precisionprobe-agent ended"},
    {"AgentsLost", "look at its log: kubectl logs POD -c precisionprobe-agent"},
    {"PodsEnded", "look at the pods' own logs: did they train?"},
    {"NoStepSampled", "look at the agent's log; steps.skip may be above what was trained"},
    {"NoLayerTimed", "see that spec.layers does not leave all out; look at the agent's log"},
    {"Incomplete", "let trainings run for the whole duration, or ask for a shorter one"},
    /* metrics */
    {"NoSamples",
     "see that Prometheus scrapes the exporter, that prometheus.preset is the exporter's and that "
     "the label with the UUID is kept"},
    {"NoMetrics",
     "see that Prometheus scrapes the exporter, that prometheus.preset is the exporter's and that "
     "the label with the UUID is kept"},
    {"MetricsMissing", "add the fields to the exporter's counters file (docs/prometheus.md)"},
    {"NoGPU", "request a GPU in the pod's template, and see that the training uses it"},
    {"MIGInstance", "use whole GPUs: MIG instances have no metrics by UUID"},
    {"NotSampled", "see docs/sampling.md for the cause that the message names"},
    {"NotReplayed", "see docs/replay.md for the cause that the message names"},
    /* clocks */
    {"OffsetTakenOut", "set the clock when convenient: what it is off by is taken out"},
    {"BatchesRefused", "set the clock of the node that the message names"},
    {"AgentsShutOut", "set the clock of the node that the message names"},
    {"ClockSkewed", "set the clock of the node that the message names"},
};

const char *pp_remedy(const char *reason)
{
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
        if (strcmp(remedies[i].reason, reason) == 0)
            return remedies[i].remedy;
    return "see docs/troubleshooting.md";
}

int pp_remedy_is_needed(const char *reason)
{
    static const char *const none[] = {"",
                                       "OtherSession",
                                       "NotLinux",
                                       "Released",
                                       "PodsInjected",
                                       "Sampling",
                                       "WaitingForPods",
                                       "WaitingForAgents",
                                       "WaitingForSteps",
                                       "Diagnosing",
                                       "Suspended",
                                       "DurationReached",
                                       "StepsReached",
                                       "PodsFinished",
                                       "DeadlineReached",
                                       "Ended",
                                       "NotAsked",
                                       "WaitingForSamples",
                                       "SamplesFound",
                                       "Stored",
                                       "NothingToStore",
                                       "NotAccepted"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(none[i], reason) == 0)
            return 0;
    return 1;
}

void pp_remedy_reader(const char *namespace, const char *account, const char *between, char *out,
                      size_t size)
{
    (void)snprintf(out, size,
                   "kubectl -n %s create serviceaccount %s%s"
                   "kubectl -n %s create rolebinding %s --clusterrole=view --serviceaccount=%s:%s",
                   namespace, account, between, namespace, account, namespace, account);
}
