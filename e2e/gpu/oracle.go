package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	mrand "math/rand/v2"
	"strings"
)

// shareMetrics are the metrics that say which share of a resource is used; their truths lie in 0..1.
var shareMetrics = [...]string{
	"DCGM_FI_DEV_GPU_UTIL",
	"DCGM_FI_PROF_DRAM_ACTIVE",
	"DCGM_FI_PROF_PIPE_FP32_ACTIVE",
	"DCGM_FI_PROF_SM_ACTIVE",
	"DCGM_FI_PROF_SM_OCCUPANCY",
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}

// smActive is the place of the SMs' activity in shareMetrics, which power follows.
const smActive = 3

const shares = len(shareMetrics)

// memoryMetric is a level in MiB, not a share.
const memoryMetric = "DCGM_FI_DEV_FB_USED"

// powerMetric is in watts: so much idle, and so much more where all SMs are active.
const (
	powerMetric = "DCGM_FI_DEV_POWER_USAGE"
	idleWatts   = 80.0
	fullWatts   = 580.0
)

// power is what a GPU draws whose SMs are active for that share of the time.
func power(active float64) float64 {
	return idleWatts + (fullWatts-idleWatts)*active
}

// values holds one number per share metric, in the order of shareMetrics.
type values [shares]float64

func (v *values) addScaled(w values, by float64) {
	for i := range v {
		v[i] += w[i] * by
	}
}

func (v values) scaled(by float64) values {
	for i := range v {
		v[i] *= by
	}
	return v
}

// oracle is the hidden truth: what each layer and phase of each training uses. Every number follows from the seed and
// the names alone, so nothing is stored and a dump of the seed is enough to have it all again.
type oracle struct {
	seed      string  // hexadecimal
	low, high float64 // truths are uniform in between, 0..1
	variation float64 // relative standard deviation of a value from step to step
}

// newSeed draws a seed from the system's entropy.
func newSeed() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}

// digest names a place in the oracle: 16 bytes that depend on the seed and on all the parts.
func (o *oracle) digest(parts ...string) (uint64, uint64) {
	sum := sha256.Sum256([]byte(o.seed + "\x00" + strings.Join(parts, "\x00")))
	return binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])
}

// truth is the mean use of every share metric by one layer and phase of the training `who`.
func (o *oracle) truth(who, layer, phase string) values {
	var v values
	for i, metric := range shareMetrics {
		a, _ := o.digest("truth", who, layer, phase, metric)
		v[i] = o.low + (o.high-o.low)*float64(a>>11)/(1<<53)
	}
	return v
}

// level draws the memory level of a training in MiB: 4 to 20 GiB.
func (o *oracle) level(who string) float64 {
	a, _ := o.digest("level", who)
	return 1024 * (4 + 16*float64(a>>11)/(1<<53))
}

// memory is what `who` holds at a time: its level with a slow drift of 0.4 %.
func (o *oracle) memory(who string, at int64) float64 {
	return o.level(who) * (1 + memoryDrift*math.Sin(2*math.Pi*math.Mod(float64(at)/1e9, memoryPeriod)/memoryPeriod))
}

const (
	memoryDrift  = 0.004
	memoryPeriod = 97.0 // seconds
)

// inStep is the truth as it turned out in one step: redrawn per step and metric, within 0..1.
func (o *oracle) inStep(truth values, stream, step uint64, key int) values {
	src := mrand.NewPCG(mix(stream^step), mix(stream+uint64(key)<<40))
	gen := mrand.New(src)
	for i := range truth {
		truth[i] = clamp01(truth[i] * (1 + o.variation*gen.NormFloat64()))
	}
	return truth
}

// mix spreads neighbouring numbers over all 64 bits (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

func clamp01(x float64) float64 { return min(1, max(0, x)) }
