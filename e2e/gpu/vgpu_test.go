package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const second = int64(time.Second)

var uuids = []string{"GPU-a", "GPU-b"}

// base is a time some minutes ago, so that no event of a test lies in the future.
var base = time.Now().UnixNano()/second*second - 600*second

func testHost(variation float64) *host {
	return newHost(&oracle{seed: "5eed", low: 0.05, high: 0.95, variation: variation}, uuids)
}

func testCollector(h *host) *collector {
	return &collector{host: h, window: time.Second, origin: base, gen: mrand.New(mrand.NewPCG(1, 2))}
}

// training is a workload that a test speaks for.
type training struct {
	t  *testing.T
	in *intake
	w  *workload
}

func joined(t *testing.T, h *host, uuid string, layers ...string) *training {
	in := &intake{host: h, owner: func(string) owner { return owner{"ml", "dlrm-0", "trainer"} }}
	w := h.join(h.gpuByUUID(uuid), hello{Host: "dlrm-0", Layers: layers}, base, in.owner(uuid))
	return &training{t, in, w}
}

// send says an event at milliseconds after base.
func (x *training) send(verb string, ms int64, rest ...any) {
	x.t.Helper()
	line := strings.TrimSpace(fmt.Sprintln(append([]any{verb, base + ms*1e6}, rest...)...))
	if err := x.in.event(x.w, line); err != nil {
		x.t.Fatalf("%s: %v", line, err)
	}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance || math.IsNaN(got) {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

func TestWindowIsTimeIntegral(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	other, optimizer, forward, backward := x.w.truths[0], x.w.truths[1], x.w.truths[2], x.w.truths[3]
	x.send("s", 100, 0, 0, 0)
	x.send("b", 150, "f", 0)
	x.send("e", 350, "f", 0)
	x.send("b", 400, "b", 0)
	x.send("e", 900, "b", 0)
	x.send("b", 950, "o", 0)
	x.send("e", 1250, "o", 0)
	x.send("q", 1500)
	g := h.gpus[0]
	first := h.mean(g, base, base+second)
	second := h.mean(g, base+second, base+2*second)
	for i := range shareMetrics {
		near(t, "first window", first[i], .2*forward[i]+.5*backward[i]+.05*optimizer[i]+.15*other[i], 1e-12)
		near(t, "second window", second[i], .25*optimizer[i]+.25*other[i], 1e-12)
	}
	if h.mean(h.gpus[1], base, base+int64(time.Second)) != (values{}) {
		t.Error("the other GPU is not idle")
	}
}

func TestOpenIntervalCountsToTheWindowsEnd(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	x.send("s", 0, 0, 0, 0)
	x.send("b", 250, "f", 0)
	mean := h.mean(h.gpus[0], base, base+second)
	near(t, "open forward", mean[0], .25*x.w.truths[0][0]+.75*x.w.truths[2][0], 1e-12)
}

func TestBeginEndsWhatRuns(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "a", "b")
	x.send("s", 0, 0, 0, 0)
	x.send("b", 0, "b", 0)
	x.send("b", 400, "b", 1)
	x.send("e", 500, "b", 0) // late news of the first: the second runs on
	x.send("e", 1000, "b", 1)
	mean := h.mean(h.gpus[0], base, base+second)
	near(t, "mean", mean[0], .4*x.w.truths[3][0]+.6*x.w.truths[5][0], 1e-12)
}

func TestVariationByStep(t *testing.T) {
	o := &oracle{seed: "5eed", variation: 0.05}
	truth := values{.5, .5, .5, .5, .5}
	var sum, squares float64
	const n = 4000
	for step := range uint64(n) {
		v := o.inStep(truth, 7, step, 3)
		if v != o.inStep(truth, 7, step, 3) {
			t.Fatal("the same step twice gives two values")
		}
		if v[0] == v[1] {
			t.Fatal("metrics vary together")
		}
		sum += v[2]
		squares += (v[2] - .5) * (v[2] - .5)
	}
	near(t, "mean", sum/n, .5, .002)
	near(t, "deviation", math.Sqrt(squares/n), .025, .001)
	high := o.inStep(values{1, 1, 1, 1, 1}, 7, 1, 3)
	for _, each := range high {
		if each > 1 {
			t.Error("above 1")
		}
	}
}

func TestTruthsAreSpread(t *testing.T) {
	o := &oracle{seed: "5eed", low: 0.05, high: 0.95}
	for metric := range shareMetrics {
		low, high := 1.0, 0.0
		for layer := range 20 {
			v := o.truth("w", fmt.Sprint(layer), "forward")[metric]
			low, high = min(low, v), max(high, v)
		}
		if low < .05 || high > .95 || high-low < .2 {
			t.Errorf("%s: %g to %g", shareMetrics[metric], low, high)
		}
	}
	if o.truth("w", "a", "forward") == o.truth("w", "a", "backward") ||
		o.truth("w", "a", "forward") == o.truth("v", "a", "forward") ||
		o.truth("w", "a", "forward") == (&oracle{seed: "other", high: 1}).truth("w", "a", "forward") {
		t.Error("the truth does not depend on all its names")
	}
}

func TestCollectPublishesAndCountsLateEvents(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	x.send("s", 0, 0, 0, 0)
	c := testCollector(h)
	c.noise = 0.002
	r := c.collect(base + second)
	near(t, "published", r.shares[0][0], x.w.truths[0][0], .01)
	if r.shares[0][0] == x.w.truths[0][0] {
		t.Error("no noise")
	}
	if r.shares[1] != (values{}) || r.memory[1] != 0 || r.memory[0] < 1024 {
		t.Errorf("idle GPU %v, memory %v", r.shares[1], r.memory)
	}
	x.send("b", 990, "f", 0)
	x.send("e", 1100, "f", 0)
	if h.lateEvents != 1 || h.maxLateness != 10e6 || h.events != 3 {
		t.Errorf("late %d by %d of %d", h.lateEvents, h.maxLateness, h.events)
	}
	c.utilStep = 1
	whole := c.collect(base + 2*second).shares[0][0] * 100
	near(t, "whole percent", whole, math.Round(whole), 1e-9)
}

func TestUtilisationIsOfTheDriversOwnPeriod(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	x.send("s", 0, 0, 0, 0)
	x.send("b", 0, "f", 0)
	x.send("e", 700, "f", 0)
	c := testCollector(h)
	c.utilPeriod, c.utilOrigin = 250*time.Millisecond, base+50e6
	g := h.gpuByUUID("GPU-a")
	shares := c.collect(base + second).shares[0]
	near(t, "utilisation", shares[0], h.mean(g, base+550e6, base+800e6)[0], 1e-12)
	near(t, "SMs", shares[smActive], h.mean(g, base, base+second)[smActive], 1e-12)
	if math.Abs(shares[0]-h.mean(g, base, base+second)[0]) < 1e-3 {
		t.Error("both periods read alike: the test tells nothing")
	}
}

func TestCollectorKeepsToItsWindows(t *testing.T) {
	h := testHost(0)
	c := testCollector(h)
	c.window, c.delay = 20*time.Millisecond, 5*time.Millisecond
	c.origin = time.Now().UnixNano() - 3
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	c.run(ctx)
	n := c.windows.Load()
	if n < 1 || n > 25 {
		t.Errorf("%d windows of 20 ms in 500 ms", n)
	}
	if late := c.latest.Load().end - c.origin; late%int64(c.window) != 0 {
		t.Errorf("window ends %d ns off its place", late%int64(c.window))
	}
}

func TestRejoinAndTakeover(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	x.send("s", 0, 0, 0, 0)
	h.leave(x.w, base+second/2)
	again := joined(t, h, "GPU-a", "fc")
	if again.w != x.w {
		t.Error("the same pod got a second truth")
	}
	again.send("s", 800, 0, 0, 0)
	near(t, "gap is idle", h.mean(h.gpus[0], base, base+second)[0], .7*x.w.truths[0][0], 1e-12)
	in := again.in
	in.owner = func(string) owner { return owner{"ml", "next-0", "trainer"} }
	next := h.join(h.gpus[0], hello{Layers: []string{"fc"}}, base+second, owner{"ml", "next-0", "trainer"})
	if next == x.w || x.w.connected || x.w.open != keyNone || next.truths[0] == x.w.truths[0] {
		t.Error("a new pod must end the old one and have truths of its own")
	}
	if err := in.event(x.w, fmt.Sprintf("s %d 1 0 0", base+second)); err == nil {
		t.Error("the old pod may still speak")
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := testHost(0)
	x := joined(t, h, "GPU-a", "fc")
	for i := range int64(maxSegments + 10) {
		x.w.switchTo(int(i%2), base+i)
	}
	if n := len(x.w.segments); n > maxSegments || n < maxSegments/2 || !x.w.dropped {
		t.Errorf("%d segments kept, dropped %v", n, x.w.dropped)
	}
	for i := range 3 * maxWorkloads {
		h.join(h.gpus[1], hello{Pod: fmt.Sprint("p", i), Layers: []string{"fc"}}, base, owner{})
	}
	if n := len(h.gpus[0].workloads) + len(h.gpus[1].workloads); n > maxWorkloads || !x.w.connected {
		t.Errorf("%d workloads kept", n)
	}
}

func TestIntakeReadsASocket(t *testing.T) {
	h := testHost(0)
	path := filepath.Join(t.TempDir(), "s", "vgpu.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	in := &intake{host: h, owner: func(string) owner { return owner{} }}
	go in.serve(l)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixNano()
	fmt.Fprintf(conn, "hello {\"version\":1,\"gpu\":\"GPU-b\",\"namespace\":\"ml\",\"pod\":\"p\",\"layers\":[\"fc\"]}\n"+
		"s %d 4 2 1\nb %d f 0\ne %d f 0\nq %d\n", now, now+1000, now+3000, now+5000)
	conn.Close()
	deadline := time.Now().Add(5 * time.Second)
	for {
		h.Lock()
		done := len(h.gpus[1].workloads) == 1 && !h.gpus[1].workloads[0].connected
		h.Unlock()
		if done {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the training did not come and go")
		}
		time.Sleep(time.Millisecond)
	}
	w := h.gpus[1].workloads[0]
	if len(w.segments) != 3 || w.segments[1].key != 2 || w.segments[1].end-w.segments[1].start != 2000 ||
		w.steps[0] != (step{now, now + 5000, 4, 2, 1}) {
		t.Errorf("segments %v, steps %v", w.segments, w.steps)
	}
}

func TestIntakeRefuses(t *testing.T) {
	greeting := "hello {\"version\":1,\"gpu\":\"GPU-a\",\"layers\":[\"fc\"]}\n"
	future := time.Now().UnixNano() + 3600*second
	for _, text := range []string{
		"s 1 0 0 0\n", "hello {\n", "hello {\"version\":2,\"gpu\":\"GPU-a\",\"layers\":[\"fc\"]}\n",
		"hello {\"version\":1,\"gpu\":\"GPU-z\",\"layers\":[\"fc\"]}\n", "hello {\"version\":1,\"gpu\":\"GPU-a\"}\n",
		greeting + "b x f 0\n", greeting + "b 1 f 1\n", greeting + "b 1 f -1\n", greeting + "b 1 z 0\n",
		greeting + "s 1 0\n", greeting + "w 1\n", greeting + fmt.Sprintf("b %d f 0\n", future),
		greeting + strings.Repeat("x", maxLine+1) + "\n",
	} {
		in := &intake{host: testHost(0), owner: func(string) owner { return owner{} }}
		if err := in.read(strings.NewReader(text)); err == nil {
			t.Errorf("%.80q was taken", text)
		}
	}
}

func TestExporterText(t *testing.T) {
	h := testHost(0)
	c := testCollector(h)
	e := &exporter{collector: c, model: "Virtual GPU", hostname: "node-1", owner: func(uuid string) owner {
		if uuid == "GPU-a" {
			return owner{"ml", "dlrm-0", "trainer"}
		}
		return owner{}
	}}
	answer := httptest.NewRecorder()
	e.ServeHTTP(answer, nil)
	if answer.Body.Len() != 0 {
		t.Error("something was served before the first window")
	}
	c.latest.Store(&reading{shares: []values{{.421234, .5, 0, .0123456, 1, .25}, {}}, memory: []float64{8192.4, 0}})
	answer = httptest.NewRecorder()
	e.ServeHTTP(answer, nil)
	got := answer.Body.String()
	a := `{gpu="0",UUID="GPU-a",pci_bus_id="00000000:17:00.0",device="nvidia0",modelName="Virtual GPU",` +
		`Hostname="node-1",container="trainer",namespace="ml",pod="dlrm-0"} `
	b := `{gpu="1",UUID="GPU-b",pci_bus_id="00000000:1B:00.0",device="nvidia1",modelName="Virtual GPU",` +
		`Hostname="node-1"} `
	for _, want := range []string{
		"# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL" + a + "42.123400\nDCGM_FI_DEV_GPU_UTIL" + b + "0\n",
		"DCGM_FI_PROF_DRAM_ACTIVE" + a + "0.500000\n",
		"DCGM_FI_PROF_PIPE_FP32_ACTIVE" + a + "0\n",
		"DCGM_FI_PROF_SM_ACTIVE" + a + "0.012346\n",
		"DCGM_FI_PROF_SM_OCCUPANCY" + a + "1\n",
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" + a + "0.250000\n",
		"DCGM_FI_DEV_POWER_USAGE" + a + "86.173\nDCGM_FI_DEV_POWER_USAGE" + b + "80.000\n",
		"# TYPE DCGM_FI_DEV_FB_USED gauge\nDCGM_FI_DEV_FB_USED" + a + "8192\nDCGM_FI_DEV_FB_USED" + b + "0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q in\n%s", want, got)
		}
	}
}

func TestTruthDump(t *testing.T) {
	h := testHost(0.05)
	x := joined(t, h, "GPU-a", "fc")
	for i := range int64(4) {
		x.send("s", 1000*i, i, 0, i)
		x.send("b", 1000*i+100, "f", 0)
		x.send("e", 1000*i+400, "f", 0)
	}
	x.send("q", 4000)
	server := &truthServer{collector: testCollector(h)}
	get := func(query string) truthDump {
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, httptest.NewRequest("GET", "/truth"+query, nil))
		var d truthDump
		if err := json.Unmarshal(answer.Body.Bytes(), &d); err != nil {
			t.Fatalf("%v: %s", err, answer.Body)
		}
		return d
	}
	at := float64(base) / 1e9
	w := get("").GPUs[0].Workloads[0]
	near(t, "life", w.Seconds, 4, 1e-6)
	near(t, "steps", w.Steps["count"], 4, 0)
	near(t, "step", w.Steps["mean"], 1, 1e-9)
	near(t, "forward", w.Rows[2].Seconds, 1.2, 1e-9)
	near(t, "share", w.Rows[2].Share, .3, 1e-9)
	near(t, "mean", w.Mean["DCGM_FI_PROF_SM_ACTIVE"], h.mean(h.gpus[0], base, base+4*second)[3], 1e-9)
	near(t, "memory", w.Mean[memoryMetric]/h.oracle.level(x.w.who), 1, .005)
	if w.Rows[3].Realised != nil || w.Rows[3].Seconds != 0 {
		t.Error("a backward that never ran has a mean")
	}
	want := 0.0
	for _, step := range []uint64{1, 3} {
		want += h.oracle.inStep(x.w.truths[2], x.w.stream, step, 2)[0] / 2 * 100
	}
	two := get(fmt.Sprintf("?from=%.3f&to=%.3f&from=%.3f&to=%.3f", at+1, at+2, at+3, at+4.5)).GPUs[0].Workloads[0]
	near(t, "realised in two stretches", two.Rows[2].Realised["DCGM_FI_DEV_GPU_UTIL"], want, 1e-5)
	near(t, "two stretches", two.Seconds, 2.5, 1e-5)
	near(t, "in steps", two.StepSeconds, 2, 1e-5)
	for _, bad := range []string{"?from=1", "?from=2&to=1", "?from=a&to=b"} {
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, httptest.NewRequest("GET", "/truth"+bad, nil))
		if answer.Code != 400 {
			t.Errorf("%s: %d", bad, answer.Code)
		}
	}
}

