"""The plain overlap-weighted mean, what one does who knows no better: each sample stands for the window that ends at its
scrape, and counts for every layer by the time that the layer took in it. No lag, no regression, from the same data."""
from bisect import bisect_left

ACTIVITY = """SELECT t.pod_name, p.gpus[1] AS gpu, a.start_ns, a.end_ns, a.layer, a.phase, a.start, a.duration
FROM activity a JOIN target t USING (session_uid, pod_uid) JOIN process p USING (session_uid, pod_uid, instance, process)
WHERE a.session_uid = '{uid}' AND a.dwell IS NULL ORDER BY a.start_ns"""
LAYERS = """SELECT DISTINCT t.pod_name, l.layer, l.name FROM layer l JOIN target t USING (session_uid, pod_uid)
WHERE l.session_uid = '{uid}'"""
SAMPLES = """SELECT gpu_uuid, metric, at_ns, value FROM metric_sample WHERE gpu_uuid IN
(SELECT unnest(gpus) FROM process WHERE session_uid = '{uid}') ORDER BY at_ns"""
PHASES = ("forward", "backward")


def spread(intervals, samples, window):
    """{item: mean}; intervals: sorted (start, end, item); samples: (stamp, value) of one GPU and metric."""
    starts = [start for start, _, _ in intervals]
    longest = max((end - start for start, end, _ in intervals), default=0)
    sums = {}
    for stamp, value in samples:
        begin = stamp - window
        for start, end, item in intervals[bisect_left(starts, begin - longest):bisect_left(starts, stamp)]:
            overlap = min(end, stamp) - max(start, begin)
            if overlap > 0:
                sums.setdefault(item, [0.0, 0.0])
                sums[item][0] += overlap * value
                sums[item][1] += overlap
    return {item: total / weight for item, (total, weight) in sums.items()}


def means(database, uid, window):
    """{(pod, layer, phase, metric): mean} of a session, windows of `window` ns."""
    names = {(row["pod_name"], row["layer"]): row["name"] for row in database.rows(LAYERS.format(uid=uid))}
    intervals, gpus = {}, {}
    for row in database.rows(ACTIVITY.format(uid=uid)):
        gpus[row["pod_name"]] = row["gpu"]
        list_of = intervals.setdefault(row["pod_name"], [])
        for layer, phase, start, duration in zip(row["layer"], row["phase"], row["start"], row["duration"]):
            if layer and phase < len(PHASES):
                list_of.append((start, start + duration, (names[row["pod_name"], layer], PHASES[phase])))
    series = {}
    for row in database.rows(SAMPLES.format(uid=uid)):
        series.setdefault((row["gpu_uuid"], row["metric"]), []).append((row["at_ns"], row["value"]))
    found = {}
    for pod, list_of in intervals.items():
        list_of.sort()
        for (gpu, metric), samples in series.items():
            if gpu == gpus[pod]:
                for (layer, phase), mean in spread(list_of, samples, window).items():
                    found[pod, layer, phase, metric] = mean
    return found
