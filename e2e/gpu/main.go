// vgpu stands in for the GPUs of a node that has none: a device plugin that gives `nvidia.com/gpu` to the kubelet, and
// an exporter in dcgm-exporter's format whose values come from a hidden truth. README.md says how.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log"
	"math/big"
	mrand "math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type options struct {
	gpus          int
	window        time.Duration
	delay         time.Duration
	jitter        time.Duration
	noise         float64
	variation     float64
	low, high     float64
	utilPeriod    time.Duration
	utilStep      float64
	seed          string
	uuids         string
	model         string
	hostname      string
	listen        string
	truthListen   string
	socket        string
	pluginFolder  string
	resources     string
	resourcesTick time.Duration
}

func parseFlags() (*options, error) {
	o := &options{}
	name, _ := os.Hostname()
	flag.IntVar(&o.gpus, "gpus", 4, "how many virtual GPUs")
	flag.DurationVar(&o.window, "collect-interval", time.Second, "length of a collection window (dcgm-exporter's -c)")
	flag.DurationVar(&o.delay, "publish-delay", 0, "from a window's end to its publication; 0: drawn once, 60-160 ms")
	flag.DurationVar(&o.jitter, "publish-jitter", 2*time.Millisecond, "standard deviation of that delay, cut at two")
	flag.Float64Var(&o.noise, "noise", 0.2, "standard deviation of the noise on shares, in points")
	flag.Float64Var(&o.variation, "variation", 5, "how much values vary from step to step, in percent")
	flag.Float64Var(&o.low, "low", 5, "lowest true share, in points")
	flag.Float64Var(&o.high, "high", 95, "highest true share, in points")
	flag.DurationVar(&o.utilPeriod, "util-period", time.Second/6,
		"the driver's sample period of GPU_UTIL (NVML: 1/6 s to 1 s by the product); 0: the window")
	flag.Float64Var(&o.utilStep, "util-step", 0, "round GPU_UTIL to multiples of this many percent (a real driver: 1)")
	flag.StringVar(&o.seed, "seed", "", "seed of the truth; drawn anew at each start if empty")
	flag.StringVar(&o.uuids, "uuids", "", "comma-separated UUIDs in place of random ones, for development")
	flag.StringVar(&o.model, "model", "Virtual GPU", "modelName label")
	flag.StringVar(&o.hostname, "hostname", name, "Hostname label")
	flag.StringVar(&o.listen, "listen", ":9400", "address of the exporter")
	flag.StringVar(&o.truthListen, "truth-listen", ":9401", "address of the truth, for tests")
	flag.StringVar(&o.socket, "socket", "/run/precisionprobe-vgpu/vgpu.sock", "socket that trainings write to")
	flag.StringVar(&o.pluginFolder, "device-plugins", "/var/lib/kubelet/device-plugins",
		"the kubelet's folder; empty: no device plugin")
	flag.StringVar(&o.resources, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock",
		"the kubelet's socket; empty: no pod labels")
	flag.DurationVar(&o.resourcesTick, "pod-resources-interval", time.Second, "how often it is asked")
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.gpus < 1 || o.gpus > 16 || o.window < time.Millisecond || o.delay < 0 || o.utilPeriod < 0 || o.low < 0 || o.high > 100 ||
		o.high < o.low {
		return nil, fmt.Errorf("-gpus, -collect-interval, -publish-delay, -util-period, -low or -high is out of range")
	}
	return o, nil
}

// draw is a uniform random duration below `below`.
func draw(below time.Duration) time.Duration {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(below)))
	if err != nil {
		log.Fatal(err) // no entropy: nothing here would be a secret
	}
	return time.Duration(n.Int64())
}

func randomUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (o *options) gpuUUIDs() []string {
	if o.uuids != "" {
		return strings.Split(o.uuids, ",")
	}
	list := make([]string, o.gpus)
	for i := range list {
		list[i] = randomUUID()
	}
	return list
}

func (o *options) newCollector(uuids []string) (*collector, error) {
	seed := o.seed
	if seed == "" {
		var err error
		if seed, err = newSeed(); err != nil {
			return nil, err
		}
	}
	truth := &oracle{seed: seed, low: o.low / 100, high: o.high / 100, variation: o.variation / 100}
	delay := o.delay
	if delay == 0 {
		delay = 60*time.Millisecond + draw(100*time.Millisecond)
	}
	a, b := truth.digest("noise")
	utilOrigin := time.Now().UnixNano() - int64(draw(time.Second))
	return &collector{
		host: newHost(truth, uuids), window: o.window, origin: time.Now().UnixNano() - int64(draw(o.window)),
		delay: delay, jitter: o.jitter, noise: o.noise / 100, utilPeriod: o.utilPeriod, utilOrigin: utilOrigin, utilStep: o.utilStep, gen: mrand.New(mrand.NewPCG(a, b)),
	}, nil
}

// serveHTTP serves until the process ends; without its port the program is of no use.
func serveHTTP(address string, handler http.Handler) {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout: 2 * time.Minute}
	log.Fatal(server.ListenAndServe())
}

func run(ctx context.Context, o *options) error {
	uuids := o.gpuUUIDs()
	c, err := o.newCollector(uuids)
	if err != nil {
		return err
	}
	owners := &owners{}
	sock, err := listen(o.socket)
	if err != nil {
		return err
	}
	defer os.Remove(o.socket)
	in := &intake{host: c.host, owner: owners.of}
	go func() { log.Fatal(in.serve(sock)) }()
	if o.resources != "" {
		go owners.watch(ctx, o.resources, o.resourcesTick)
	}
	if o.pluginFolder != "" {
		p := &devicePlugin{uuids: uuids, socket: o.socket}
		go p.serve(ctx, filepath.Clean(o.pluginFolder))
	}
	public := http.NewServeMux()
	public.Handle("GET /metrics", &exporter{collector: c, owner: owners.of, model: o.model, hostname: o.hostname})
	public.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	truth := &truthServer{collector: c}
	hidden := http.NewServeMux()
	hidden.Handle("GET /truth", truth)
	hidden.HandleFunc("GET /activity", truth.activity)
	hidden.HandleFunc("GET /metrics", truth.metrics)
	go serveHTTP(o.listen, public)
	go serveHTTP(o.truthListen, hidden)
	log.Printf("%d GPUs, windows of %v published %v after their end", len(uuids), c.window, c.delay)
	c.run(ctx)
	return nil
}

func main() {
	log.SetFlags(log.LstdFlags | log.Lmicroseconds)
	o, err := parseFlags()
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vgpu:", err)
		os.Exit(1)
	}
}