// kubelet is a registration and pod-resources server in a test's folder; the plugin side is the real one.
type kubelet struct {
	plugin.UnimplementedRegistrationServer
	resources.UnimplementedPodResourcesListerServer
	registered chan *plugin.RegisterRequest
}

func (k *kubelet) Register(_ context.Context, r *plugin.RegisterRequest) (*plugin.Empty, error) {
	k.registered <- r
	return &plugin.Empty{}, nil
}

func (k *kubelet) List(context.Context, *resources.ListPodResourcesRequest) (
	*resources.ListPodResourcesResponse, error) {
	return &resources.ListPodResourcesResponse{PodResources: []*resources.PodResources{{
		Name: "dlrm-0", Namespace: "ml", Containers: []*resources.ContainerResources{{
			Name: "trainer", Devices: []*resources.ContainerDevices{
				{ResourceName: "example.com/nic", DeviceIds: []string{"GPU-b"}},
				{ResourceName: resourceName, DeviceIds: []string{"GPU-a"}}},
		}},
	}}}, nil
}

func startKubelet(t *testing.T, folder string) (*kubelet, *grpc.Server) {
	l, err := net.Listen("unix", filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{registered: make(chan *plugin.RegisterRequest, 8)}
	server := grpc.NewServer()
	plugin.RegisterRegistrationServer(server, k)
	resources.RegisterPodResourcesListerServer(server, k)
	go server.Serve(l)
	t.Cleanup(server.Stop)
	return k, server
}

func TestDevicePlugin(t *testing.T) {
	folder := t.TempDir()
	k, server := startKubelet(t, folder)
	ctx, cancel := context.WithCancel(context.Background())
	p := &devicePlugin{uuids: uuids, socket: "/run/vgpu/vgpu.sock"}
	finished := make(chan struct{})
	go func() { p.serve(ctx, folder); close(finished) }()
	defer func() { cancel(); <-finished }()
	request := <-k.registered
	if request.ResourceName != "nvidia.com/gpu" || request.Version != "v1beta1" {
		t.Errorf("registered %v", request)
	}
	conn, err := dial(filepath.Join(folder, request.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := plugin.NewDevicePluginClient(conn)
	stream, err := client.ListAndWatch(ctx, &plugin.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stream.Recv()
	if err != nil || len(list.Devices) != 2 || list.Devices[1].ID != "GPU-b" || list.Devices[0].Health != "Healthy" {
		t.Errorf("devices %v, %v", list, err)
	}
	answer, err := client.Allocate(ctx, &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{
		{DevicesIds: []string{"GPU-b", "GPU-a"}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.ContainerResponses[0]
	if got.Envs["NVIDIA_VISIBLE_DEVICES"] != "GPU-b,GPU-a" || got.Envs["VGPU_SOCKET"] != "/run/vgpu/vgpu.sock" ||
		got.Mounts[0].HostPath != "/run/vgpu" || got.Mounts[0].ContainerPath != "/run/vgpu" {
		t.Errorf("allocated %v", got)
	}
	if _, err := client.Allocate(ctx, &plugin.AllocateRequest{ContainerRequests: []*plugin.ContainerAllocateRequest{
		{DevicesIds: []string{"GPU-z"}}}}); err == nil {
		t.Error("an unknown GPU was allocated")
	}
	server.Stop() // removes its socket, as a kubelet that stops
	again, _ := startKubelet(t, folder)
	select {
	case <-again.registered:
	case <-time.After(10 * time.Second):
		t.Error("not registered with the new kubelet")
	}
}

func TestOwners(t *testing.T) {
	folder := t.TempDir()
	startKubelet(t, folder)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := &owners{}
	go o.watch(ctx, filepath.Join(folder, "kubelet.sock"), 10*time.Millisecond)
	for deadline := time.Now().Add(5 * time.Second); o.of("GPU-a").pod == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no owner")
		}
	}
	if o.of("GPU-a") != (owner{"ml", "dlrm-0", "trainer"}) || o.of("GPU-b") != (owner{}) {
		t.Errorf("owners %v and %v", o.of("GPU-a"), o.of("GPU-b"))
	}
}

func TestUUIDs(t *testing.T) {
	o := &options{gpus: 4}
	seen := map[string]bool{}
	for _, uuid := range o.gpuUUIDs() {
		if len(uuid) != len("GPU-84412445-5790-4b3f-b714-da8aa3b2c0b0") || uuid[18] != '4' || seen[uuid] {
			t.Errorf("%q is no version 4 UUID of its own", uuid)
		}
		seen[uuid] = true
	}
	if bytes.Count([]byte(strings.Join(o.gpuUUIDs(), "")), []byte("GPU-")) != 4 {
		t.Error("not four")
	}
}
