package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// truthServer tells tests what nobody else may know. README.md describes its answers.
type truthServer struct {
	collector *collector
}

// span is a stretch of time in ns, [from, to).
type span struct{ from, to int64 }

// parseSpans reads pairs of from and to, in seconds since 1970; none means everything.
func parseSpans(query url.Values, now int64) ([]span, error) {
	from, to := query["from"], query["to"]
	if len(from) != len(to) {
		return nil, errors.New("from and to come in pairs")
	}
	if len(from) == 0 {
		return nil, nil
	}
	var spans []span
	for i := range from {
		a, errA := strconv.ParseFloat(from[i], 64)
		b, errB := strconv.ParseFloat(to[i], 64)
		s := span{int64(math.Round(a * 1e9)), min(int64(math.Round(b*1e9)), now)}
		if errA != nil || errB != nil || s.to <= s.from {
			return nil, fmt.Errorf("from=%s to=%s is no stretch of the past", from[i], to[i])
		}
		spans = append(spans, s)
	}
	return spans, nil
}

type truthRow struct {
	Layer    string             `json:"layer"`
	Phase    string             `json:"phase"`
	Seconds  float64            `json:"seconds"`
	Share    float64            `json:"share"` // of the time in steps
	Truth    map[string]float64 `json:"truth"`
	Realised map[string]float64 `json:"realised,omitempty"` // absent where it did not run
}

type truthWorkload struct {
	Namespace   string             `json:"namespace"`
	Pod         string             `json:"pod"`
	Container   string             `json:"container"`
	Host        string             `json:"host"`
	Rank        int                `json:"rank"`
	Connected   bool               `json:"connected"`
	Truncated   bool               `json:"truncated"` // the oldest history had to go
	First       int64              `json:"first_ns"`
	Last        int64              `json:"last_ns"`
	Seconds     float64            `json:"seconds"`      // in the spans
	StepSeconds float64            `json:"step_seconds"` // of these, inside steps
	Steps       map[string]float64 `json:"steps"`
	Mean        map[string]float64 `json:"mean,omitempty"`
	Rows        []truthRow         `json:"rows"`
}

type truthGPU struct {
	Index     int             `json:"gpu"`
	UUID      string          `json:"uuid"`
	Workloads []truthWorkload `json:"workloads"`
}

type truthDump struct {
	Seed             string     `json:"seed"`
	Low              float64    `json:"low"`
	High             float64    `json:"high"`
	Variation        float64    `json:"variation"`
	Noise            float64    `json:"noise"`
	Origin           int64      `json:"c0_ns"`
	Window           int64      `json:"window_ns"`
	Delay            int64      `json:"delay_ns"`
	Jitter           int64      `json:"delay_jitter_ns"`
	Published        int64      `json:"published_ns"`
	Windows          int64      `json:"windows"`
	Events           int64      `json:"events"`
	LateEvents       int64      `json:"late_events"`
	MaxLateness      int64      `json:"max_lateness_ns"`
	DisorderedEvents int64      `json:"disordered_events"`
	Metrics          []string   `json:"metrics"`
	GPUs             []truthGPU `json:"gpus"`
}

