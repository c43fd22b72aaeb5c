package main

import (
	"fmt"
	"sort"
	"sync"
)

// Limits on what is kept. A training of 45 layer phases and a step of two seconds makes about 45 segments a second, so
// 400,000 segments are some two and a half hours; past that the oldest half goes.
const (
	maxSegments  = 400_000 // per workload, 32 bytes each
	maxSteps     = 100_000 // per workload
	maxWorkloads = 32      // in all; the one that ended first goes
)

// Keys of what can run: 0 is `other`, 1 the optimizer, 2+2n the forward and 3+2n the backward of layer n.
const (
	keyNone      = -1
	keyOther     = 0
	keyOptimizer = 1
)

func keyForward(layer int) int  { return 2 + 2*layer }
func keyBackward(layer int) int { return 3 + 2*layer }

// segment is a stretch of time in which one key ran. Times are ns since 1970.
type segment struct {
	start, end int64
	step       int64
	key        int32
}

// step is one training step; end is 0 while it runs.
type step struct {
	start, end           int64
	number, epoch, batch int64
}

// workload is one training process on one GPU, through all its connections.
type workload struct {
	namespace, pod, container, host string
	rank                            int
	layers                          []string
	who                             string // its name to the oracle
	stream                          uint64 // its random stream for the variation by step
	truths                          []values

	segments  []segment
	steps     []step
	dropped   bool  // whether the oldest history had to go
	first     int64 // time of its first event; 0 before that
	last      int64 // time of its last event
	connected bool

	// What runs now.
	open    int // key or keyNone
	since   int64
	current int64 // step number
}

func (w *workload) keyName(key int) (layer, phase string) {
	switch {
	case key == keyOther:
		return "other", "other"
	case key == keyOptimizer:
		return "optimizer", "optimizer"
	case key%2 == 0:
		return w.layers[(key-2)/2], "forward"
	default:
		return w.layers[(key-3)/2], "backward"
	}
}

// switchTo ends what runs at `at` and begins `key`.
func (w *workload) switchTo(key int, at int64) {
	if w.open != keyNone && at > w.since {
		if len(w.segments) >= maxSegments {
			w.segments = append(w.segments[:0:0], w.segments[maxSegments/2:]...)
			w.dropped = true
		}
		w.segments = append(w.segments, segment{w.since, at, w.current, int32(w.open)})
	}
	w.open, w.since, w.last = key, at, at
}

// endStep closes the step that runs, if any.
func (w *workload) endStep(at int64) {
	if n := len(w.steps); n > 0 && w.steps[n-1].end == 0 {
		w.steps[n-1].end = at
	}
}

// each calls visit for every segment that touches [from, to), cut to it; what runs now counts up to `to`.
func (w *workload) each(from, to int64, visit func(key int, step, start, end int64)) {
	begin := sort.Search(len(w.segments), func(i int) bool { return w.segments[i].end > from })
	for _, s := range w.segments[begin:] {
		if s.start >= to {
			return
		}
		visit(int(s.key), s.step, max(s.start, from), min(s.end, to))
	}
	if w.open != keyNone && w.since < to {
		visit(w.open, w.current, max(w.since, from), to)
	}
}

// integral sums value times seconds of every share metric over [from, to). Idle time counts as 0.
func (w *workload) integral(o *oracle, from, to int64) values {
	var sum values
	w.each(from, to, func(key int, step, start, end int64) {
		sum.addScaled(o.inStep(w.truths[key], w.stream, uint64(step), key), float64(end-start)/1e9)
	})
	return sum
}

// gpu is one virtual GPU with the workloads that ran on it, the newest last.
type gpu struct {
	index     int
	uuid      string
	pciBusID  string
	workloads []*workload
}

// host is everything that the virtual GPU knows. Its lock covers all GPUs and workloads; rates are small.
type host struct {
	sync.Mutex
	oracle    *oracle
	gpus      []*gpu
	published int64 // end of the last collection window that was published, ns

	events, lateEvents, disorderedEvents int64
	maxLateness                          int64 // ns
}

func newHost(o *oracle, uuids []string) *host {
	h := &host{oracle: o}
	for i, uuid := range uuids {
		h.gpus = append(h.gpus, &gpu{index: i, uuid: uuid, pciBusID: fmt.Sprintf("00000000:%02X:00.0", 0x17+4*i)})
	}
	return h
}

func (h *host) gpuByUUID(uuid string) *gpu {
	for _, g := range h.gpus {
		if g.uuid == uuid {
			return g
		}
	}
	return nil
}

// owner is the pod that holds a GPU, as the kubelet tells it.
type owner struct{ namespace, pod, container string }

// join finds the workload that a connection speaks for, or makes it; a GPU has one at a time, so any other ends.
func (h *host) join(g *gpu, m hello, at int64, own owner) *workload {
	if m.Pod == "" {
		m.Namespace, m.Pod = own.namespace, own.pod
	}
	if m.Pod == "" {
		m.Pod = m.Host
	}
	for _, w := range g.workloads {
		if w.connected {
			h.leave(w, at)
		}
	}
	if n := len(g.workloads); n > 0 && g.workloads[n-1].is(m) {
		g.workloads[n-1].connected = true
		return g.workloads[n-1]
	}
	w := &workload{
		namespace: m.Namespace, pod: m.Pod, container: own.container, host: m.Host, rank: m.Rank, layers: m.Layers,
		who: fmt.Sprintf("%s/%s/%s", g.uuid, m.Namespace, m.Pod), connected: true, open: keyNone,
	}
	w.stream, _ = h.oracle.digest("steps", w.who, fmt.Sprint(len(g.workloads)))
	for key := range 2 + 2*len(m.Layers) {
		layer, phase := w.keyName(key)
		w.truths = append(w.truths, h.oracle.truth(w.who, layer, phase))
	}
	g.workloads = append(g.workloads, w)
	h.forget()
	return w
}

func (w *workload) is(m hello) bool {
	if w.namespace != m.Namespace || w.pod != m.Pod || len(w.layers) != len(m.Layers) {
		return false
	}
	for i := range w.layers {
		if w.layers[i] != m.Layers[i] {
			return false
		}
	}
	return true
}

// leave ends a workload: nothing runs from now on.
func (h *host) leave(w *workload, at int64) {
	at = max(at, w.since, w.last)
	w.endStep(at)
	w.switchTo(keyNone, at)
	w.connected = false
}

// forget keeps the number of workloads within bounds.
func (h *host) forget() {
	for {
		count, oldest := 0, (*gpu)(nil)
		at := 0
		for _, g := range h.gpus {
			count += len(g.workloads)
			for i, w := range g.workloads {
				if !w.connected && (oldest == nil || w.last < oldest.workloads[at].last) {
					oldest, at = g, i
				}
			}
		}
		if count <= maxWorkloads || oldest == nil {
			return
		}
		oldest.workloads = append(oldest.workloads[:at:at], oldest.workloads[at+1:]...)
	}
}

// mean is a GPU's mean over [from, to): shares by time integral.
func (h *host) mean(g *gpu, from, to int64) values {
	var sum values
	for _, w := range g.workloads {
		if w.last >= from || w.open != keyNone {
			sum.addScaled(w.integral(h.oracle, from, to), 1)
		}
	}
	return sum.scaled(1e9 / float64(to-from))
}

// memory is what is held on a GPU at a time, in MiB; 0 without a training.
func (h *host) memory(g *gpu, at int64) float64 {
	for _, w := range g.workloads {
		if w.first != 0 && w.first <= at && (w.connected || at < w.last) {
			return h.oracle.memory(w.who, at)
		}
	}
	return 0
}
