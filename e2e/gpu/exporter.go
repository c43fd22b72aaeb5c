package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
)

// describe holds the help lines of dcgm-exporter's counters file.
var describe = map[string]string{
	"DCGM_FI_DEV_GPU_UTIL":            "GPU utilization (in %).",
	"DCGM_FI_DEV_FB_USED":             "Framebuffer memory used (in MiB).",
	"DCGM_FI_PROF_DRAM_ACTIVE":        "Ratio of cycles the device memory interface is active sending or receiving data.",
	"DCGM_FI_PROF_PIPE_FP32_ACTIVE":   "Ratio of cycles the fp32 pipes are active.",
	"DCGM_FI_PROF_SM_ACTIVE":          "The ratio of cycles an SM has at least 1 warp assigned.",
	"DCGM_FI_PROF_SM_OCCUPANCY":       "The ratio of number of warps resident on an SM.",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "Ratio of cycles the tensor (HMMA) pipe is active.",
	"DCGM_FI_DEV_POWER_USAGE":         "Power draw (in W).",
}

// exporter answers scrapes in dcgm-exporter's format.
type exporter struct {
	collector *collector
	owner     func(uuid string) owner
	model     string
	hostname  string
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if r := e.collector.latest.Load(); r != nil {
		w.Write(e.format(r))
	}
}

// format writes a reading as the exposition text. As dcgm-exporter does, it prints profiling metrics with six
// decimals, memory without any, and names container, namespace and pod only of a GPU that a pod holds.
func (e *exporter) format(r *reading) []byte {
	labels := make([]string, len(e.collector.host.gpus))
	for i, g := range e.collector.host.gpus {
		labels[i] = e.labels(g)
	}
	var out bytes.Buffer
	write := func(metric string, value func(gpu int) string) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s gauge\n", metric, describe[metric], metric)
		for i := range labels {
			fmt.Fprintf(&out, "%s{%s} %s\n", metric, labels[i], value(i))
		}
	}
	for m, metric := range shareMetrics {
		scale := scaleOf(metric)
		write(metric, func(i int) string { return trimmed(r.shares[i][m]*scale, 6) })
	}
	write(powerMetric, func(i int) string { return strconv.FormatFloat(power(r.shares[i][smActive]), 'f', 3, 64) })
	write(memoryMetric, func(i int) string { return strconv.FormatFloat(r.memory[i], 'f', 0, 64) })
	return out.Bytes()
}

// scaleOf is what a share of 1 is in the exporter's unit.
func scaleOf(metric string) float64 {
	if metric == "DCGM_FI_DEV_GPU_UTIL" {
		return 100
	}
	return 1
}

func trimmed(x float64, decimals int) string {
	if x == float64(int64(x)) {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

func (e *exporter) labels(g *gpu) string {
	text := fmt.Sprintf("gpu=%q,UUID=%q,pci_bus_id=%q,device=%q,modelName=%q,Hostname=%q", strconv.Itoa(g.index),
		g.uuid, g.pciBusID, "nvidia"+strconv.Itoa(g.index), e.model, e.hostname)
	if own := e.owner(g.uuid); own.pod != "" {
		text += fmt.Sprintf(",container=%q,namespace=%q,pod=%q", own.container, own.namespace, own.pod)
	}
	return text
}
