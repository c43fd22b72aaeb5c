package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limits of the socket's language.
const (
	maxLine     = 256 << 10 // bytes; only the greeting, which lists the layers, is long
	maxLayers   = 4096
	maxAhead    = int64(time.Second) // an event may not lie further in the future
	helloPrefix = "hello "
)

// hello is a training's greeting.
type hello struct {
	Version   int      `json:"version"`
	GPU       string   `json:"gpu"`
	Host      string   `json:"host"`
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Rank      int      `json:"rank"`
	Layers    []string `json:"layers"`
}

// intake listens to the trainings.
type intake struct {
	host  *host
	owner func(uuid string) owner
}

// listen makes the socket at path, in place of one that a former process left, open to pods of any user.
func listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return l, os.Chmod(path, 0o666)
}

func (in *intake) serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := in.read(conn); err != nil {
				log.Printf("training: %v", err)
			}
		}()
	}
}

// read follows one training until it leaves.
func (in *intake) read(conn io.Reader) error {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	if !lines.Scan() {
		return lines.Err()
	}
	greeting, found := strings.CutPrefix(lines.Text(), helloPrefix)
	if !found {
		return errors.New("no greeting")
	}
	var m hello
	if err := json.Unmarshal([]byte(greeting), &m); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	if m.Version != 1 || len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return fmt.Errorf("greeting: version %d, %d layers", m.Version, len(m.Layers))
	}
	g := in.host.gpuByUUID(m.GPU)
	if g == nil {
		return fmt.Errorf("greeting: no GPU %q here", m.GPU)
	}
	own := in.owner(m.GPU)
	in.host.Lock()
	w := in.host.join(g, m, time.Now().UnixNano(), own)
	in.host.Unlock()
	log.Printf("training %s/%s, rank %d, on GPU %d, %d layers", w.namespace, w.pod, w.rank, g.index, len(w.layers))
	defer func() {
		in.host.Lock()
		defer in.host.Unlock()
		if w.connected { // a newer connection may have taken over
			in.host.leave(w, time.Now().UnixNano())
		}
	}()
	for lines.Scan() {
		if err := in.event(w, lines.Text()); err != nil {
			return fmt.Errorf("%s/%s: %q: %w", w.namespace, w.pod, lines.Text(), err)
		}
	}
	return lines.Err()
}

// event takes one line: `s TIME STEP EPOCH BATCH`, `b TIME PHASE LAYER`, `e TIME PHASE LAYER` or `q TIME`.
func (in *intake) event(w *workload, line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	clock, rest, _ := strings.Cut(rest, " ")
	at, err := strconv.ParseInt(clock, 10, 64)
	if err != nil {
		return err
	}
	if at > time.Now().UnixNano()+maxAhead {
		return errors.New("lies in the future")
	}
	h := in.host
	h.Lock()
	defer h.Unlock()
	if !w.connected {
		return errors.New("another training has taken the GPU over")
	}
	at = h.order(w, at)
	switch verb {
	case "s":
		return w.beginStep(at, rest)
	case "b", "e":
		key, err := w.parseKey(rest)
		if err != nil {
			return err
		}
		if verb == "b" {
			w.switchTo(key, at)
		} else if w.open == key {
			w.switchTo(keyOther, at)
		}
		return nil
	case "q":
		w.endStep(at)
		w.switchTo(keyNone, at)
		return nil
	}
	return errors.New("unknown event")
}

// order counts an event that comes too late for its window, and keeps time from running backwards.
func (h *host) order(w *workload, at int64) int64 {
	h.events++
	if late := h.published - at; late > 0 {
		h.lateEvents++
		h.maxLateness = max(h.maxLateness, late)
	}
	if w.first == 0 {
		w.first = at
	}
	if at < w.last {
		h.disorderedEvents++
		return w.last
	}
	return at
}

func (w *workload) beginStep(at int64, rest string) error {
	var number, epoch, batch int64
	if _, err := fmt.Sscanf(rest, "%d %d %d", &number, &epoch, &batch); err != nil {
		return err
	}
	w.endStep(at)
	w.switchTo(keyOther, at)
	w.current = number
	if len(w.steps) >= maxSteps {
		w.steps = append(w.steps[:0:0], w.steps[maxSteps/2:]...)
		w.dropped = true
	}
	w.steps = append(w.steps, step{start: at, number: number, epoch: epoch, batch: batch})
	return nil
}

func (w *workload) parseKey(rest string) (int, error) {
	phase, index, _ := strings.Cut(rest, " ")
	layer, err := strconv.Atoi(index)
	if err != nil {
		return 0, err
	}
	switch {
	case phase == "o":
		return keyOptimizer, nil
	case layer < 0 || layer >= len(w.layers):
		return 0, errors.New("no such layer")
	case phase == "f":
		return keyForward(layer), nil
	case phase == "b":
		return keyBackward(layer), nil
	}
	return 0, errors.New("no such phase")
}
