package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const resourceName = "nvidia.com/gpu"

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// devicePlugin offers the virtual GPUs to the kubelet.
type devicePlugin struct {
	plugin.UnimplementedDevicePluginServer
	uuids  []string
	socket string // of the virtual GPU, which containers write their events to
	done   chan struct{}
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) PreStartContainer(context.Context, *plugin.PreStartContainerRequest) (
	*plugin.PreStartContainerResponse, error) {
	return &plugin.PreStartContainerResponse{}, nil
}

// ListAndWatch sends the list once: virtual GPUs do not fall ill.
func (p *devicePlugin) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	list := &plugin.ListAndWatchResponse{}
	for _, uuid := range p.uuids {
		list.Devices = append(list.Devices, &plugin.Device{ID: uuid, Health: plugin.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-p.done:
	}
	return nil
}

// Allocate sets in each container what NVIDIA's plugin sets, and what the training needs to reach the virtual GPU.
func (p *devicePlugin) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	folder := filepath.Dir(p.socket)
	for _, container := range request.ContainerRequests {
		for _, id := range container.DevicesIds {
			if !contains(p.uuids, id) {
				return nil, fmt.Errorf("no GPU %q here", id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{
			Envs: map[string]string{
				"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ","),
				"VGPU_SOCKET":            p.socket,
			},
			Mounts: []*plugin.Mount{{ContainerPath: folder, HostPath: folder, ReadOnly: true}},
		})
	}
	return response, nil
}

func contains(list []string, item string) bool {
	for _, each := range list {
		if each == item {
			return true
		}
	}
	return false
}

// serve offers the plugin in the kubelet's folder, and again whenever the kubelet has restarted (it then empties the
// folder and makes its own socket anew). Returns when the context ends.
func (p *devicePlugin) serve(ctx context.Context, folder string) {
	for ctx.Err() == nil {
		if err := p.once(ctx, folder); err != nil && ctx.Err() == nil {
			log.Printf("device plugin: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// once serves one life of the kubelet.
func (p *devicePlugin) once(ctx context.Context, folder string) error {
	kubelet := filepath.Join(folder, "kubelet.sock")
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	own := filepath.Join(folder, "precisionprobe-vgpu.sock")
	os.Remove(own)
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	p.done = make(chan struct{})
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	defer close(p.done)
	if err := register(ctx, kubelet, filepath.Base(own)); err != nil {
		return err
	}
	log.Printf("device plugin: %d %s registered", len(p.uuids), resourceName)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		if now, err := os.Stat(kubelet); err != nil || !os.SameFile(before, now) || before.ModTime() != now.ModTime() {
			return fmt.Errorf("the kubelet has restarted")
		}
		if _, err := os.Stat(own); err != nil {
			return fmt.Errorf("the kubelet has removed the plugin's socket")
		}
	}
}

func register(ctx context.Context, kubelet, endpoint string) error {
	conn, err := dial(kubelet)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = plugin.NewRegistrationClient(conn).Register(ctx, &plugin.RegisterRequest{
		Version: plugin.Version, Endpoint: endpoint, ResourceName: resourceName,
		Options: &plugin.DevicePluginOptions{},
	})
	return err
}

// owners knows which pod holds which GPU, from the kubelet's pod-resources API.
type owners struct {
	byUUID atomic.Pointer[map[string]owner]
}

func (o *owners) of(uuid string) owner {
	if all := o.byUUID.Load(); all != nil {
		return (*all)[uuid]
	}
	return owner{}
}

// watch asks the kubelet again and again.
func (o *owners) watch(ctx context.Context, socket string, every time.Duration) {
	conn, err := dial(socket)
	if err != nil {
		log.Printf("pod resources: %v", err)
		return
	}
	defer conn.Close()
	client := resources.NewPodResourcesListerClient(conn)
	failed := false
	for ctx.Err() == nil {
		err := o.read(ctx, client)
		if err != nil && !failed && ctx.Err() == nil {
			log.Printf("pod resources: %v", err)
		}
		failed = err != nil
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

func (o *owners) read(ctx context.Context, client resources.PodResourcesListerClient) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := client.List(ctx, &resources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	all := map[string]owner{}
	for _, pod := range answer.PodResources {
		for _, container := range pod.Containers {
			for _, device := range container.Devices {
				if device.ResourceName != resourceName {
					continue
				}
				for _, id := range device.DeviceIds {
					all[id] = owner{pod.Namespace, pod.Name, container.Name}
				}
			}
		}
	}
	o.byUUID.Store(&all)
	return nil
}
