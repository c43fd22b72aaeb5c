package main

import (
	"context"
	"math"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"
)

// collector plays the part of the exporter that asks the driver: it averages each metric over nominal windows
// [c0+(k-1)W, c0+kW) and publishes the averages a while after the window's end.
type collector struct {
	host   *host
	window time.Duration // W
	origin int64         // c0, ns: the phase of the windows is random
	delay  time.Duration // from a window's end to its publication
	jitter time.Duration // standard deviation of the delay
	noise  float64       // standard deviation of the noise on shares, 0..1
	// GPU_UTIL is the driver's own: of the latest of its sample periods that is over, whose phase is random too
	utilPeriod time.Duration // 0: of the window, as all else
	utilOrigin int64
	utilStep   float64 // GPU_UTIL is rounded to a multiple of this many percent; 0: not at all
	gen        *mrand.Rand

	windows atomic.Int64
	latest  atomic.Pointer[reading]
}

// reading is what one window gave for all GPUs.
type reading struct {
	end    int64
	shares []values  // 0..1
	memory []float64 // MiB
}

// run publishes window after window until the context ends.
func (c *collector) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	first := (time.Now().UnixNano()-c.origin)/int64(c.window) + 1
	for k := first; ; k++ {
		end := c.origin + k*int64(c.window)
		wobble := max(-2, min(2, c.gen.NormFloat64())) * float64(c.jitter)
		due := end + int64(c.delay) + int64(wobble)
		timer.Reset(time.Until(time.Unix(0, due)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		c.latest.Store(c.collect(end))
		c.windows.Add(1)
	}
}

// collect averages the window that ended at `end`, from what is known of it now.
func (c *collector) collect(end int64) *reading {
	h := c.host
	h.Lock()
	defer h.Unlock()
	r := &reading{end: end}
	for _, g := range h.gpus {
		mean := h.mean(g, end-int64(c.window), end)
		if c.utilPeriod > 0 {
			over := c.utilOrigin + (end-c.utilOrigin)/int64(c.utilPeriod)*int64(c.utilPeriod)
			mean[0] = h.mean(g, over-int64(c.utilPeriod), over)[0]
		}
		r.shares = append(r.shares, c.blur(mean))
		r.memory = append(r.memory, h.memory(g, end))
	}
	h.published = end
	return r
}

// blur adds the noise of measurement. A GPU that did nothing reads 0, as a real one does.
func (c *collector) blur(mean values) values {
	if mean == (values{}) {
		return mean
	}
	for i := range mean {
		mean[i] = clamp01(mean[i] + c.noise*c.gen.NormFloat64())
	}
	if c.utilStep > 0 {
		mean[0] = clamp01(math.Round(100*mean[0]/c.utilStep) * c.utilStep / 100)
	}
	return mean
}
