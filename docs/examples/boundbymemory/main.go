// Which running Jobs of a namespace are bound by the GPU's memory: boundbymemory [-once] NAMESPACE
//
// As ../bound_by_memory.py, with client-go's informers, as a scheduler's plugin has them. Prints a line for each running Job
// whenever the answer changes. Needs the right to list and watch consumptionpatterns and jobs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	patterns = schema.GroupVersionResource{Group: "precisionprobe.io", Version: "v1alpha1", Resource: "consumptionpatterns"}
	jobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

// On pods: what their pattern is of, in place of their owner.
const label = "precisionprobe.io/workload"

// A figure's standard error is missing where it is not known.
type figure struct {
	Value         float64  `json:"value"`
	StandardError *float64 `json:"standardError"`
}

// workload is what a pattern is of. Its own name is made of these, and need not be what one would make.
type workload struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// pattern is what is read here of a ConsumptionPattern. What was not measured is missing.
type pattern struct {
	Spec struct {
		Workload workload `json:"workload"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		Bound  string `json:"bound"`
		Bounds []struct {
			By       string  `json:"by"`
			Share    *figure `json:"share"`
			Achieved *figure `json:"achieved"`
			Peak     float64 `json:"peak"`
		} `json:"bounds"`
		Metrics []struct {
			Name string  `json:"name"`
			Mean *figure `json:"mean"`
		} `json:"metrics"`
		Sessions     int    `json:"sessions"`
		LastFinished string `json:"lastFinished"`
	} `json:"status"`
}

// job is what is read here of a Job.
type job struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Template struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		Ready int `json:"ready"`
	} `json:"status"`
}

// all that an informer knows now, decoded.
func all[T any](informer cache.SharedIndexInformer) []T {
	var found []T
	for _, one := range informer.GetStore().List() {
		var to T
		text, err := one.(*unstructured.Unstructured).MarshalJSON()
		if err == nil {
			err = json.Unmarshal(text, &to)
		}
		if err != nil {
			log.Printf("an object is left out: %v", err)
			continue
		}
		found = append(found, to)
	}
	return found
}

// condition is "True", "False" or "Unknown", which it also is where there is none yet.
func (p *pattern) condition(name string) string {
	for _, one := range p.Status.Conditions {
		if one.Type == name {
			return one.Status
		}
	}
	return "Unknown"
}

func percent(f figure) string {
	told := fmt.Sprintf("%.1f %%", 100*f.Value)
	if f.StandardError != nil {
		told += fmt.Sprintf(" +- %.1f", 100**f.StandardError)
	}
	return told
}

// memory: its share of a step, and what it does per second meanwhile. A bound that is not listed has no share.
func (p *pattern) memory() string {
	var share, unknown figure
	var evidence string
	for _, one := range p.Status.Bounds {
		switch {
		case one.Share == nil:
		case one.By == "Unknown":
			unknown = *one.Share
		case one.By == "Memory":
			share = *one.Share
			if one.Achieved != nil && one.Peak > 0 {
				evidence = fmt.Sprintf(", at %.2f of %.2f TB/s", one.Achieved.Value/1e12, one.Peak/1e12)
			}
		}
	}
	told := fmt.Sprintf("memory %s of a step%s", percent(share), evidence)
	if unknown.Value >= 0.01 {
		told += fmt.Sprintf(", %s not known", percent(unknown))
	}
	return told
}

func (p *pattern) used() string {
	for _, one := range p.Status.Metrics {
		if one.Name == "DRAMActive" && one.Mean != nil {
			return "DRAMActive " + percent(*one.Mean)
		}
	}
	return "DRAMActive not measured"
}

// verdict: what bounds it, how sure that is, how much of the memory's bandwidth it uses, and when that was measured.
func (p *pattern) verdict() string {
	if p == nil || p.condition("Ready") != "True" {
		return "not known: it was not profiled yet"
	}
	last, bound := p.Status.LastFinished, p.Status.Bound
	if last == "" {
		last = "?"
	}
	told := fmt.Sprintf("%s; %s; %d sessions, until %s", p.memory(), p.used(), p.Status.Sessions, last)
	switch {
	case bound == "" || bound == "Unknown":
		return "not known, too little was measured: " + told
	case p.condition("Bound") == "Unknown":
		return fmt.Sprintf("not sure, %s leads by nobody knows how much: %s", bound, told)
	case p.condition("Bound") != "True":
		return fmt.Sprintf("not sure, %s leads by little: %s", bound, told)
	case bound == "Memory":
		return "bound by memory: " + told
	}
	return fmt.Sprintf("bound by %s: %s", bound, told)
}

// answers for Jobs with pods that are ready, by their names.
func answers(ofPatterns, ofJobs cache.SharedIndexInformer) map[string]string {
	known := map[workload]*pattern{}
	for _, one := range all[pattern](ofPatterns) {
		known[one.Spec.Workload] = &one
	}
	told := map[string]string{}
	for _, one := range all[job](ofJobs) {
		of := workload{"Job", one.Metadata.Name}
		if name := one.Spec.Template.Metadata.Labels[label]; name != "" {
			of = workload{"Workload", name}
		}
		if one.Status.Ready > 0 {
			told[one.Metadata.Name] = known[of].verdict()
		}
	}
	return told
}

// say prints what is new.
func say(said, now map[string]string) {
	var lines []string
	for name, answer := range now {
		if said[name] != answer {
			lines = append(lines, name+": "+answer)
			said[name] = answer
		}
	}
	sort.Strings(lines)
	if len(lines) > 0 {
		fmt.Println(strings.Join(lines, "\n"))
	}
}

func run(ctx context.Context, namespace string, once bool) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig( // in a pod: the pod's own account
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	ofPatterns, ofJobs := factory.ForResource(patterns).Informer(), factory.ForResource(jobs).Informer()
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default: // it will look anyway
		}
	}
	for _, informer := range []cache.SharedIndexInformer{ofPatterns, ofJobs} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { wake() },
			UpdateFunc: func(any, any) { wake() },
			DeleteFunc: func(any) { wake() },
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for said := map[string]string{}; ; <-changed {
		say(said, answers(ofPatterns, ofJobs))
		if once {
			return nil
		}
	}
}

func main() {
	once := flag.Bool("once", false, "say it and end")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: boundbymemory [-once] NAMESPACE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), *once); err != nil {
		log.Fatal(err)
	}
}