func (t *truthServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	spans, err := parseSpans(r.URL.Query(), now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeJSON(w, t.dump(spans, now))
}

func (t *truthServer) dump(spans []span, now int64) truthDump {
	c := t.collector
	h := c.host
	h.Lock()
	defer h.Unlock()
	d := truthDump{
		Seed: h.oracle.seed, Low: h.oracle.low, High: h.oracle.high, Variation: h.oracle.variation, Noise: c.noise,
		Origin: c.origin, Window: int64(c.window), Delay: int64(c.delay), Jitter: int64(c.jitter),
		Published: h.published, Windows: c.windows.Load(), Events: h.events, LateEvents: h.lateEvents,
		MaxLateness: h.maxLateness, DisorderedEvents: h.disorderedEvents,
		Metrics: append(shareMetrics[:], memoryMetric),
	}
	for _, g := range h.gpus {
		one := truthGPU{Index: g.index, UUID: g.uuid, Workloads: []truthWorkload{}}
		for _, each := range g.workloads {
			one.Workloads = append(one.Workloads, each.dump(h.oracle, spans, now))
		}
		d.GPUs = append(d.GPUs, one)
	}
	return d
}

// life is the time that a workload is known for.
func (w *workload) life(now int64) span {
	if w.open != keyNone {
		return span{w.first, now}
	}
	return span{w.first, w.last}
}

func (w *workload) dump(o *oracle, spans []span, now int64) truthWorkload {
	if spans == nil {
		spans = []span{w.life(now)}
	}
	d := truthWorkload{
		Namespace: w.namespace, Pod: w.pod, Container: w.container, Host: w.host, Rank: w.rank,
		Connected: w.connected, Truncated: w.dropped, First: w.first, Last: w.last, Steps: w.stepTimes(spans),
	}
	seconds := make([]float64, len(w.truths))
	used := make([]values, len(w.truths))
	var total values
	var memory float64
	for _, s := range spans {
		w.each(s.from, s.to, func(key int, step, start, end int64) {
			length := float64(end-start) / 1e9
			seconds[key] += length
			used[key].addScaled(o.inStep(w.truths[key], w.stream, uint64(step), key), length)
		})
		length := float64(s.to-s.from) / 1e9
		d.Seconds += length
		memory += w.memoryMean(o, s) * length
	}
	for key := range seconds {
		d.StepSeconds += seconds[key]
		total.addScaled(used[key], 1)
	}
	for key := range seconds {
		d.Rows = append(d.Rows, w.row(key, seconds[key], d.StepSeconds, used[key]))
	}
	if d.Seconds > 0 {
		d.Mean = named(total.scaled(1 / d.Seconds))
		d.Mean[memoryMetric] = memory / d.Seconds
	}
	return d
}

// memoryMean is the mean memory level over a span, from a hundred points.
func (w *workload) memoryMean(o *oracle, s span) float64 {
	const points = 100
	sum := 0.0
	for i := range points {
		at := s.from + (s.to-s.from)/points*int64(i)
		if at >= w.first && (w.connected || at < w.last) {
			sum += o.memory(w.who, at)
		}
	}
	return sum / points
}

func (w *workload) row(key int, seconds, all float64, used values) truthRow {
	layer, phase := w.keyName(key)
	r := truthRow{Layer: layer, Phase: phase, Seconds: seconds, Truth: named(w.truths[key])}
	if seconds > 0 {
		r.Share = seconds / all
		r.Realised = named(used.scaled(1 / seconds))
	}
	return r
}

// stepTimes describes the steps that lie wholly in the spans.
func (w *workload) stepTimes(spans []span) map[string]float64 {
	var lengths []float64
	for _, s := range w.steps {
		if s.end != 0 && slices.ContainsFunc(spans, func(x span) bool { return s.start >= x.from && s.end <= x.to }) {
			lengths = append(lengths, float64(s.end-s.start)/1e9)
		}
	}
	times := map[string]float64{"count": float64(len(lengths))}
	if len(lengths) == 0 {
		return times
	}
	slices.Sort(lengths)
	sum := 0.0
	for _, each := range lengths {
		sum += each
	}
	times["mean"] = sum / float64(len(lengths))
	times["minimum"], times["maximum"] = lengths[0], lengths[len(lengths)-1]
	times["median"] = lengths[len(lengths)/2]
	return times
}

// named puts share metrics under their names, in the exporter's units.
func named(v values) map[string]float64 {
	m := make(map[string]float64, shares)
	for i, metric := range shareMetrics {
		m[metric] = v[i] * scaleOf(metric)
	}
	return m
}

// activity answers with the raw history: every segment that touches the spans, cut to them.
func (t *truthServer) activity(w http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	query := r.URL.Query()
	spans, err := parseSpans(query, now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	type entry struct {
		UUID      string   `json:"uuid"`
		Namespace string   `json:"namespace"`
		Pod       string   `json:"pod"`
		Segments  [][5]any `json:"segments"` // start_ns, end_ns, layer, phase, step
	}
	all := []entry{}
	h := t.collector.host
	h.Lock()
	for _, g := range h.gpus {
		for _, each := range g.workloads {
			if pod := query.Get("pod"); pod != "" && pod != each.pod {
				continue
			}
			e := entry{UUID: g.uuid, Namespace: each.namespace, Pod: each.pod, Segments: [][5]any{}}
			mine := spans
			if mine == nil {
				mine = []span{each.life(now)}
			}
			for _, s := range mine {
				each.each(s.from, s.to, func(key int, step, start, end int64) {
					layer, phase := each.keyName(key)
					e.Segments = append(e.Segments, [5]any{start, end, layer, phase, step})
				})
			}
			all = append(all, e)
		}
	}
	h.Unlock()
	writeJSON(w, all)
}

// metrics tells how the virtual GPU itself fares; kept off the exporter's port, where a real one has no such thing.
func (t *truthServer) metrics(w http.ResponseWriter, _ *http.Request) {
	h := t.collector.host
	h.Lock()
	defer h.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for _, each := range []struct {
		name, kind, help string
		value            float64
	}{
		{"vgpu_events_total", "counter", "Events taken from trainings.", float64(h.events)},
		{"vgpu_late_events_total", "counter", "Events that came after their window was published.",
			float64(h.lateEvents)},
		{"vgpu_lateness_seconds_max", "gauge", "How late the latest of them was.", float64(h.maxLateness) / 1e9},
		{"vgpu_disordered_events_total", "counter", "Events stamped before the one that preceded them.",
			float64(h.disorderedEvents)},
		{"vgpu_windows_total", "counter", "Collection windows published.", float64(t.collector.windows.Load())},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", each.name, each.help, each.name, each.kind, each.name,
			each.value)
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value)
}
